"""Deadlines of resident runs on one host timer. Late is fine; early never happens."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from perdure.engine.clock import Timekeeper
from perdure.store.model import RunKey


class Deadlines:
    """Calls `due(key)` for each run whose deadline has come, at most once for each `set`."""

    def __init__(self, clock: Timekeeper, resolution: float, due: Callable[[RunKey], None]) -> None:
        self._clock = clock
        self._resolution = resolution
        self._due = due
        self._heap: list[tuple[int, RunKey]] = []
        self._current: dict[RunKey, int] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._handle_at = 0

    def set(self, key: RunKey, deadline: int | None) -> None:
        """The run's earliest deadline is now this one; None: it has none."""
        if deadline is None:
            self._current.pop(key, None)
            return
        if self._current.get(key) == deadline:
            return
        self._current[key] = deadline
        heapq.heappush(self._heap, (deadline, key))
        if self._handle is None or deadline < self._handle_at:
            self._schedule()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._current.clear()
        self._heap.clear()

    def _schedule(self, pause: float = 0.0) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        heap = self._heap
        while heap and self._current.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        if not heap:
            return
        self._handle_at = heap[0][0]
        at = self._handle_at
        if pause:
            at = max(at, self._clock.now() + round(pause * 1_000_000))
        self._handle = self._clock.call_at(at, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._clock.now()
        heap = self._heap
        while heap and heap[0][0] <= now:
            deadline, key = heapq.heappop(heap)
            if self._current.get(key) == deadline:
                del self._current[key]
                self._due(key)
        # Those due within the resolution of each other come together, a little late.
        self._schedule(pause=self._resolution)
