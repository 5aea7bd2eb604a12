"""Results of lone steps become turns, and durable turns the next step, with few calls."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.engine.attempts import Attempt, StepRunner
from perdure.engine.fast_path import Durable
from perdure.engine.resident import Resident
from perdure.engine.turns import Turns
from perdure.engine.worker.deadlines import Deadlines
from perdure.engine.worker.residents import Residents
from perdure.kernel.advance import Advance, waits_for_steps_only
from perdure.kernel.commands import RunStep
from perdure.kernel.effects import Entry
from perdure.kernel.frontier import encode_step_frontier
from perdure.kernel.journal import Body, Record, end_of, to_row
from perdure.kernel.operations.step import StepOperation
from perdure.kernel.outcomes import Complete
from perdure.store.model import RunKey, Status
from perdure.store.turn import NO_EFFECTS, CommitResult, Turn

_RUNNING, _COMPLETED = Status.RUNNING, Status.COMPLETED


class Lane:
    """See `FastPath`."""

    def __init__(self, attempts: StepRunner, turns: Turns, residents: Residents, deadlines: Deadlines) -> None:
        self._attempts = attempts
        self._turns = turns
        self._residents = residents
        self._deadlines = deadlines
        #: What the code of attempts returned, for runs that wait for their turn.
        self._results: dict[RunKey, tuple[Attempt, Any]] = {}

    def take_result(self, attempt: Attempt, value: Any) -> bool:
        """Only scalars: everything else is encoded at once, before other code can change it."""
        resident = attempt.resident
        if (
            len(resident.run.pending.operations) != 1
            or resident.queued
            or resident.in_flight is not None
            or not resident.is_current
            or not attempt.operation.spec.result.is_scalar(value)
        ):
            return False
        self._results[resident.key] = (attempt, value)
        self._residents.mark_ready(resident)
        return True

    def take_turn(self, resident: Resident, now: int) -> Turn | None:
        result = self._results.pop(resident.key, None)
        if result is None or not resident.is_current:
            return None
        attempt, value = result
        run, arrivals, step = resident.run, resident.arrivals, attempt.operation
        if (
            resident.in_flight is None
            and len(run.pending.operations) == 1
            and resident.attempts.get(step.location) is attempt
            and resident.saved_busy is True
            and waits_for_steps_only(run, resident)
            and not (
                step.settled
                or attempt.unwanted
                or resident.commands
                or arrivals.unread
                or arrivals.outcomes
                or arrivals.written
                or arrivals.commands
            )
        ):
            try:
                body = step.returned(value, attempt.number)
            except Exception:
                body = None  # the general path says what is wrong with it
            if body is not None:
                del resident.attempts[step.location]
                return self._deliver(resident, step, body, value, now)
        resident.queued = True  # its turn is now: it need not be made ready for another
        self._attempts.returned(attempt, value)
        resident.queued = False
        return None

    def _deliver(self, resident: Resident, step: StepOperation, body: Body, value: Any, now: int) -> Turn | None:
        """Hand the result to the code, and describe what is to be stored."""
        run, seq = resident.run, resident.next_seq
        at = run.loop.now
        if at < now:
            at = now
        entries = [Entry(to_row(Record(seq, at, step.location, body)))]
        commands = run.deliver_scalar(seq, at, step, value)
        if run.custom_status is resident.saved_status and not run.state and run.loops is None:
            ended, pending = run.outcome, run.pending
            count = len(pending.operations)
            if ended is None:
                if count == 1 == len(commands) and type(command := commands[0]) is RunStep:
                    following = command.operation
                    resident.commands = commands
                    resident.saved_digest = following.digest  # one step is what it waited for before, too
                    frontier = encode_step_frontier(seq, following)
                    return Turn(
                        resident.key,
                        resident.epoch,
                        1,
                        seq,
                        entries,
                        _RUNNING,
                        None,
                        at,
                        frontier,
                        worker=self._turns.worker_id,
                    )
            elif type(ended) is Complete and not (count or commands or pending.received or resident.parent):
                resident.last = last = Record(seq + 1, at, "", end_of(ended))
                entries.append(Entry(to_row(last)))
                return Turn(
                    resident.key,
                    resident.epoch,
                    1,
                    seq,
                    entries,
                    _COMPLETED,
                    None,
                    at,
                    run.frontier(),
                    worker=self._turns.worker_id,
                )
        return self._turns.conclude(resident, Advance(seq, at, entries, commands=commands), now)

    def release(self, durable: Durable) -> Durable:
        """Start the step that follows from each turn, where nothing else does."""
        left: list[tuple[Resident, Turn, CommitResult]] = []
        start, most = self._attempts.start, limits.JOURNAL_RECORDS_WARN
        for one in durable:
            resident, turn, result = one
            commands, arrivals, seq = resident.commands, resident.arrivals, turn.expected_seq
            following = seq + len(turn.entries)
            if (
                result is not NO_EFFECTS
                or len(commands) != 1
                or type(command := commands[0]) is not RunStep
                or not resident.is_current
                or turn.status is not _RUNNING
                or turn.wake_at is not None
                or turn.continued is not None
                or seq <= most < following
                or resident.failures
                or resident.pruned
                or turn.pruned
                or arrivals.unread
                or arrivals.outcomes
                or arrivals.written
                or arrivals.commands
            ):
                left.append(one)
                continue
            resident.in_flight = None
            resident.next_seq = following
            resident.commands = []
            self._deadlines.set(resident.key, None)
            start(resident, command.operation)
        return left
