"""The runner as the worker sees it: the parts, put together.

An attempt starts only after the turn that asked for it is durable (law 2): the worker calls `start` when it is, and
hears of the outcome once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from perdure.engine.attempts.attempt import Attempt
from perdure.engine.attempts.calling import Calling, StandIn
from perdure.engine.attempts.capacity import Capacity
from perdure.engine.attempts.interruptions import Interruptions
from perdure.engine.attempts.outcomes import Outcomes
from perdure.engine.attempts.serving import Serving
from perdure.engine.attempts.timeouts import Timeouts
from perdure.engine.clock import Timekeeper
from perdure.engine.fast_path import FastPath
from perdure.engine.resident import Resident
from perdure.kernel.operations.step import StepOperation


class StepRunner:
    """Runs attempts of steps. `finished` hears of each run with a new outcome, `burst_is_over` when several may have
    one, and `park` of a run whose step has an outcome that cannot even be recorded as a failure."""

    def __init__(
        self,
        clock: Timekeeper,
        steps_max: int,
        threads: int,
        processes: int | None,
        rng: random.Random,
        finished: Callable[[Resident], None],
        burst_is_over: Callable[[], None],
        park: Callable[[Resident, BaseException], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._capacity = capacity = Capacity(steps_max, self._admitted, self._held)
        self._interruptions = Interruptions(loop, capacity, self._resumed, self._begin_again)
        self._outcomes = Outcomes(clock, rng, capacity, self._interruptions, finished, park)
        self._timeouts = Timeouts(loop, clock, capacity, self._outcomes, self._leave_behind)
        self._calling = Calling(clock, threads, processes, self._timeouts)
        self.serving = Serving(loop, capacity, self._calling, self._outcomes, self._interruptions, burst_is_over)

    # What the parts above tell those below, which are made after them.

    def _admitted(self, attempt: Attempt) -> None:
        self.serving.add(attempt)

    def _held(self, attempt: Attempt) -> None:
        self._timeouts.limit_the_wait(attempt)

    def _leave_behind(self, task: asyncio.Task[None]) -> None:
        self.serving.leave_behind(task)

    def _resumed(self) -> None:
        self.serving.send_if_queued()

    def _begin_again(self, attempt: Attempt) -> None:
        resident, location = attempt.resident, attempt.operation.location
        if self._capacity.accepting and resident.attempts.get(location) is attempt:
            del resident.attempts[location]
            self.start(resident, attempt.operation)
            resident.attempts[location].strange_cancels = attempt.strange_cancels

    # -- what the worker asks --------------------------------------------------------------------------------------

    def start(self, resident: Resident, operation: StepOperation) -> None:
        """Begin the next attempt of a step, unless it is settled, under way, or in a backoff that is not over."""
        location, attempts, capacity = operation.location, resident.attempts, self._capacity
        # One in its backoff comes again when that is over.
        if operation.settled or operation.next_at or location in attempts or not capacity.accepting:
            return
        attempts[location] = attempt = Attempt(resident, operation, operation.attempts + 1)
        if capacity.running >= capacity.steps_max or operation.spec.concurrency is not None:
            capacity.admit(attempt)
            return
        # As `admit` and `Serving.add` do, with fewer calls: every step comes by here.
        capacity.running += 1
        serving = self.serving
        serving.queue.append(attempt)
        if not serving.is_due:
            serving.send_for_server()

    def cancel(self, resident: Resident, location: str) -> None:
        """Nobody wants the result of that step any more: its code is told to stop, and refused if it goes on."""
        attempt = resident.attempts.pop(location, None)
        if attempt is None:
            return
        attempt.stop_timer()
        attempt.cancel()
        if attempt.task is not None:
            self._timeouts.give_grace(attempt)

    def cancel_all(self, resident: Resident) -> None:
        for location in list(resident.attempts):
            self.cancel(resident, location)

    def returned(self, attempt: Attempt, value: Any) -> None:
        """What the fast path took and gives back."""
        self._outcomes.returned(attempt, value)

    @property
    def running(self) -> int:
        return self._capacity.running

    def hold(self) -> None:
        """Begin nothing for now: the right to these runs is in doubt. What is under way goes on. Safe to repeat."""
        self._capacity.hold()

    def go_on(self) -> None:
        """Begin steps again. Safe to repeat."""
        self._capacity.go_on()

    # -- the end ---------------------------------------------------------------------------------------------------

    def begin_nothing_more(self) -> None:
        """What is under way goes on."""
        self._capacity.accepting = False

    def forget_held(self, resident: Resident) -> None:
        """Attempts that wait for a place will get none any more: other workers begin them."""
        for location, attempt in list(resident.attempts.items()):
            if attempt.held_by:
                self.cancel(resident, location)

    async def drain(self, grace: float) -> None:
        """Start nothing more, give running attempts `grace` seconds, then cancel what is left."""
        self._capacity.close()
        await self.serving.finish(grace)
        await self._calling.close()

    def abandon(self) -> None:
        """Begin and record nothing more, as after a crash."""
        self._capacity.accepting = False
        self._calling.abandon()

    # -- what is set after it is made --------------------------------------------------------------------------------

    @property
    def fast_path(self) -> FastPath | None:
        """None: everything takes the general path."""
        return self.serving.fast_path

    @fast_path.setter
    def fast_path(self, fast_path: FastPath | None) -> None:
        self.serving.fast_path = fast_path

    def swept_by(self, task: asyncio.Task[None]) -> None:
        """The task of the engine that shows whether a stranger cancels everything on the loop."""
        self._interruptions.sweeper = task

    def replace_code(self, stand_in: StandIn | None, *, delays: bool) -> None:
        """For tests: what to call in the place of a step's code (None: the code itself), and whether retries wait."""
        self._calling.stand_in = stand_in
        self._outcomes.delays = delays
