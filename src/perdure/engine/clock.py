"""The only reader of time. Everything else is told what time it is, so tests and simulations can tell it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Wall time in microseconds since 1970. May jump; whoever uses it must stay right when it does."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000
