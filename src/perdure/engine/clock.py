"""The only reader of time, and the port through which the engine waits for it.

Everything else is told what time it is and is called when a moment has come, so tests and simulations can tell it. A
user gives any object with `now()`; one that also waits by its own rules (`perdure.testing` has one) is a `Timekeeper`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

A = TypeVar("A", bound=Awaitable[Any])

#: The wall clock may jump while the loop's clock does not, so no wait is longer than this.
_WAIT_SECONDS_MAX = 30.0


class Clock(Protocol):
    """What time it is, as far as an engine is concerned."""

    def now(self) -> int:
        """Wall time in microseconds since 1970. May jump; its users must stay right when it does."""
        ...


@runtime_checkable
class Timekeeper(Clock, Protocol):
    """A clock that also decides how its time is waited for."""

    def call_at(self, at: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call when `at` has come, or earlier: the callback looks at `now()` and asks again if it must."""
        ...

    def poll(self, seconds: float) -> float | None:
        """How long to wait before looking for what a hint should have told; None: hints are never lost here."""
        ...

    def outside(self, work: A) -> A:
        """Work of a thread or another process begins: it takes real time, whatever this clock says."""
        ...


class HostTime:
    """Waits on the running event loop, whose clock goes like the wall clock, mostly."""

    def now(self) -> int:
        raise NotImplementedError

    def call_at(self, at: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        wait = max(0.0, (at - self.now()) / 1_000_000)
        return asyncio.get_running_loop().call_later(min(wait, _WAIT_SECONDS_MAX), callback)

    def poll(self, seconds: float) -> float | None:
        return seconds

    def outside(self, work: A) -> A:
        return work


class SystemClock(HostTime):
    def now(self) -> int:
        return time.time_ns() // 1_000


class FollowingClock(HostTime):
    """The system's clock, until a store tells its own time; from then on that time.

    Between two answers it goes on with the monotonic clock, so that a wall clock which is set does not matter. The
    first answer is taken as it is: it comes before anything is done by this clock (`EngineParts.begin`). After that it
    never goes backwards: if it turns out to be ahead it goes at half its speed until it is right.

    `wall`, `monotonic`: where time is read, in nanoseconds.
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        #: When the time was last set, by the monotonic clock; None: no store has told its time.
        self._set_at: int | None = None
        #: What it was set to, and by how much that is ahead of the store's time, in microseconds.
        self._set_to = self._ahead = 0

    def now(self) -> int:
        if self._set_at is None:
            return self._wall() // 1_000
        elapsed = (self._monotonic() - self._set_at) // 1_000
        return self._set_to + elapsed - min(self._ahead, elapsed - elapsed // 2)

    def moment(self) -> int:
        """When a call begins whose answer may tell the store's time: for `follow`."""
        return self._monotonic()

    def follow(self, began: int, told: int) -> None:
        """The store told its time in the answer to a call that began at this `moment`.

        It is taken to be of the middle of the call. What is within half the length of the call may be right as it is.
        """
        ended = self._monotonic()
        doubt = (ended - began) // 2_000
        should_be = told + doubt
        if self._set_at is None:
            self._set_at, self._set_to = ended, should_be
            return
        elapsed = (ended - self._set_at) // 1_000
        is_now = self._set_to + elapsed - min(self._ahead, elapsed - elapsed // 2)
        will_be = self._set_to + elapsed - self._ahead  # once it is no longer ahead
        if abs(should_be - will_be) > doubt:
            self._set_at, self._set_to = ended, max(is_now, should_be)
            self._ahead = max(0, is_now - should_be)


class _Given(HostTime):
    """A clock of the user's, waited for on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now  # type: ignore[method-assign]


def timekeeper(clock: Clock | None) -> Timekeeper:
    """The clock an engine lives by: the system's or the store's, unless the user gave one."""
    if clock is None:
        return FollowingClock()
    return clock if isinstance(clock, Timekeeper) else _Given(clock)
