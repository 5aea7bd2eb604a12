"""What workflow code can ask for in a turn. The engine carries these out, after the turn is durable.

Steps and their cancellation are released after the commit. Everything about other runs (children, events,
cancel requests) is an *effect*: it becomes part of the turn's commit itself and is answered by the record
written there. `Log` and `Warn` are for people and carry no promise beyond "not repeated by replay".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from perdure.kernel.journal import Body
    from perdure.kernel.operations.base import EffectOperation
    from perdure.kernel.operations.step import StepOperation


class _Command(msgspec.Struct, frozen=True, gc=False):
    """Short-lived and never part of a cycle: not worth the garbage collector's time."""

    def is_wanted(self) -> bool:
        """Whether it is still to be carried out for a run that was just loaded."""
        return True


class RunStep(_Command, frozen=True, gc=False):
    """Start (or go on trying) a step. Ignored if the operation was settled in the meantime."""

    operation: StepOperation

    def is_wanted(self) -> bool:
        return self.operation.request() is not None


class CancelStep(_Command, frozen=True, gc=False):
    """The step's result is no longer wanted: cancel its code, refuse its outcome."""

    location: str

    def is_wanted(self) -> bool:
        return False  # nothing of a run that was just loaded is under way


class Effect(_Command, frozen=True, gc=False):
    """Start a child, send or publish an event, answer a request, watch a run: see `EffectOperation.entry`."""

    operation: EffectOperation

    def is_wanted(self) -> bool:
        return self.operation.request() is not None


class Write(_Command, frozen=True, gc=False):
    """Write down something that has no effect: a patch that was chosen, a value that was read."""

    location: str
    body: Body


class Log(_Command, frozen=True, gc=False):
    """A line for the log, written once: never while replaying, never for a turn that did not commit."""

    level: int
    message: str
    args: tuple[Any, ...]


class Warn(_Command, frozen=True, gc=False):
    """Something the author of the workflow should know."""

    message: str


Command: TypeAlias = RunStep | CancelStep | Effect | Write | Log | Warn
