"""Closing the coroutines of a run that leaves memory: here and now, inside its own loop, whatever their code does.

Left to the garbage collector they would run their `finally` blocks anywhere, at any time; outside of a run a step in
one of them would run for real.
"""

from __future__ import annotations

import contextvars
import sys
from asyncio import tasks
from types import AsyncGeneratorType, CoroutineType
from typing import Any

from perdure.kernel.eventloop.hosting import running
from perdure.kernel.eventloop.loop import RunLoop
from perdure.kernel.eventloop.tasks import RunTask

#: Waits in nested finally blocks that closing a coroutine goes through before it gives up.
_TRIES_MAX = 100


def close_tasks(loop: RunLoop) -> None:
    """Close every task of a run. The caller has made sure that nothing they still ask for is carried out."""
    if not loop.unfinished_tasks():  # the usual end: nothing to close
        loop.close_quietly()
        return
    loop.stopped = True
    closed: set[RunTask] = set()
    loop.running = True
    loop.monitor.loop = loop
    with running(loop), _QuietCoroutines():
        while left := [task for task in loop.unfinished_tasks() if task not in closed]:
            for task in reversed(left):  # a finally block may make new ones
                closed.add(task)
                _close(loop, task)
    loop.running = False
    loop.monitor.loop = None
    loop.close_quietly()


def _close(loop: RunLoop, task: RunTask) -> None:
    setattr(task, "_log_destroy_pending", False)  # noqa: B010
    coroutine: Any = task.get_coro()
    # A finally block that waits makes close() raise "ignored GeneratorExit" and leaves the coroutine half closed, so it
    # is closed again until it is through.
    for _ in range(_TRIES_MAX):
        tasks._enter_task(loop, task)  # a finally block may ask for the current task (TaskGroup, timeout)
        try:
            # In its own context: a finally block may reset a context variable, and tokens are of one context only.
            context = task.context if type(task) is RunTask else contextvars.copy_context()
            context.run(coroutine.close)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # whatever a finally block raised: nobody is left to hear it
            if getattr(coroutine, "cr_frame", None) is None:
                return
        else:
            return
        finally:
            tasks._leave_task(loop, task)
    # Code that swallows even GeneratorExit, in a loop. Let go, it would be finalised at some garbage collection or at
    # exit and go on looping there, outside of any run and without end; so it is never let go and costs its memory.
    import ctypes  # for this rare case only: it is slow to import

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


class _QuietCoroutines:
    """A helper coroutine that is dropped half closed reports to `sys.unraisablehook`; here there is nobody to tell."""

    def __enter__(self) -> None:
        self._usual = sys.unraisablehook
        sys.unraisablehook = self._hook

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self._usual

    def _hook(self, unraisable: Any) -> None:
        if not isinstance(unraisable.object, (CoroutineType, AsyncGeneratorType)):
            self._usual(unraisable)
