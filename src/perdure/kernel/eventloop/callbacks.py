"""What waits in the ready queue of a run's loop: callbacks, timers that are due, and callbacks that poll."""

from __future__ import annotations

import asyncio
import contextvars
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from perdure.kernel.operations.timer import TimerOperation


#: A turn looks for callbacks that call themselves again each time it has run so many, if only so many are left then.
POLLS_LOOKED_FOR_AFTER, POLLS_MAX = 4096, 64
#: What is left of a callback that was cancelled: a call that does nothing.
_NOTHING = (tuple,)


class RunCallback(msgspec.Struct, eq=False):
    """What `call_soon` returns: an `asyncio.Handle` in all but its class, which is slow to make, and one is made for
    every callback."""

    #: The callback and its arguments.
    call: tuple[Any, ...]
    context: contextvars.Context
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.call = _NOTHING  # not looked at before it is called: few are ever cancelled

    def cancelled(self) -> bool:
        return self.is_cancelled

    def get_context(self) -> contextvars.Context:
        return self.context


def take_repeated(handle: RunCallback, ready: list[RunCallback], known: int) -> list[RunCallback]:
    """Callbacks that `handle` has put behind the `known` ones and that do the same again."""
    function, *args = handle.call
    if type(function) not in (MethodType, FunctionType):
        return []
    repeated = [
        one
        for one in ready[known:]
        if one.call[0] == function
        and len(one.call) == len(args) + 1
        and all(theirs is ours for theirs, ours in zip(one.call[1:], args, strict=True))
    ]
    if repeated:
        ready[known:] = [one for one in ready[known:] if one not in repeated]
    return repeated


class RunTimer(asyncio.TimerHandle):
    """A `call_at` handle. `operation` is None when it was due at once and only went through the ready queue."""

    __slots__ = ("operation", "queued")
    operation: TimerOperation | None
    #: What is put into the ready queue when its time has come.
    queued: RunCallback


#: What asyncio calls when a timer is due -> what people call that timer.
TIMER_NAMES = {
    "_set_result_unless_cancelled": "sleep",
    "_on_timeout": "timeout",
    "_release_waiter": "timeout",
    "_handle_timeout": "timeout",
}
