"""The standing sweep: frees the runs of dead workers, claims what is due, and listens for news.

Start-up has no recovery of its own: it is the first sweep. Hints only make a sweep come earlier; if every one of
them were lost, the next sweep would still find everything.
"""

from __future__ import annotations

import asyncio
import logging
import random

from perdure import limits
from perdure.engine.clock import Clock
from perdure.engine.outages import Outages
from perdure.engine.settings import Settings
from perdure.engine.worker import Worker
from perdure.errors import StoreError
from perdure.store.base import Store

logger = logging.getLogger("perdure.recovery")


class Recovery:
    """One task per worker that keeps runs moving."""

    def __init__(self, worker: Worker, store: Store, settings: Settings, clock: Clock, rng: random.Random) -> None:
        self._worker = worker
        self._store = store
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._hint = asyncio.Event()
        self._cursor = 0
        self._outages = Outages(logger)
        self._reap_at = 0.0

    def hint(self) -> None:
        """Something may have changed: look now rather than at the next interval."""
        self._hint.set()

    async def run(self) -> None:
        """Sweep until cancelled. Store faults are waited out."""
        while True:
            try:
                await self._sweep()
                self._outages.over()
                wait = self._settings.sweep_interval * self._rng.uniform(0.8, 1.2)
            except StoreError as error:
                wait = self._outages.failed(error)
            await self._wait(wait)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._hint.wait()
        except TimeoutError:
            pass
        self._hint.clear()

    async def _sweep(self) -> None:
        # News first: its cursor must be taken before the first claim, or an item between the two would be missed.
        await self._read_news()
        loop = asyncio.get_running_loop()
        if loop.time() >= self._reap_at:
            self._reap_at = loop.time() + self._settings.sweep_interval
            now = self._clock.now()
            await self._store.renew(self._worker.id, now)
            await self._store.reap(self._worker.id, now)
        await self._claim()

    async def _read_news(self) -> None:
        news = await self._store.news(self._worker.id, self._cursor)
        self._cursor = news.cursor
        for delivery in news.items:
            self._worker.deliver(delivery)
        for key in news.ended:
            self._worker.ended(key)

    async def _claim(self) -> None:
        """Claim until nothing is due or memory is full. A contended or empty batch is not the end by itself."""
        while (room := self._worker.coordinator.room) > 0:
            rows = await self._store.claim(self._worker.id, self._clock.now(), min(room, limits.CLAIM_BATCH_MAX))
            if not rows:
                return
            loaded = await self._store.load([row.key for row in rows])
            done = asyncio.get_running_loop().create_future()
            # A run's code must not run inside a task of the host loop (see kernel.loop).
            asyncio.get_running_loop().call_soon(self._admit, loaded, done)
            await done

    def _admit(self, loaded: object, done: asyncio.Future[None]) -> None:
        try:
            for one in loaded:  # type: ignore[attr-defined]
                self._worker.admit(one)
        finally:
            if not done.done():
                done.set_result(None)
