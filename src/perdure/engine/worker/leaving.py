"""Leaving memory: whatever leaves is given back to the store once, with the reason if it has one."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence

from perdure import limits
from perdure.engine.attempts import StepRunner
from perdure.engine.clock import Timekeeper
from perdure.engine.outages import Outages
from perdure.engine.reporting import log_parked
from perdure.engine.resident import Resident
from perdure.engine.worker.deadlines import Deadlines
from perdure.engine.worker.lifetime import Lifetime
from perdure.engine.worker.probation import Probation
from perdure.engine.worker.requests import SweepRequests
from perdure.engine.worker.residents import Residents
from perdure.errors import PerdureError, describe, written_out
from perdure.kernel.journal import Record
from perdure.store.model import Acquittal, Release, RunKey
from perdure.store.protocol import Store

logger = logging.getLogger("perdure.worker")


class Leaving:
    """`finished` hears of each run that leaves, with its last record if it ended."""

    def __init__(
        self,
        worker_id: str,
        store: Store,
        clock: Timekeeper,
        residents: Residents,
        deadlines: Deadlines,
        attempts: StepRunner,
        probation: Probation,
        requests: SweepRequests,
        outages: Outages,
        lifetime: Lifetime,
        finished: Callable[[str, Record | None], None],
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._clock = clock
        self._residents = residents
        self._deadlines = deadlines
        self._attempts = attempts
        self._probation = probation
        self._requests = requests
        self._outages = outages
        self._lifetime = lifetime
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._releases: list[Release] = []
        #: Runs on their way back into the store, with the epoch under which they are given back.
        self._releasing: dict[RunKey, int] = {}
        #: Runs that were claimed and turned out to have nothing to do.
        self._acquittals: list[Acquittal] = []

    def drop(self, resident: Resident, last: Record | None = None) -> None:
        """Out of memory, for any reason; callers who wait for it here are told, with its last record if it ended."""
        self._residents.forget(resident)
        if self._probation.members:
            self.cleared(resident)
        self._deadlines.set(resident.key, None)
        if resident.attempts:
            self._attempts.cancel_all(resident)
        resident.run.close()
        self._finished(resident.id, last)

    def evict(self, resident: Resident) -> None:
        """Room is needed: an idle run goes back to the store, which wakes it when there is something for it."""
        deadline = resident.run.pending.next_deadline()
        if resident.run.pending.has_active_steps():
            # A worker that drains begins no more steps, so the run only looks idle: another has to work on it
            # (tests/lifecycle/test_evicted_while_draining.py).
            deadline = limits.AT_ONCE
        self.drop(resident)
        self.give_back(
            Release(
                key=resident.key,
                epoch=resident.epoch,
                seen_item=resident.arrivals.last,
                ready_at=deadline if deadline is not None else limits.NEVER,
            )
        )

    # -- parking -------------------------------------------------------------------------------------------------

    def park(self, resident: Resident, error: BaseException) -> None:
        """A turn ended with an error, or cannot be stored: a person has to look at the run."""
        self.drop(resident)
        self.park_stored(resident.key, resident.epoch, resident.id, reason_of(error))

    def park_if_here(self, resident: Resident, error: BaseException) -> None:
        if resident.is_current:
            self.park(resident, error)

    def park_stored(self, key: RunKey, epoch: int, run_id: str, reason: str) -> None:
        """The same for a run that is not in memory."""
        reason = written_out(reason)
        self._lifetime.spawn(lambda: self._park_until_done(key, epoch, run_id, reason))

    async def _park_until_done(self, key: RunKey, epoch: int, run_id: str, reason: str) -> None:
        if await self._outages.persist(lambda: self._store.park(key, epoch, reason, self._clock.now())):
            log_parked(run_id, reason)
        self._finished(run_id, None)
        self._requests.claim()  # what it held may be for another run here

    # -- giving back ---------------------------------------------------------------------------------------------

    def give_back(self, release: Release) -> None:
        """This worker no longer works on the run. Those of the same moment go together."""
        self._releases.append(release)
        self._releasing[release.key] = release.epoch
        if len(self._releases) == 1:
            self._loop.call_soon(self._send_releases)

    def is_giving_back(self, key: RunKey, epoch: int) -> bool:
        return self._releasing.get(key) == epoch

    def _send_releases(self) -> None:
        releases, self._releases = self._releases, []
        if releases:
            self._lifetime.spawn(lambda: self._release(releases))

    async def _release(self, releases: Sequence[Release]) -> None:
        try:
            await self._outages.retry_until_available(lambda: self._store.release(self._worker_id, releases))
        except Exception as error:
            logger.critical("%d runs could not be given back, trying again one by one", len(releases), exc_info=error)
            for release in releases:
                await self._outages.persist(functools.partial(self._store.release, self._worker_id, [release]))
        for release in releases:
            if self._releasing.get(release.key) == release.epoch:
                del self._releasing[release.key]
        self._requests.claim()  # something may have arrived for them meanwhile

    # -- suspects ------------------------------------------------------------------------------------------------

    def cleared(self, resident: Resident) -> None:
        """The run has shown that it does not kill its worker, or has left."""
        if self._probation.clear(resident.key):
            self._requests.claim()

    def rests(self, resident: Resident) -> None:
        """A run waits, and has not moved since it was claimed: if this worker dies, another run is to blame."""
        resident.claimed_seq = 0
        self.cleared(resident)
        self._acquittals.append(Acquittal(key=resident.key, epoch=resident.epoch, recoveries=0))
        if len(self._acquittals) == 1:
            self._loop.call_soon(self._send_acquittals)  # those of the same moment go together

    def _send_acquittals(self) -> None:
        acquittals, self._acquittals = self._acquittals, []
        if acquittals:
            self._lifetime.spawn(functools.partial(self._acquit, acquittals))

    async def _acquit(self, acquittals: Sequence[Acquittal]) -> None:
        await self._outages.persist(lambda: self._store.acquit(self._worker_id, acquittals))

    def send_all(self) -> None:
        """What was gathered goes now: the worker closes."""
        self._send_acquittals()
        self._send_releases()


def reason_of(error: BaseException) -> str:
    return written_out(f"{type(error).__name__}: {error}") if isinstance(error, PerdureError) else describe(error)
