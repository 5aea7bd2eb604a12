"""Committing: nothing leaves before it is durable. Turns go to the store together; what they asked for follows.

A commit whose answer is lost is sent again as it is: the store recognises what it has. One that fails for another
reason is halved until the turn at fault is alone; that run is parked, the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.engine.attempts import StepRunner
from perdure.engine.attempts.retry_hooks import call_retry_hooks
from perdure.engine.fast_path import Durable
from perdure.engine.outages import Outages
from perdure.engine.reporting import log_commands, log_end, log_failed_attempts
from perdure.engine.resident import Resident
from perdure.engine.worker.answers import asked, error_of, is_outage
from perdure.engine.worker.inbound import Inbound
from perdure.engine.worker.leaving import Leaving
from perdure.engine.worker.lifetime import Lifetime
from perdure.engine.worker.loading import Loading
from perdure.engine.worker.probation import Probation
from perdure.engine.worker.requests import SweepRequests
from perdure.engine.worker.runs import RunFactory
from perdure.engine.worker.waiting import Waiting
from perdure.errors import StoreLost, describe
from perdure.kernel.commands import CancelStep, Log, RunStep, Warn
from perdure.kernel.effects import NextGeneration
from perdure.kernel.journal import Record, from_row
from perdure.store.model import Status
from perdure.store.protocol import Store
from perdure.store.turn import NO_EFFECTS, CommitResult, Committed, Rejected, Turn

logger = logging.getLogger("perdure.worker")

#: How often a turn that raises by itself is tried again before its run is parked: a lack of memory passes.
_LONE_TRIES = 2


class Committing:
    """`finished` hears of runs that answered a request, `lost` that the files of the store are gone."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        runs: RunFactory,
        attempts: StepRunner,
        loading: Loading,
        leaving: Leaving,
        inbound: Inbound,
        waiting: Waiting,
        probation: Probation,
        requests: SweepRequests,
        outages: Outages,
        lifetime: Lifetime,
        finished: Callable[[str, Record | None], None],
        lost: Callable[[StoreLost], None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._runs = runs
        self._attempts = attempts
        self._loading = loading
        self._leaving = leaving
        self._inbound = inbound
        self._waiting = waiting
        self._probation = probation
        self._requests = requests
        self._outages = outages
        self._lifetime = lifetime
        self._finished = finished
        self._lost = lost
        self._loop = asyncio.get_running_loop()

    def commit(self, moved: Sequence[Resident], turns: Sequence[Turn], tries: int = 0) -> None:
        cursor = self._requests.cursor
        future = asked(self._store.commit, turns)
        if future.done():  # stored on the spot: another round of the event loop would only cost time
            self._committed(moved, turns, future, cursor, tries)
        else:
            future.add_done_callback(lambda done: self._committed(moved, turns, done, cursor, tries))

    def _committed(
        self,
        moved: Sequence[Resident],
        turns: Sequence[Turn],
        done: asyncio.Future[Sequence[CommitResult]],
        cursor: int,
        tries: int,
    ) -> None:
        error = error_of(done)
        if error is not None:
            self._failed(moved, turns, error, tries)
            return
        self._outages.recovered()
        durable: Durable = zip(moved, turns, done.result(), strict=True)
        fast_path = self._attempts.fast_path
        if fast_path is not None and not self._probation.members:
            durable = fast_path.release(durable)
        for resident, turn, result in durable:
            if not resident.is_current:
                self._loading.adopt_children(turn)
            elif isinstance(result, Rejected):
                self._outages.warn_rarely("lease", "run %r was let go: %s", resident.id, result.reason)
                self._leaving.drop(resident)
                # In case it is still ours, and only what we had in memory was wrong.
                self._requests.adopt_run(resident.id)
                self._loading.adopt_children(turn)
            else:
                self.release(resident, turn, result, cursor)

    # -- failures of the store -----------------------------------------------------------------------------------

    def _failed(self, moved: Sequence[Resident], turns: Sequence[Turn], error: BaseException, tries: int) -> None:
        """The outcome is unknown. The same turns are sent again: the store recognises what it already has."""
        if self._lifetime.closed:
            return
        if isinstance(error, StoreLost):
            self._lost(error)
        elif is_outage(error):
            self._loop.call_later(self._outages.failed(error), self._again, moved, turns)
        elif len(turns) > 1:
            # The fault of one of them, or of the store with all: half of them at a time finds out, and the others go on
            # (tests/lifecycle/test_commits_that_raise.py).
            half = len(turns) // 2
            self._again(moved[:half], turns[:half])
            self._again(moved[half:], turns[half:])
        elif tries < _LONE_TRIES:
            self._loop.call_later(self._outages.failed(error), self._again, moved, turns, tries + 1)
        else:
            self._refuse(moved[0], turns[0], error)

    def _refuse(self, resident: Resident, turn: Turn, error: BaseException) -> None:
        logger.error("a turn of run %r cannot be stored", resident.id, exc_info=error)
        self._loading.adopt_children(turn)
        if resident.is_current:
            self._leaving.drop(resident)
            reason = (
                f"what it did in its last turn cannot be stored: {describe(error)}. Nothing of that turn was kept. "
                "Look for what its code passes on there, then resume it."
            )
            self._leaving.park_stored(resident.key, resident.epoch, resident.id, reason)

    def _again(self, moved: Sequence[Resident], turns: Sequence[Turn], tries: int = 0) -> None:
        left = [(r, t) for r, t in zip(moved, turns, strict=True) if r.is_current]
        for resident, turn in zip(moved, turns, strict=True):
            if not resident.is_current:
                self._loading.adopt_children(turn)
        if left and not self._lifetime.closed:
            self.commit([r for r, _ in left], [t for _, t in left], tries)

    # -- what follows from a turn ---------------------------------------------------------------------------------

    def release(self, resident: Resident, turn: Turn, committed: Committed, cursor: int) -> None:
        """The turn is durable: tell whom it concerns, carry out what the code asked for, and go on or wait."""
        resident.in_flight = None
        if self._probation.members and turn.entries:
            self._leaving.cleared(resident)
        self._move_on(resident, turn)
        if committed is not NO_EFFECTS:
            resident.arrivals.written = (*resident.arrivals.written, *map(from_row, committed.effects))
            for delivery in committed.deliveries:
                self._inbound.deliver(delivery)
        if resident.failures:
            log_failed_attempts(resident, resident.failures)
            for hook in call_retry_hooks(resident):
                self._lifetime.spawn_once(hook)
        if committed.more:
            self._requests.spread_published()
        if committed.replied:
            self._finished(resident.id, None)  # the caller looks again
        if turn.continued is not None:
            self._continue(resident, turn.continued)
        elif turn.status.terminal:
            self._end(resident, turn)
        if resident.commands:
            self.carry_out(resident)
        if committed.spawned:
            self._loading.begin_children(turn, committed, cursor)
        self._waiting.settle(resident)

    def _move_on(self, resident: Resident, turn: Turn) -> None:
        """The journal is longer now."""
        before = turn.expected_seq - resident.pruned
        resident.next_seq = turn.expected_seq + len(turn.entries)
        resident.pruned += len(turn.pruned)
        if before <= limits.JOURNAL_RECORDS_WARN < resident.next_seq - resident.pruned:
            logger.warning(
                "the journal of run %r has %d records, all of them replayed at every recovery. "
                "Time for `loop` or `continue_as`.",
                resident.id,
                resident.next_seq - 1 - resident.pruned,
            )

    def carry_out(self, resident: Resident) -> None:
        """What the code asked for: everything it has seen is durable."""
        commands, resident.commands = resident.commands, []
        for command in commands:
            if type(command) is RunStep:
                self._attempts.start(resident, command.operation)
                continue
            match command:
                case CancelStep(location):
                    self._attempts.cancel(resident, location)
                case Log() | Warn():
                    log_commands(resident.id, [command])
                case _:
                    raise AssertionError("effects belong to the turn")

    def _continue(self, resident: Resident, following: NextGeneration) -> None:
        """The next generation takes the place of the one that ended; what that one still had going is void."""
        ended = resident.run
        log_commands(resident.id, resident.commands)
        self._attempts.cancel_all(resident)
        resident.commands, resident.arrivals.outcomes = [], []
        ended.close()
        spec = self._registry.workflow(following.workflow, following.version)
        if spec is None:
            raise AssertionError("a run continued as a workflow that was registered a moment ago")
        resident.run = self._runs.go_on(spec, ended.id, ended.generation + 1)
        resident.next_seq, resident.pruned = 2, 0
        resident.saved_count = resident.saved_digest = -1
        resident.saved_wake = None
        resident.arrivals.written = (from_row(following.started),)

    def _end(self, resident: Resident, turn: Turn) -> None:
        log_commands(resident.id, resident.commands)
        resident.commands = []
        last = resident.last or from_row(turn.entries[-1].row)
        self._leaving.drop(resident, last)
        if turn.status is not Status.COMPLETED:
            log_end(resident.id, last)
