"""What to do while the store does not answer: wait longer each time, and log it once a minute, not at every try."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure import limits
from perdure.errors import StoreError, StoreLost, StoreUnavailable, describe

T = TypeVar("T")

_WARN_AGAIN_SECONDS = 60.0


class Outages:
    """Backoff and quiet logging, shared by everything of one worker that talks to the store."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._wait = limits.STORAGE_RETRY_SECONDS_MIN
        self._warned_at: dict[str, float] = {}

    def failed(self, error: BaseException) -> float:
        """A call failed. Returns how many seconds to wait before trying again."""
        self.warn_rarely("outage", "the store did not answer, trying again: %s", describe(error))
        wait, self._wait = self._wait, min(self._wait * 2, limits.STORAGE_RETRY_SECONDS_MAX)
        return wait

    def recovered(self) -> None:
        """A call worked."""
        if self._wait > limits.STORAGE_RETRY_SECONDS_MIN:
            self._wait = limits.STORAGE_RETRY_SECONDS_MIN
            self._warned_at.pop("outage", None)
            self._logger.info("the store answers again")

    def warn_rarely(self, topic: str, message: str, *args: object) -> None:
        """Log a warning, at most once a minute for each topic."""
        now = time.monotonic()
        if now - self._warned_at.get(topic, -_WARN_AGAIN_SECONDS) >= _WARN_AGAIN_SECONDS:
            self._warned_at[topic] = now
            self._logger.warning(message, *args)

    async def retry_until_available(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the store answers. Only for calls that are safe to repeat: all of them are."""
        while True:
            try:
                result = await call()
            except StoreUnavailable as error:
                await asyncio.sleep(self.failed(error))
                continue
            except StoreError:
                raise
            self.recovered()
            return result

    async def persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The same for calls whose failure would leave a run stored as this worker's with nobody to go on with it:
        repeated after whatever they raise (tests/lifecycle/test_commits_that_raise.py)."""
        while True:
            try:
                return await self.retry_until_available(call)
            except StoreLost:
                raise  # for good: the worker stops, and the run belongs to the one that comes after it
            except Exception as error:
                self.warn_rarely("unforeseen", "a call of the store failed in an unforeseen way: %s", describe(error))
                await asyncio.sleep(self.failed(error))
