"""How long a worker goes on, and the tasks that belong to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from perdure import limits


class Lifetime:
    """Shared by the parts of one worker: each asks `closed` before it begins something."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something that is safe to repeat, to its end: also if a stranger cancels its task and the loop goes on."""

        def again() -> None:
            if not self.closed:
                self.spawn(work)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                self._loop.call_later(limits.CANCELLED_BY_OTHERS_SECONDS, again)

        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(ended)

    def spawn_once(self, work: Coroutine[Any, Any, None]) -> None:
        """The same for what must not be repeated: a stranger's cancellation ends it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float) -> None:
        """Wait for the tasks that are left, not for ever; those that do not end are cancelled."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        self.cancel()

    def cancel(self) -> None:
        for task in self._tasks:  # the store does not answer; the next worker finds out by itself
            task.cancel()
