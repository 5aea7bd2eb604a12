"""A clock that a test moves by hand; between moves it goes on like the real one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perdure.engine.clock import SystemClock

HOUR = 3600.0
DAY = 86_400.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MovedClock:
    def __init__(self) -> None:
        self._real = SystemClock()
        self._offset = 0

    def now(self) -> int:
        return self._real.now() + self._offset

    def move(self, seconds: float) -> None:
        self._offset += round(seconds * 1_000_000)

    def datetime(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.now())
