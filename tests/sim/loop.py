"""The simulator's event loop: virtual time, and a seeded choice of which node goes on next.

Every callback belongs to the life of a node, by the context it runs in. Within one life callbacks run in the order
asyncio promises; between lives the order is drawn from the seed, one callback at a time. A life that is paused keeps
its callbacks; one that is dead loses them: nothing it had begun goes on, as after SIGKILL.

When nobody can go on, time jumps to the next timer. Futures and tasks hash to their number, because the engine keeps
some in sets and addresses differ from process to process.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from asyncio import base_events
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

#: The life that the current code belongs to. 0: the world itself.
LIFE: ContextVar[int] = ContextVar("sim_life", default=0)

#: How far the clock moves with every callback, in seconds: code takes some time, and no two things happen at once.
_CALLBACK_SECONDS = 2e-6


class Stuck(Exception):
    """Nothing is left that could happen, or too much has happened."""


class _Future(asyncio.Future[Any]):
    __slots__ = ("number",)

    def __hash__(self) -> int:
        return self.number


class _Task(asyncio.Task[Any]):
    __slots__ = ("life", "number")

    def __hash__(self) -> int:
        return self.number


class _Ready:
    """What `BaseEventLoop` takes for its queue: sorts callbacks by life."""

    def __init__(self) -> None:
        self.by_life: dict[int, deque[asyncio.Handle]] = {0: deque()}

    def append(self, handle: asyncio.Handle) -> None:
        queue = self.by_life.get(handle._context.get(LIFE, 0))  # type: ignore[attr-defined]
        if queue is not None:  # else its node is dead
            queue.append(handle)

    def clear(self) -> None:
        self.by_life.clear()


class SimLoop(base_events.BaseEventLoop):
    """See the module docstring."""

    def __init__(self, rng: random.Random, callbacks_max: int) -> None:
        super().__init__()
        self._rng = rng
        self._left = callbacks_max
        self._queues = _Ready()
        self._ready: Any = self._queues
        self._clock_resolution = 1e-6
        self._now = 0.0
        self._numbers = 0
        self.paused: set[int] = set()
        self.tasks: list[_Task] = []
        self.set_task_factory(self._make_task)

    # -- lives ---------------------------------------------------------------------------------------------------

    def born(self, life: int) -> Context:
        """A new life: the context in which everything of it runs."""
        self._queues.by_life[life] = deque()
        context = copy_context()
        context.run(LIFE.set, life)
        return context

    def die(self, life: int) -> None:
        """All that this life had under way is gone."""
        self._queues.by_life.pop(life, None)
        self.paused.discard(life)

    def cancel_all(self, life: int) -> int:
        """Cancel every task of a life, as `asyncio.run` does at its end. Returns how many there were."""
        return sum(task.cancel() for task in self.tasks if task.life == life and not task.done())

    def close_the_dead(self) -> None:
        """Close what dead lives left behind, in order, before the garbage collector finds it."""
        self._queues.by_life.clear()
        for task in self.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(RuntimeError):  # it awaits in its cleanup
                    task.get_coro().close()  # type: ignore[union-attr]

    # -- what asyncio asks of a loop -----------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        self._numbers += 1
        future.number = self._numbers
        return future

    def _make_task(self, loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        self._numbers += 1
        number = self._numbers
        task: _Task = _Task.__new__(_Task)
        task.number = number  # its constructor already hashes it
        context: Context | None = options.get("context")
        task.life = LIFE.get() if context is None else context.get(LIFE, 0)
        task.__init__(coro, loop=loop, name=f"task-{number}", **options)  # type: ignore[misc]
        self.tasks.append(task)
        return task

    def _write_to_self(self) -> None:
        """There is no other thread to wake."""

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Thrown away when its time comes."""

    def _run_once(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Stuck("the world does not come to rest: something goes round and round")
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        queues = self._queues
        by_life = queues.by_life
        while True:
            while timers and (timers[0]._when <= self._now or timers[0]._cancelled):
                timer = heapq.heappop(timers)
                timer._scheduled = False
                if not timer._cancelled:
                    queues.append(timer)
            able = [life for life, queue in by_life.items() if queue and life not in self.paused]
            if able:
                break
            if not timers:
                raise Stuck("nothing is left that could happen")
            self._now = timers[0]._when
        life = able[0] if len(able) == 1 else able[int(self._rng.random() * len(able))]
        handle = by_life[life].popleft()
        self._now += _CALLBACK_SECONDS
        if not handle._cancelled:
            handle._run()


def call_in(loop: SimLoop, context: Context, seconds: float, function: Callable[..., object], *args: Any) -> None:
    """Call later, on behalf of a life."""
    loop.call_later(seconds, function, *args, context=context)
