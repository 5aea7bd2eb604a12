"""What an engine has from `open` to `close`: a registered worker and its sweep, the client, and who waits for what.

The store is opened before and closed after it, by the engine. A worker that others took for dead is replaced by one
with a new id and nothing in memory; the rest stays. Until that one is registered the engine is one without a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from perdure import limits
from perdure.admin.listener import Listener
from perdure.engine.client import Client
from perdure.engine.clock import FollowingClock
from perdure.engine.outages import Outages
from perdure.engine.renewal import ClientClock, renew
from perdure.engine.signals import Signals
from perdure.engine.sweep import Sweep
from perdure.engine.tenure import Tenure
from perdure.engine.waiting import Waiters
from perdure.engine.worker import Worker
from perdure.errors import StoreLost, StoreUnavailable, describe
from perdure.store.model import Delivery, RunRow, WorkerInfo

if TYPE_CHECKING:
    from perdure.engine.engine import Engine

logger = logging.getLogger("perdure.engine")

#: What closing still waits for a store that has not answered once.
_STORE_HANGS_SECONDS = 1.0
#: Why a worker is let go of.
_TAKEN_FOR_DEAD = "was taken for dead, and its runs were given to others"
_NOT_RENEWED = "could not renew its lease, so others may have its runs"


class EngineParts:
    """See the module docstring. One that has ended does not begin again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._clock = engine.clock
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.signals = Signals()
        self.worker: Worker | None = None
        #: Who is registered, or is about to be.
        self._info: WorkerInfo | None = None
        self.sweeper: asyncio.Task[None] | None = None
        self.sweep: Sweep | None = None
        self._tenure: Tenure | None = None
        #: The id of a worker that was let go of, until its runs are free.
        self._former: str | None = None
        self.unwatch: Callable[[], None] | None = None
        self._ending = False
        self._store_answers = True
        self.waiters: Waiters
        self.client: Client

    async def begin(self, *, with_worker: bool, name: str) -> None:
        """Register the worker, start the sweep."""
        engine = self._engine
        if with_worker:
            self._info = self._new_info(name)
            await self._store.register_worker(self._info, engine.settings.terms)
            await self._begin_worker(self._info)
        client_clock = ClientClock(self._store, self._clock)
        if not with_worker:
            with contextlib.suppress(StoreUnavailable):  # the first call asks again
                await client_clock.look()
        self.waiters = Waiters(self._store, self._clock, self.signals, self.worker)
        self.client = Client(
            self._store, engine.settings.max_pending_events, self._clock, client_clock, engine.rng, self.worker,
            self.waiters, engine.admin, engine.listener,
        )  # fmt: skip
        if with_worker:
            self._start_sweeping()
        self.unwatch = self._store.watch(self._changed)

    def _new_info(self, name: str) -> WorkerInfo:
        worker_id = uuid.UUID(int=self._engine.rng.getrandbits(128), version=4).hex
        return WorkerInfo(
            id=worker_id, name=name, host=socket.gethostname(), pid=self.pid, started_at=self._clock.now(),
            release=limits.RELEASE, definitions=self._engine.registry.served(),
        )  # fmt: skip

    async def _begin_worker(self, info: WorkerInfo) -> None:
        """Make the worker that was registered, and its sweep."""
        engine, rng = self._engine, self._engine.rng
        outages = Outages(logger)
        if isinstance(self._clock, FollowingClock):
            # Before anything is done by a clock that may be days off; the sweep looks at the answer itself.
            await outages.retry_until_available(lambda: renew(self._store, info.id, self._clock))
        worker = Worker(
            info.id, self._store, engine.registry, engine.settings, self._clock, rng,
            finished=self.signals.ended, lost=self._store_lost,
        )  # fmt: skip
        # Before any run can be started here: an item that arrives between now and the first sweep is then news.
        news = await outages.retry_until_available(lambda: self._store.news(info.id, 0))
        worker.requests.cursor = news.cursor
        # Random numbers of its own: how often it sweeps must not decide what runs draw in a test with a fixed seed.
        own = random.Random(rng.getrandbits(64))
        self.sweep = Sweep(worker, self._store, engine.settings, self._clock, own, self._introduce_again)
        self.worker = worker
        self._tenure = Tenure(self._store, worker, engine.settings.lease, self._lease_over)
        engine.prepare(worker)
        self._tenure.look()

    async def _introduce_again(self) -> None:
        """Tell the others if workflows were defined since the worker was registered."""
        info, definitions = self._info, self._engine.registry.served()
        if info is not None and definitions != info.definitions:
            self._info = msgspec.structs.replace(info, definitions=definitions)
            await self._store.register_worker(self._info, self._engine.settings.terms)

    def _start_sweeping(self) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() and not self._ending:
                # Not by us: an event loop that ends cancels all its tasks, and so does many a framework. If this one
                # goes on after all, so does the engine (tests/steps/test_cancelled_by_strangers.py).
                logger.warning(
                    "the tasks of this engine were cancelled by something else than perdure, such as the end of the "
                    "event loop. No run fails by it; if the loop goes on, the engine does so in %g s. "
                    "Close the engine before the loop ends: `async with Engine(...)`.",
                    limits.CANCELLED_BY_OTHERS_SECONDS,
                )
                task.get_loop().call_later(limits.CANCELLED_BY_OTHERS_SECONDS, again)
            else:
                _report_death(task)

        def again() -> None:
            if not self._ending:
                self._start_sweeping()

        self.sweeper = asyncio.create_task(self._keep_sweeping(), name="perdure-sweep")
        self.sweeper.add_done_callback(ended)
        if self.worker is not None:
            self.worker.swept_by(self.sweeper)

    async def _keep_sweeping(self) -> None:
        """Sweep until cancelled, or until the files of the store are gone; by another worker whenever others have found
        the one before it dead."""
        while True:
            if self.sweep is None and not await self._begin_again():
                return
            sweep, began = self.sweep, self.loop.time()
            if sweep is not None:  # its lease may be over before it has begun: the process was stopped meanwhile
                await sweep.run()
                if not sweep.is_over:
                    return
                if self.sweep is sweep:
                    self._let_worker_go(
                        _TAKEN_FOR_DEAD
                        if sweep.moved_to is None
                        else f"has nothing left to do here: everything in this store goes to {sweep.moved_to}"
                    )
            # Not more often than it sweeps, should a store take every worker for dead at once.
            await asyncio.sleep(began + self._engine.settings.sweep_interval - self.loop.time())

    # -- a worker that others took for dead --------------------------------------------------------------------------

    def _lease_over(self, was_taken: bool) -> None:
        """The worker's own judgement: nobody could be told that it lives, so others may have its runs."""
        if self.sweep is not None and self.worker is not None and not self._ending:
            self._former = self.worker.id
            self.sweep.end()
            self._let_worker_go(_TAKEN_FOR_DEAD if was_taken else _NOT_RENEWED)

    async def _free_former_runs(self) -> None:
        """What is still stored as the former worker's need not wait for the end of a lease that nobody renews."""
        if self._former is not None:
            await self._store.unregister_worker(self._former, self._clock.now())
            self._former = None

    def _let_worker_go(self, why: str) -> None:
        """Let go of everything the worker has, as a crash would. Callers who wait for its runs look in the store from
        now on, and new runs are left there for any worker."""
        worker, info = self.worker, self._info
        if worker is None or info is None:
            return
        if self._tenure is not None:
            self._tenure.end()
        self._info = self._new_info(info.name)
        logger.warning(
            "the worker %s %s. It lets go of all %d that it had in memory and goes on under the new id %s.",
            worker.id, why, len(worker.residents), self._info.id,
        )  # fmt: skip
        self.worker = self.sweep = self.client.worker = self.waiters.worker = None
        worker.disowned()

    async def _begin_again(self) -> bool:
        """Register the worker that takes the place of the one let go of, however long the store needs for that. False:
        its files are gone."""
        info, outages = self._info, Outages(logger)
        if info is None:
            raise AssertionError("only an engine with a worker sweeps")
        while True:
            try:
                await self._free_former_runs()
                await self._store.register_worker(info, self._engine.settings.terms)
                await self._begin_worker(info)
            except StoreLost as error:
                logger.critical("no worker can begin again here: %s", describe(error))
                self._store_lost(error)
                return False
            except Exception as error:
                await asyncio.sleep(outages.failed(error))
                continue
            break
        self.client.worker = self.waiters.worker = self.worker
        if self.worker is not None and self.sweeper is not None:
            self.worker.swept_by(self.sweeper)
        return True

    # -- hints -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        if self._tenure is not None:
            self._tenure.look()
        self.hint()
        if self.worker is None:  # a worker tells of its own runs; without one every end is somebody else's
            self.signals.look_again()

    def hint(self) -> None:
        """Make the sweep look at the store now."""
        if not self._ending and self.sweep is not None:
            self.sweep.hint()

    def _store_lost(self, error: StoreLost) -> None:
        self.waiters.lost = error
        self._engine.lost.set()

    # -- the end ---------------------------------------------------------------------------------------------------

    async def end(self, grace: float) -> None:
        """Drain the worker and unregister it. Ends in bounded time."""
        self._ending = True
        self.waiters.closed = True
        if self._tenure is not None:
            self._tenure.end()
        if self.worker is not None:
            self.worker.begin_nothing_more()
        if self.unwatch is not None:
            self.unwatch()
        if self.sweeper is not None:
            self.sweeper.cancel()
            await asyncio.wait({self.sweeper}, timeout=self._clock.poll(limits.CLOSE_SECONDS_MAX))
        if self.worker is not None:
            await self._close_worker(self.worker, grace)
        if self._info is not None:
            await self._unregister(self._info)

    async def _close_worker(self, worker: Worker, grace: float) -> None:
        # Only if it takes a while: most workers are gone before anybody could have seen that they go.
        telling = asyncio.ensure_future(self._tell_leaving(worker)) if worker.attempts.running else None
        try:
            await worker.close(grace)
        finally:
            if telling is not None:
                telling.cancel()

    async def _tell_leaving(self, worker: Worker) -> None:
        try:
            await self._store.drain_worker(worker.id, self._clock.now())
        except Exception as error:  # it is for people to see, and nothing depends on it
            logger.info("the others could not be told that this worker leaves: %s", describe(error))

    async def answered(self, leaving: Awaitable[None]) -> None:
        """Wait for the store, not for ever: a disk that hangs must not keep the program from ending
        (tests/lifecycle/test_close_is_bounded.py)."""
        seconds = limits.CLOSE_SECONDS_MAX if self._store_answers else _STORE_HANGS_SECONDS
        limit = asyncio.timeout(self._clock.poll(seconds))
        try:
            async with limit:
                await leaving
        except TimeoutError:
            if not limit.expired():
                raise
            self._store_answers = False
            raise StoreUnavailable(
                f"the store did not answer for {seconds:g} seconds while the engine was closed. What was acknowledged "
                "is recorded; the next worker recovers the runs that this one had."
            ) from None

    async def _unregister(self, worker: WorkerInfo) -> None:
        try:
            await self.answered(self._store.unregister_worker(worker.id, self._clock.now()))
        except StoreLost:
            if not self._engine.lost.is_set():  # otherwise it was said, and there is nothing to leave in order
                raise

    def abandon(self) -> None:
        """Let go of everything at once, as a crash would; nothing more is written."""
        self._ending = True
        if self._tenure is not None:
            self._tenure.end()
        if self.unwatch is not None:
            self.unwatch()
        if self.sweeper is not None:
            self.sweeper.cancel()
        if self.worker is not None:
            self.worker.abandon()


class EngineListener(Listener):
    """Tells the worker of an engine what people changed through its `admin`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def check(self) -> None:
        self._engine.check_usable()

    def _worker(self) -> Worker | None:
        """The one that is at work now."""
        parts = self._engine.parts
        return None if parts is None else parts.worker

    def deliver(self, delivery: Delivery) -> None:
        worker = self._worker()
        if worker is not None:
            worker.inbound.deliver(delivery)

    def spread(self) -> bool:
        worker = self._worker()
        if worker is not None:
            worker.requests.spread_published()
        return worker is not None

    def ended(self, row: RunRow) -> None:
        worker, parts = self._worker(), self._engine.parts
        if worker is not None and row.owner == worker.id:
            worker.inbound.ended(row.key)
        if parts is not None:
            parts.signals.ended(row.id, None)

    def look(self) -> None:
        if self._engine.parts is not None:
            self._engine.parts.hint()

    def place_of(self, row: RunRow, location: str) -> str | None:
        worker = self._worker()
        return worker.place_of(row.key, location) if worker is not None and row.owner == worker.id else None


def _report_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the sweep of this worker ended; runs will no longer be recovered", exc_info=error)
