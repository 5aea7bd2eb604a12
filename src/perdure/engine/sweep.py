"""The standing sweep: frees the runs of dead workers, claims what is due, and listens for news.

Start-up has no recovery of its own: it is the first sweep. Hints only make a sweep come earlier; if every one of
them were lost, the next sweep would still find everything.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from perdure import limits
from perdure.engine.clock import Timekeeper
from perdure.engine.outages import Outages
from perdure.engine.renewal import renew
from perdure.engine.settings import Settings
from perdure.engine.worker import Worker
from perdure.errors import StoreError, StoreLost
from perdure.store.model import CLAIMABLE, Loaded, RunRow
from perdure.store.protocol import Store

logger = logging.getLogger("perdure.recovery")

#: Between two sweeps of a store that takes an interval for one, as a part of the interval.
_PAUSE_PART = 0.2


class Sweep:
    """One task per worker that keeps runs moving."""

    def __init__(
        self,
        worker: Worker,
        store: Store,
        settings: Settings,
        clock: Timekeeper,
        rng: random.Random,
        introduce_again: Callable[[], Awaitable[None]],
    ) -> None:
        self._worker = worker
        self._store = store
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._introduce_again = introduce_again
        self._requests = worker.requests
        self._outages = Outages(logger)
        self._reap_at = 0.0
        self._tidy_at = 0.0
        #: A call of the last sweep was not answered: a claim among them may have taken runs without our knowing.
        self._unsure = False
        #: Others found this worker dead and took its runs. It must claim nothing more: the next one is another worker.
        self.is_over = False
        #: Where everything in the store goes to, if that is why.
        self.moved_to: str | None = None

    def end(self) -> None:
        """Its worker has lost its right to the runs: claim nothing more, and return."""
        self.is_over = True
        self.hint()

    def hint(self) -> None:
        """Something may have changed: look now rather than at the next interval."""
        self._requests.wake.set()

    async def run(self) -> None:
        """Sweep until cancelled. Store faults are waited out, and so is whatever else goes wrong: without the sweep
        runs that were let go of would never be found again (tests/lifecycle/test_sweep_goes_on.py). Only a store whose
        files are gone is not waited for: it will never be back (tests/lifecycle/test_lost_store.py). Returns then, and
        when it `is_over`."""
        while not self.is_over:
            try:
                # Until it is over: a sweep that a stranger cancels may have claimed runs without knowing which.
                unsure, self._unsure = self._unsure, True
                await self._sweep(unsure)
                if self.is_over:
                    return
                self._unsure = False
                self._outages.recovered()
                wait = self._until_next()
            except StoreLost as error:
                self._worker.store_lost(error)
                return
            except StoreError as error:
                wait = self._outages.failed(error)
            except Exception as error:
                logger.critical("the sweep of this worker failed in an unforeseen way, trying again", exc_info=error)
                wait = self._outages.failed(error)
            await self._wait(wait)

    def _until_next(self) -> float:
        """Until it is time to look for the dead again, also if sweeps were hinted at meanwhile: otherwise a take-over
        would take up to two intervals (test_every_standing_sweep_looks_for_dead_workers)."""
        left = self._reap_at - asyncio.get_running_loop().time()
        return max(left, self._settings.sweep_interval * _PAUSE_PART)

    async def _wait(self, seconds: float) -> None:
        wake, poll = self._requests.wake, self._clock.poll(seconds)
        # Not `asyncio.timeout`: it cancels the task that it is in, and a sweep that is being cancelled means that the
        # host ends (tests/steps/test_cancelled_by_strangers.py::test_sweep_never_cancels_itself).
        timer = None if poll is None else asyncio.get_running_loop().call_later(poll, wake.set)
        try:
            await wake.wait()
        finally:
            if timer is not None:
                timer.cancel()
        wake.clear()

    async def _sweep(self, unsure: bool) -> None:
        # News first: its cursor must be taken before the first claim, or an item between the two would be missed.
        await self._read_news()
        loop = asyncio.get_running_loop()
        if loop.time() >= self._reap_at:
            self._reap_at = loop.time() + self._settings.sweep_interval * self._rng.uniform(0.8, 1.2)
            now = self._clock.now()
            renewed = await renew(self._store, self._worker.id, self._clock)
            if not renewed.alive:
                self.is_over, self.moved_to = True, renewed.moved_to
                return
            await self._introduce_again()
            await self._store.reap(self._worker.id, now)
            await self._tidy_events(now)
            self._requests.spread = True
        if self._requests.spread:
            await self._spread()
        await self._serve_requests()
        if unsure:
            await self._find_strays()
        await self._claim()

    async def _find_strays(self) -> None:
        """Load runs that are stored as ours and that nothing under way will bring into memory, also those of which
        only an older claim is there: it can no longer commit (tests/races/test_stale_claim.py)."""
        held = await self._store.held(self._worker.id)
        residents = self._worker.residents
        missing = await self._store.load([key for key, epoch in held.items() if not residents.owns(key, epoch)])
        strays = [
            one.run.key
            for one in missing
            if not residents.owns(one.run.key, one.run.epoch) and not self._worker.expects(one.run.id)
        ]
        if strays:
            # Read again: what was read before may be from a time when an answer was still under way.
            await self._admit_all(await self._store.load(strays))

    async def _read_news(self) -> None:
        since, self._requests.missed_since = self._requests.missed_since, None
        try:
            news = await self._store.news(self._worker.id, self._requests.cursor if since is None else since)
            for delivery in news.items:
                self._worker.inbound.deliver(delivery)
            for key in news.ended:
                self._worker.inbound.ended(key)
        except BaseException:
            if since is not None:
                self._requests.reread_news(since)
            raise
        # Only now: what was not handled is read again. Moved before, an item would be lost with whatever failed
        # (tests/lifecycle/test_sweep_goes_on.py).
        self._requests.cursor = news.cursor

    async def _spread(self) -> None:
        """Go on with giving published events to all who wait, a part at a time; also what others left unfinished."""
        self._requests.spread = False
        spread = await self._store.spread(self._clock.now(), limits.SPREAD_RUNS_MAX, self._settings.max_pending_events)
        for delivery in spread.deliveries:
            self._worker.inbound.deliver(delivery)
        if spread.more:
            self._requests.spread_published()

    async def _tidy_events(self, now: int) -> None:
        """Remove events that were kept long enough, a part at a time."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._tidy_at:
            return
        before = now - round(self._settings.event_retention * 1_000_000)
        removed = await self._store.tidy_events(now, before, limits.TIDY_ROWS_MAX)
        # A full part: there is probably more, and others may use the store meanwhile.
        more = removed >= limits.TIDY_ROWS_MAX
        self._tidy_at = loop.time() + (0.0 if more else limits.TIDY_SECONDS)
        if removed:
            self._requests.claim()

    async def _serve_requests(self) -> None:
        residents = self._worker.residents
        while self._requests.reread:
            key = next(iter(self._requests.reread))
            inbox = await self._store.inbox(key, limits.NEVER)
            self._requests.reread.discard(key)
            residents.reread(key, inbox)
        while self._requests.adopt:
            run_id = next(iter(self._requests.adopt))
            row = await self._store.get(run_id)
            self._requests.adopt.pop(run_id, None)
            if row is None or row.owner != self._worker.id or row.status not in CLAIMABLE:
                continue
            if residents.owns(row.key, row.epoch) or self._worker.expects(run_id):
                continue
            await self._admit_all(await self._store.load([row.key]))

    async def _claim(self) -> None:
        """Claim until nothing is due or memory is full; then, as far as there is room, what will be due before long, so
        that it is in memory when its time comes."""
        residents, again = self._worker.residents, False
        while (room := residents.room) > 0 and self._may_claim():
            if not await self._claim_due(self._clock.now(), room, self._worker.probation.wanted, again):
                break
            again = True
        self._worker.probation.close_group()
        again = False
        while (room := residents.room_before(horizon := self._worker.waiting.horizon(self._clock.now()))) > 0:
            if not self._may_claim() or not await self._claim_due(horizon, room, 0, again):
                break
            again = True

    def _may_claim(self) -> bool:
        """Not once the lease is over: after a process was stopped, this may run before the worker has judged itself
        (`Tenure`), and what it claims it would begin and lose a moment later."""
        until = self._store.trusted_until(self._worker.id)
        return not self.is_over and (until is None or time.monotonic() < until)

    async def _claim_due(self, at: int, room: int, suspects_max: int, again: bool) -> bool:
        unknown = self._worker.loading.unknown_workflows()
        worker, probation = self._worker.id, self._worker.probation
        limit = min(room, limits.CLAIM_BATCH_MAX)
        suspects_max = min(suspects_max, limit)
        rows = await self._store.claim(worker, at, limit, suspects_max, unknown, probation.trusted, again=again)
        if rows:
            if any(map(probation.is_suspect, rows)) and (survivors := probation.take_survivors()):
                await self._store.acquit(worker, survivors)  # before the next ones may kill this worker
            await self._load_claimed(rows)
        return bool(rows)

    async def _load_claimed(self, rows: Sequence[RunRow]) -> None:
        await self._admit_all(await self._store.load([row.key for row in rows]))

    async def _admit_all(self, loaded: Sequence[Loaded]) -> None:
        """Replay from a plain callback: a run's code must not run inside a task of the host loop."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def admit() -> None:
            try:
                for one in loaded:
                    self._worker.loading.admit(one)
            finally:
                if not done.done():
                    done.set_result(None)

        asyncio.get_running_loop().call_soon(admit)
        await done
