"""The event loop that an engine lives on, where its public interface is not enough."""

from __future__ import annotations

import asyncio
from typing import Any

_enter_task, _leave_task = asyncio.tasks._enter_task, asyncio.tasks._leave_task


def has_other_work(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether something else is ready to run. A loop that does not tell (uvloop) is taken for a busy one."""
    return bool(getattr(loop, "_ready", True))


class outside:  # reads as what it does: `with outside(task): ...`
    """Leaves a task that is running, for what must not happen inside of one: newer Pythons allow a single current task
    in a thread, and turns have tasks of their own."""

    __slots__ = ("_loop", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self._loop = loop
        self._task = task

    def __enter__(self) -> None:
        _leave_task(self._loop, self._task)

    def __exit__(self, *_: object) -> None:
        _enter_task(self._loop, self._task)
