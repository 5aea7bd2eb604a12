"""The event loop that an engine lives on, where its public interface is not enough."""

from __future__ import annotations

import asyncio
import opcode
import signal
import threading
from types import CodeType
from typing import Any

_enter_task, _leave_task = asyncio.tasks._enter_task, asyncio.tasks._leave_task


def has_other_work(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether something else is ready to run. A loop that does not tell (uvloop) is taken for a busy one."""
    return bool(getattr(loop, "_ready", True))


class detached:  # reads as what it does: `with detached(task): ...`
    """Leaves a task that is running, for what must not happen inside of one: newer Pythons allow a single current task
    in a thread, and turns have tasks of their own."""

    __slots__ = ("_loop", "_task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._loop = task.get_loop()
        self._task = task

    def __enter__(self) -> None:
        _leave_task(self._loop, self._task)

    def __exit__(self, *_: object) -> None:
        _enter_task(self._loop, self._task)


_RAISE = opcode.opmap["RAISE_VARARGS"]


def is_interrupt(error: BaseException) -> bool:
    """Whether this is Ctrl-C, or the exit of a handler of some signal, which struck the code that was running: meant
    for the process. The same exceptions, raised by that code itself, are its own.

    Python calls the handler of a signal between two instructions of the main thread. So its function is among the
    frames; if it has none (the default one of SIGINT is C), the last frame stands at no `raise`.
    """
    if not isinstance(error, (KeyboardInterrupt, SystemExit)):
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = _handlers()
    traceback = last = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback, last = traceback.tb_next, traceback
    if last is None or not isinstance(error, KeyboardInterrupt):
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] != _RAISE


def _handlers() -> set[CodeType]:
    """The code of all handlers of signals that are functions of Python."""
    found: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while hasattr(handler, "func"):  # a partial, as asyncio.run has one
            handler = handler.func
        for function in (handler, getattr(type(handler), "__call__", None)):  # noqa: B004 - its code is wanted
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType):
                found.add(code)
    return found
