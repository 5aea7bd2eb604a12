"""Virtual time: an event loop's clock that stands still while anything can happen, and jumps when nothing can.

Works on the event loop that is already running, no matter what made it: the loop asks its selector to wait, and what
stands
in the selector's place moves the clock to the next timer instead. So everything that waits on the loop takes no real
time: sleeps of the test, timeouts and backoffs of steps, deadlines of runs.

Time does not move while something happens that takes real time: a step in a thread or in a process of its own, a call
in an executor, a socket that a running step waits for.

Who uses it: `VirtualEngine`, `crash_everywhere`. A simulation of several workers puts several engines on one loop; they
share its `VirtualTime`, each through a `VirtualClock` of its own, which may be skewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import selectors
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar, cast
from weakref import WeakKeyDictionary

from perdure.errors import BadArgument, Deadlocked
from perdure.limits import NEVER

A = TypeVar("A", bound=Awaitable[Any])

#: When virtual time begins, unless a test says otherwise. The same in every test, so journals can be compared.
START = datetime(2030, 1, 1, tzinfo=UTC)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Two microseconds: at a century from now the loop's floating-point seconds are half a microsecond apart.
_RESOLUTION_SECONDS = 2e-6
#: Real seconds of silence on open sockets after which time moves on: while a step runs, and otherwise.
_SOCKETS_OF_STEPS_SECONDS = 1.0
_SOCKETS_SECONDS = 0.02
#: Real seconds in which a thread nobody told us about may still wake the loop, before it counts as stuck.
_STUCK_SECONDS = 0.2
#: When to look again at something that is due and was left alone, and how often: then it will stay as it is.
_SWEEP_AGAIN_MICROSECONDS = 1_000_000
_VAIN_SWEEPS_MAX = 100


def microseconds(when: datetime) -> int:
    if when.tzinfo is None:
        raise BadArgument(f"{when} has no time zone. Give one: datetime(..., tzinfo=UTC).")
    return (when - _EPOCH) // timedelta(microseconds=1)


class Background:
    """What an engine tells the time it lives in."""

    def next_due(self, now: int) -> int | None:
        """When after `now` a sweep will find something."""
        return None

    def is_overdue(self, now: int) -> bool:
        """Whether something is due that the sweeps so far have left alone."""
        return False

    def sweep(self) -> None:
        """Look at the store."""

    def is_working(self) -> bool:
        """Whether code of a step is running."""
        return False

    def deadlocked(self) -> bool:
        """Nothing can happen any more. True if somebody who waits was told."""
        return False


class VirtualTime:
    """The time of one event loop. Get it with `VirtualTime.of(loop)`, and `hold()` it for as long as it is needed."""

    _installed: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, VirtualTime]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop, start: int) -> None:
        self._loop: Any = loop
        self.start = start
        self._now = start
        self._users = 0
        self._working = 0
        self._vain = 0
        self.background: list[Background] = []
        self._quiet: list[asyncio.Future[bool]] = []
        self._after: list[asyncio.Future[bool]] = []
        self._base = 0.0
        self._undo: list[Callable[[], None]] = []

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, start: datetime = START) -> VirtualTime:
        """The virtual time of a loop; a new one, not yet in force, if it has none."""
        return cls._installed.get(loop) or cls(loop, microseconds(start))

    def now(self) -> int:
        """Microseconds since 1970."""
        return self._now

    @property
    def datetime(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self._now)

    def seconds_of(self, at: int) -> float:
        """A moment as the event loop counts."""
        return self._base + (min(at, NEVER) - self.start) / 1_000_000

    # -- in force and out again ----------------------------------------------------------------------------------

    def enter(self) -> None:
        """In force from the first `enter` to the last `leave`."""
        self._users += 1
        if self._users > 1:
            return
        loop = self._loop
        if not hasattr(loop, "_selector") or not hasattr(loop, "_scheduled"):
            raise BadArgument(
                f"virtual time needs an event loop of asyncio itself, not a {type(loop).__qualname__} of "
                f"{type(loop).__module__}. Run the test on one: asyncio.run(...), or engine.run(...)."
            )
        self._base = loop.time() - (self._now - self.start) / 1_000_000
        inner, resolution = loop._selector, loop._clock_resolution
        loop._selector = _Selector(inner, self)
        loop._clock_resolution = _RESOLUTION_SECONDS
        loop.time = lambda: self.seconds_of(self._now)
        executor = loop.run_in_executor
        loop.run_in_executor = lambda *args: self.outside(executor(*args))

        def undo() -> None:
            loop._selector, loop._clock_resolution = inner, resolution
            del loop.time, loop.run_in_executor

        self._undo.append(undo)
        VirtualTime._installed[loop] = self

    def leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            VirtualTime._installed.pop(self._loop, None)
            for undo in self._undo:
                undo()
            self._undo.clear()

    # -- what takes real time --------------------------------------------------------------------------------------

    def outside(self, work: A) -> A:
        """Time stands still until this is done."""
        if isinstance(work, asyncio.Future):
            self._working += 1
            work.add_done_callback(self._done)
            return cast(A, work)
        if inspect.iscoroutine(work):
            return cast(A, self._counted(work))
        return work

    def _done(self, _: object) -> None:
        self._working -= 1

    async def _counted(self, work: Awaitable[Any]) -> Any:
        self._working += 1
        try:
            return await work
        finally:
            self._working -= 1

    # -- waiting for nothing to happen -------------------------------------------------------------------------------

    async def quiet(self) -> None:
        """Return when nothing more can happen at this moment; the clock has not moved."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._quiet.append(future)
        await future

    async def next_quiet(self) -> bool:
        """Let the clock move once, and return when nothing more can happen then. False: it never will again."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._after.append(future)
        return await future

    # -- the heart -------------------------------------------------------------------------------------------------

    def idle(self, select: Callable[[float | None], Sequence[Any]], sockets: int) -> Sequence[Any]:
        """Nothing is ready on the loop: wait for what takes real time, else move on."""
        events = select(0)
        if events:
            return events
        if self._working:
            return select(1.0)  # woken by the thread's call_soon_threadsafe; the second only bounds a lost wake-up
        if sockets:
            working = any(each.is_working() for each in self.background)
            events = select(_SOCKETS_OF_STEPS_SECONDS if working else _SOCKETS_SECONDS)
            if events:
                return events
        if self._quiet:
            _resolve(self._quiet, True)
            return ()
        return () if self._jump() else self._stuck(select)

    def _jump(self) -> bool:
        timer = self._next_timer()
        due = [at for each in self.background if (at := each.next_due(self._now)) is not None]
        overdue = self._vain < _VAIN_SWEEPS_MAX and any(each.is_overdue(self._now) for each in self.background)
        if overdue:
            due.append(self._now + _SWEEP_AGAIN_MICROSECONDS)
        self._vain = self._vain + 1 if overdue else 0
        if timer is None and not due:
            return False
        target = min(due if timer is None else [*due, timer])
        if timer is None or target < timer:
            for each in self.background:
                each.sweep()
        self._now = max(self._now, target)
        self._quiet, self._after = self._after, []
        return True

    def _next_timer(self) -> int | None:
        """The first timer of the loop that was not cancelled."""
        heap = self._loop._scheduled
        if heap and heap[0]._cancelled:  # the loop will throw it away; until then the next one has to be looked for
            heap = [min(alive)] if (alive := [handle for handle in heap if not handle._cancelled]) else []
        return self.start + round((heap[0]._when - self._base) * 1_000_000) if heap else None

    def _stuck(self, select: Callable[[float | None], Sequence[Any]]) -> Sequence[Any]:
        events = select(_STUCK_SECONDS)
        if events or self._loop._ready:
            return events
        if self._after:
            _resolve(self._after, False)
            return ()
        if sum(each.deadlocked() for each in self.background):  # all of them, not only the first
            return ()
        raise Deadlocked(
            "the test waits for something that can never happen: no run, no step and no timer is left that could "
            "bring it about."
        )


def _resolve(futures: list[asyncio.Future[bool]], value: bool) -> None:
    waiting, futures[:] = futures[:], []
    for future in waiting:
        if not future.done():
            future.set_result(value)


class _Selector:
    """In the place of the loop's selector: asked to wait, it lets virtual time decide."""

    def __init__(self, inner: Any, time: VirtualTime) -> None:
        self._inner = inner
        self._time = time

    def select(self, timeout: float | None = None) -> Sequence[Any]:
        if timeout is not None and timeout <= 0:
            return self._inner.select(timeout)  # type: ignore[no-any-return]
        return self._time.idle(self._inner.select, self._sockets())

    def _sockets(self) -> int:
        """Open sockets and pipes, besides the one by which threads wake the loop."""
        if not isinstance(self._inner, selectors.BaseSelector):
            return 0  # the proactor of Windows does not tell
        return len(self._inner.get_map() or ()) - 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class VirtualClock:
    """An engine's view of virtual time (a `Timekeeper`). `skew` seconds: how wrong it goes, for several of them."""

    def __init__(self, start: datetime = START, skew: float = 0.0) -> None:
        self._start = start
        self._skew = round(skew * 1_000_000)
        self.time: VirtualTime | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> VirtualTime:
        self.time = VirtualTime.of(loop, self._start)
        self.time.enter()
        return self.time

    def unbind(self) -> None:
        if self.time is not None:
            self.time.leave()

    def now(self) -> int:
        return microseconds(self._start) if self.time is None else self.time.now() + self._skew

    def call_at(self, at: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        if self.time is None:
            raise AssertionError("an engine waits only while it is open")
        loop = asyncio.get_running_loop()
        return loop.call_at(self.time.seconds_of(at - self._skew), callback)

    def poll(self, seconds: float) -> float | None:
        return None

    def outside(self, work: A) -> A:
        return work if self.time is None else self.time.outside(work)


@contextlib.asynccontextmanager
async def virtual_time(start: datetime = START) -> AsyncGenerator[VirtualTime]:
    """Virtual time on the running loop, for as long as the block lasts.

    >>> async with virtual_time():
    ...     await asyncio.sleep(86_400)  # over at once
    """
    time = VirtualTime.of(asyncio.get_running_loop(), start)
    time.enter()
    try:
        yield time
    finally:
        time.leave()
