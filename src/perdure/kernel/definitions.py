"""What the kernel knows about user functions: their names, codecs and policies. Built by `perdure.authoring`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from perdure.kernel.retry import RetryPolicy
from perdure.kernel.values import ArgumentsCodec, ValueCodec


class StepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A step as the kernel asks for it. `function` is opaque here: only the engine calls it."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    policy: RetryPolicy
    arguments: ArgumentsCodec
    result: ValueCodec[Any]
    #: How errors call the result. Made once: every outcome passes it along.
    what: str
    #: Attempts of this step running at once in one worker; None: only the worker's own cap.
    concurrency: int | None = None
    #: "none": in this process; "process": in one of its own.
    isolation: str = "none"
    on_retry: Callable[[Any], object] | None = None
    #: Whether its coroutine can be run as it is: async, in this process, without timeouts.
    is_bare: bool = False
    #: What undoes it in a saga, given its output.
    undo: Callable[[Any], Any] | None = None


class WorkflowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow."""

    name: str
    version: str
    function: Callable[..., Coroutine[Any, Any, Any]]
    arguments: ArgumentsCodec
    result: ValueCodec[Any]
    #: Seconds a cancelled run may take to clean up; None: the engine's setting.
    cancel_grace: float | None = None


class EventPolicy(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What `@event(...)` says about how its events travel. Goes with every one of them: what has to decide later, a
    store that ends a run or a process without this code, then needs nothing else."""

    #: Which runs may see a published one: "after_create", "after_wait", "all", "first".
    delivery: str = "after_create"
    #: Whether the first reader takes a published one, or every eligible run reads it once.
    consume: bool = True
    #: Microseconds after which nobody gets it any more; None: never.
    expires: int | None = None
    #: What becomes of a targeted one whose run ended before reading it: "dead_letter", "broadcast", "discard".
    undelivered: str = "dead_letter"

    @property
    def single(self) -> bool:
        """Whether one run gets a published one, rather than each eligible run."""
        return self.consume or self.delivery == "first"


DEFAULT_POLICY = EventPolicy()


class EventSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A type that runs can receive."""

    name: str
    type: type
    codec: ValueCodec[Any]
    policy: EventPolicy = DEFAULT_POLICY


class EventTypes(msgspec.Struct, frozen=True):
    """The types one `receive` accepts, by stored name."""

    specs: Mapping[str, EventSpec]

    def names(self) -> str:
        return " or ".join(repr(name) for name in self.specs)
