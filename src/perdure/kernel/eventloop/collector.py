"""Garbage collections in the middle of a turn: code that they run is not the run's.

A collection may come at any allocation, and finalises what anybody left in a cycle: coroutines of the host or of other
runs, whose `finally` blocks then run here and now; objects with `__del__`; callbacks of weak references. While it lasts
the host's loop is the running one again, with its hooks and context. So whatever that code asks of asyncio or perdure
is asked of the host, and it neither sees nor sets context variables of the run; what it asks of the run under way,
whose loop it may still hold, is left undone and reported. Which of a run's own objects go by a collection, and when,
differs from replay to replay: so nothing that follows from it may reach the run.

Async generators have a loop of their own, see `kernel.eventloop.generators`. A coroutine whose last reference is
dropped by the code of another run, without a collection, cannot be told from that run's own and is closed in its turn.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from _thread import get_ident
from asyncio import events
from contextvars import Context
from typing import Any

from perdure.kernel.eventloop.callbacks import RunCallback
from perdure.kernel.eventloop.hosting import hosts
from perdure.kernel.eventloop.loop import RunLoop

#: Enter and leave a context of `contextvars` without calling a function in it, which Python does not offer.
_context_call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)  # raises what the function set
_enter_context = _context_call(("PyContext_Enter", ctypes.pythonapi))
_exit_context = _context_call(("PyContext_Exit", ctypes.pythonapi))
_get_running_loop, _set_running_loop = events._get_running_loop, events._set_running_loop


class _Paused:
    """A turn in the middle of which a collection is under way."""

    __slots__ = ("_context", "_hooks", "_loop", "_owner", "_ready", "_refused")

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop
        self._owner = loop.owner
        self._ready = loop._ready
        self._refused: list[RunCallback] = []
        self._hooks = sys.get_asyncgen_hooks()
        loop.owner = None
        loop._ready = self._refused
        entered = hosts.get(get_ident())
        _set_running_loop(None if entered is None else entered.host)
        sys.set_asyncgen_hooks(*((None, None) if entered is None else entered.hooks))
        self._context = Context() if entered is None else entered.context.copy()
        _enter_context(self._context)

    def go_on(self) -> None:
        _exit_context(self._context)
        loop = self._loop
        loop.owner = self._owner
        loop._ready = self._ready
        _set_running_loop(loop)
        sys.set_asyncgen_hooks(*self._hooks)
        if self._refused and self._owner is not None:
            what = getattr(self._refused[0].call[0], "__qualname__", None) or repr(self._refused[0].call[0])
            self._owner.complain_of(
                f"code that the garbage collector finalised wanted to call {what} in the loop of a run, which was left "
                "undone: collections come at other moments on every replay. Close such objects in the workflow itself."
            )


#: There is never more than one collection at a time.
_paused: _Paused | None = None


def _on_collection(phase: str, _info: dict[str, Any]) -> None:
    global _paused
    if phase == "start":
        loop = _get_running_loop()
        if type(loop) is RunLoop:
            _paused = _Paused(loop)
    elif _paused is not None:
        paused, _paused = _paused, None
        paused.go_on()


def install() -> None:
    """Once per process: told of every collection, this does nothing unless one comes in the middle of a turn."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)
