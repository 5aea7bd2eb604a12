"""The pump: every run that is ready gets one turn, and all these turns one commit.

It runs as a plain callback of the host loop, at the end of a burst of steps, or for a lone start; never inside a task.
"""

from __future__ import annotations

import asyncio

from perdure.engine.attempts.serving import Serving
from perdure.engine.clock import Timekeeper
from perdure.engine.host import detached, has_other_work
from perdure.engine.resident import Resident
from perdure.engine.turns import Turns
from perdure.engine.watchdog import Watchdog
from perdure.engine.worker.committing import Committing
from perdure.engine.worker.leaving import Leaving
from perdure.engine.worker.lifetime import Lifetime
from perdure.engine.worker.requests import SweepRequests
from perdure.engine.worker.residents import Residents
from perdure.engine.worker.starting import Starting
from perdure.engine.worker.waiting import Waiting
from perdure.kernel.eventloop.loop import batch
from perdure.store.turn import Turn

#: Runs given a turn in one callback, so that a burst does not keep the host loop from other work.
_RUNS_PER_PUMP = 500


class Pump:
    def __init__(
        self,
        clock: Timekeeper,
        turns: Turns,
        residents: Residents,
        serving: Serving,
        starting: Starting,
        committing: Committing,
        waiting: Waiting,
        leaving: Leaving,
        requests: SweepRequests,
        watchdog: Watchdog,
        lifetime: Lifetime,
    ) -> None:
        self._clock = clock
        self._turns = turns
        self._residents = residents
        self._serving = serving
        self._starting = starting
        self._committing = committing
        self._waiting = waiting
        self._leaving = leaving
        self._requests = requests
        self._watchdog = watchdog
        self._lifetime = lifetime
        self._loop = asyncio.get_running_loop()
        self._turns_of_runs = batch()
        self._is_due = False

    def soon(self) -> None:
        """There is something to do."""
        if not self._is_due and not self._lifetime.closed:
            self._is_due = True
            if not self._serving.is_serving:  # otherwise it comes as soon as that burst of steps is over
                self._loop.call_soon(self.run_if_due)

    def run_if_due(self) -> None:
        if self._is_due:
            self._run()

    def run_for_start(self) -> None:
        """A caller has asked for a run. If nothing else is going on it is stored on the spot, which saves rounds of the
        event loop; otherwise it comes with the others."""
        if self._is_due:
            return
        task = asyncio.current_task(self._loop)
        if task is None or self._serving.is_serving or has_other_work(self._loop):
            self.soon()
        else:
            with detached(task):
                self._run()

    def _run(self) -> None:
        self._is_due = False
        if self._lifetime.closed:
            return
        now = self._clock.now()
        moved: list[Resident] = []
        turns: list[Turn] = []
        with self._watchdog, self._turns_of_runs:
            unmoved = self._take_turns(now, moved, turns)
            prepared = self._starting.prepare(now, _RUNS_PER_PUMP) if self._starting.has_asked else ()
        for resident in unmoved:
            # Nothing new to store: every record the code has seen is durable, so what it asked for may go.
            if resident.is_current:
                self._committing.carry_out(resident)
                self._waiting.settle(resident)
        if prepared:
            self._starting.create(prepared)
        if turns:
            self._committing.commit(moved, turns)
        if self._residents.has_ready or self._starting.has_asked:
            self.soon()

    def _take_turns(self, now: int, moved: list[Resident], turns: list[Turn]) -> list[Resident]:
        """Returns those for which nothing has to be stored."""
        unmoved: list[Resident] = []
        take, fast_path = self._turns.take, self._serving.fast_path
        for resident in self._residents.take_ready(_RUNS_PER_PUMP):
            try:
                turn = None if fast_path is None else fast_path.take_turn(resident, now)
                if turn is None:
                    if not resident.is_current:
                        continue  # it has left memory since it became ready
                    turn = take(resident, now)
            except BaseException as error:
                self._give_up(resident, error)
                continue
            if turn is None:
                unmoved.append(resident)
            else:
                resident.in_flight = turn
                moved.append(resident)
                turns.append(turn)
        return unmoved

    def _give_up(self, resident: Resident, error: BaseException) -> None:
        """A turn ended with an error: the run is parked. Raises what is not about the run but about the process."""
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._leaving.drop(resident)
            self._requests.adopt_run(resident.id)  # should this process go on all the same, as notebooks do
            raise error
        self._leaving.park(resident, error)
