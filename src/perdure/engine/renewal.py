"""Renewal: a worker says that it lives, hears whether the others agree, and sets its clock by the store's. So does an
engine without a worker, whenever somebody uses it."""

from __future__ import annotations

import time

from perdure import limits
from perdure.engine.clock import FollowingClock, Timekeeper
from perdure.store.model import Renewed
from perdure.store.protocol import Store


async def renew(store: Store, worker_id: str, clock: Timekeeper) -> Renewed:
    """Not `alive`: the worker is not registered any more, and whatever it still does would be refused.

    If the user gave no clock and the store tells its time, the worker lives by that from now on: clocks that differ
    would let one worker claim what another one is not to do for an hour (FAULTS C9).
    """
    if not isinstance(clock, FollowingClock):
        return await store.renew(worker_id, clock.now())
    began = clock.moment()
    renewed = await store.renew(worker_id, clock.now())
    if renewed.now is not None:
        clock.follow(began, renewed.now)
    return renewed


class ClientClock:
    """Of an engine without a worker. Its runs begin, and its events are sent, at the times that it writes: a clock that
    is five minutes ahead would make the first timer of each run late by as much (tests/fleet/test_clocks.py)."""

    def __init__(self, store: Store, clock: Timekeeper) -> None:
        self._store = store
        self._clock = clock if isinstance(clock, FollowingClock) else None
        self._looked_at = -limits.CLIENT_CLOCK_SECONDS

    async def look(self) -> None:
        """Follow the store's time, if it has one and was not asked of late. Raises `StoreUnavailable`."""
        clock = self._clock
        if clock is None or time.monotonic() - self._looked_at < limits.CLIENT_CLOCK_SECONDS:
            return
        began = clock.moment()
        renewed = await self._store.renew("", clock.now())
        self._looked_at = time.monotonic()
        if renewed.now is None:
            self._clock = None
        else:
            clock.follow(began, renewed.now)
