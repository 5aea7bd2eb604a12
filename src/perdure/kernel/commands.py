"""What workflow code can ask for in a turn. The engine carries these out, after the turn is durable.

Steps and their cancellation are released after the commit. Everything about other runs (children, events,
cancel requests) is an *effect*: it becomes part of the turn's commit itself and is answered by the record
written there. `Log` and `Warn` are for people and carry no promise beyond "not repeated by replay".
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.journal import Fault
from perdure.kernel.operation import ChildOperation, EffectOperation, SendOperation, StepOperation


class _Command(msgspec.Struct, frozen=True, gc=False):
    """Short-lived and never part of a cycle: not worth the garbage collector's time."""


class RunStep(_Command, frozen=True, gc=False):
    """Start (or go on trying) a step. Ignored if the operation was settled in the meantime."""

    operation: StepOperation


class CancelStep(_Command, frozen=True, gc=False):
    """The step's result is no longer wanted: cancel its code, refuse its outcome."""

    location: str


class StartChild(_Command, frozen=True, gc=False):
    operation: ChildOperation


class SendItem(_Command, frozen=True, gc=False):
    """Put an event, or a cancel request, into another run's inbox."""

    operation: SendOperation


class Effect(_Command, frozen=True, gc=False):
    """Publish an event, answer a request, watch a run."""

    operation: EffectOperation


class Mark(_Command, frozen=True, gc=False):
    """Write down that a patch was chosen."""

    location: str
    site: str


class Note(_Command, frozen=True, gc=False):
    """Write down a value that was read without any effect."""

    location: str
    data: bytes
    site: str


class Log(_Command, frozen=True, gc=False):
    """A line for the log, written once: never while replaying, never for a turn that did not commit."""

    level: int
    message: str
    args: tuple[Any, ...]


class Warn(_Command, frozen=True, gc=False):
    """Something the author of the workflow should know."""

    message: str


Command: TypeAlias = RunStep | CancelStep | StartChild | SendItem | Effect | Mark | Note | Log | Warn


# -- how a generation ends -------------------------------------------------------------------------------


class Complete(_Command, frozen=True, gc=False):
    value: Raw
    abandoned: tuple[str, ...] = ()


class Fail(_Command, frozen=True, gc=False):
    error: Fault
    abandoned: tuple[str, ...] = ()


class EndCancelled(_Command, frozen=True, gc=False):
    reason: str
    terminated: bool = False
    abandoned: tuple[str, ...] = ()


class Continue(_Command, frozen=True, gc=False):
    """Go on under the same id with a fresh journal."""

    workflow: WorkflowSpec
    input: bytes


Outcome: TypeAlias = Complete | Fail | EndCancelled | Continue
