"""The worker as the rest of the engine sees it: its parts, put together."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from perdure.authoring.registry import Registry
from perdure.engine.attempts import StepRunner
from perdure.engine.clock import Timekeeper
from perdure.engine.fast_path import fast_path_of
from perdure.engine.linting import Linter
from perdure.engine.outages import Outages
from perdure.engine.resident import Resident
from perdure.engine.settings import Settings
from perdure.engine.turns import Turns
from perdure.engine.watchdog import Watchdog
from perdure.engine.worker.committing import Committing
from perdure.engine.worker.deadlines import Deadlines
from perdure.engine.worker.inbound import Inbound
from perdure.engine.worker.leaving import Leaving
from perdure.engine.worker.lifetime import Lifetime
from perdure.engine.worker.loading import Loading
from perdure.engine.worker.probation import Probation
from perdure.engine.worker.pump import Pump
from perdure.engine.worker.requests import SweepRequests
from perdure.engine.worker.residents import Residents
from perdure.engine.worker.runs import RunFactory
from perdure.engine.worker.starting import Start, Starting
from perdure.engine.worker.waiting import Waiting
from perdure.errors import StoreLost, StoreUnavailable, describe
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.eventloop.hosting import TurnMonitor
from perdure.kernel.journal import Record
from perdure.store.model import RunKey
from perdure.store.protocol import Store

logger = logging.getLogger("perdure.worker")

#: What is waited at least for results to be stored and runs to be given back, however short the grace.
_LEAVING_SECONDS_MIN = 0.5
#: How often a worker that leaves looks for runs that it has done with.
_HAND_OVER_SECONDS = 0.02


class Worker:
    """Everything a process does for the runs it owns. `finished` hears the last record of each that ends or parks, and
    `lost` that the files of the store are gone.

    The parts are public: the sweep and the clients use `residents`, `inbound`, `loading`, `requests`, and tests stand
    in for `attempts`, `runs` and `turns`.
    """

    def __init__(
        self,
        worker_id: str,
        store: Store,
        registry: Registry,
        settings: Settings,
        clock: Timekeeper,
        rng: random.Random,
        finished: Callable[[str, Record | None], None],
        lost: Callable[[StoreLost], None],
    ) -> None:
        self.id = worker_id
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._lifetime = Lifetime(self._loop)
        outages = Outages(logger)
        monitor = TurnMonitor()
        self._linter = Linter(registry, active=settings.lint == "warn")
        self.watchdog = Watchdog(monitor, settings.turn_warning, settings.turn_limit)
        #: What the sweep should do besides its round.
        self.requests = SweepRequests()
        #: Runs that may have killed their workers.
        self.probation = Probation(settings.recoveries_max, self._loop.time)
        self.residents = Residents(settings.residents_max)
        self.runs = RunFactory(registry, settings, self._linter, monitor)
        self.turns = Turns(worker_id, settings, rng)
        self._deadlines = Deadlines(clock, settings.timer_resolution, self.residents.mark_due)
        self.attempts = StepRunner(
            clock, settings.steps_max, settings.step_threads, settings.step_processes, rng,
            self.residents.mark_ready, self._burst_is_over, self._park,
        )  # fmt: skip
        self.attempts.fast_path = fast_path_of(self.attempts, self.turns, self.residents, self._deadlines)
        self.leaving = Leaving(
            worker_id, store, clock, self.residents, self._deadlines, self.attempts, self.probation, self.requests,
            outages, self._lifetime, finished,
        )  # fmt: skip
        self.inbound = Inbound(worker_id, self.residents, self.leaving, self.requests)
        self.waiting = Waiting(clock, settings.sweep_interval, self.residents, self._deadlines, self.leaving)
        self.loading = Loading(
            worker_id, registry, settings.recoveries_max, self.runs, self.residents, self.leaving, self.probation,
            self.requests, self.watchdog, outages, self._lifetime,
        )  # fmt: skip
        self._committing = Committing(
            store, registry, self.runs, self.attempts, self.loading, self.leaving, self.inbound, self.waiting,
            self.probation, self.requests, outages, self._lifetime, finished, self.store_lost,
        )  # fmt: skip
        self._starting = Starting(
            worker_id, store, self.runs, self.turns, self.residents, self.loading, self._committing, self.requests,
            self._lifetime, finished,
        )  # fmt: skip
        self._pump = Pump(
            clock, self.turns, self.residents, self.attempts.serving, self._starting, self._committing,
            self.waiting, self.leaving, self.requests, self.watchdog, self._lifetime,
        )  # fmt: skip
        self.residents.wake = self._pump.soon

    # What the parts above tell those below, which are made after them.

    def _burst_is_over(self) -> None:
        self._pump.run_if_due()

    def _park(self, resident: Resident, error: BaseException) -> None:
        self.leaving.park_if_here(resident, error)

    # -- what clients and the sweep ask ---------------------------------------------------------------------------

    def start(self, spec: WorkflowSpec, data: bytes, run_id: str) -> asyncio.Future[Start]:
        """Start a run here. Resolves when it is stored, together with its first turn. One that is alone may be stored
        when this returns."""
        self._linter.read(spec.name, spec.version)
        answer = self._starting.ask(spec, data, run_id)
        self._pump.run_for_start()
        return answer

    def expects(self, run_id: str) -> bool:
        """Whether a call is under way whose answer brings this run into memory. Until then nothing else may: the run
        could end before the answer comes, and begin again with it (tests/races/test_sweep_vs_answer.py)."""
        return self._starting.expects(run_id) or self.loading.expects(run_id)

    def place_of(self, key: RunKey, location: str) -> str | None:
        """What keeps a step from beginning: see `Attempt.waits_for`. None: no attempt of it is known here."""
        resident = self.residents.find(key)
        attempt = None if resident is None else resident.attempts.get(location)
        return None if attempt is None else attempt.waits_for

    def swept_by(self, task: asyncio.Task[None]) -> None:
        """The task of the engine that shows whether a stranger cancels everything on the loop."""
        self.attempts.swept_by(task)

    # -- the end ---------------------------------------------------------------------------------------------------

    def begin_nothing_more(self) -> None:
        """From now on no step is started; those under way go on. What closing begins with."""
        self.attempts.begin_nothing_more()

    async def close(self, grace: float) -> None:
        """Let running steps finish and their results be stored, within the grace; then let go of every run. Those that
        have nothing running here are given back at once: why should they wait for the steps of others?"""
        handing_over = asyncio.ensure_future(self._hand_over_idle()) if self.attempts.running else None
        try:
            await self.attempts.drain(grace)
        finally:
            if handing_over is not None:
                handing_over.cancel()
        # By the clock: on a busy machine a sleep of 10 ms may take a second (tests/lifecycle/test_close_is_bounded.py).
        until = self._loop.time() + max(grace, _LEAVING_SECONDS_MIN)
        while self._is_moving():
            if self._loop.time() >= until:
                break
            await asyncio.sleep(0.01)
        self._stop()
        for resident in self.residents:
            self.leaving.drop(resident)
        self.leaving.send_all()
        await self._lifetime.finish(max(until - self._loop.time(), _LEAVING_SECONDS_MIN))

    async def _hand_over_idle(self) -> None:
        """Give back whatever waits, now and as the steps under way end."""
        while True:
            for resident in list(self.residents):
                self.attempts.forget_held(resident)
                if resident.is_idle:
                    self.leaving.evict(resident)
            await asyncio.sleep(_HAND_OVER_SECONDS)

    def _is_moving(self) -> bool:
        return any(r.in_flight or r.arrivals.outcomes or r.queued for r in self.residents)

    def _stop(self) -> None:
        self._lifetime.closed = True
        self.watchdog.close()
        self._deadlines.close()
        self._starting.refuse_all()

    def store_lost(self, error: StoreLost) -> None:
        """The files of the store are gone or others: nothing that is done here could ever be recorded. Said once; the
        runs are let go of as by a crash, for the next worker on the right files."""
        if self._lifetime.closed:
            return
        logger.critical("this worker stops: %s", describe(error))
        self._lost(error)
        self._starting.refuse_all(StoreLost(error.message))
        self.abandon()

    def disowned(self) -> None:
        """Others found this worker dead and took its runs: they are let go of as by a crash. Callers who start a run
        hear the answer of the store if it was asked; those of the next turns are told to start it again."""
        self._starting.refuse_all(
            StoreUnavailable(
                "this worker was taken for dead before the run was started, and goes on under another id. Nothing was "
                "written. Start it again."
            )
        )
        self.abandon()

    def abandon(self) -> None:
        """Forget everything at once, as a crash would; nothing more is written."""
        self._stop()
        self._starting.close_all()
        self.attempts.abandon()
        for resident in self.residents:
            self.leaving.drop(resident)
        self._lifetime.cancel()
