"""Renewal: a worker says that it lives, hears whether the others agree, and sets its clock by the store's."""

from __future__ import annotations

from perdure.engine.clock import FollowingClock, Timekeeper
from perdure.store.protocol import Store


async def renew(store: Store, worker_id: str, clock: Timekeeper) -> bool:
    """False: the worker is not registered any more, and whatever it still does would be refused.

    If the user gave no clock and the store tells its time, the worker lives by that from now on: clocks that differ
    would let one worker claim what another one is not to do for an hour (FAULTS C9).
    """
    if not isinstance(clock, FollowingClock):
        return (await store.renew(worker_id, clock.now())).alive
    began = clock.moment()
    renewed = await store.renew(worker_id, clock.now())
    if renewed.now is not None:
        clock.follow(began, renewed.now)
    return renewed.alive
