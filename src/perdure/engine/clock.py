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


class _Given(HostTime):
    """A clock of the user's, waited for on the event loop."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now  # type: ignore[method-assign]


def timekeeper(clock: Clock | None) -> Timekeeper:
    """The clock an engine lives by: the system's, unless the user gave one."""
    if clock is None:
        return SystemClock()
    return clock if isinstance(clock, Timekeeper) else _Given(clock)
