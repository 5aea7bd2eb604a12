"""Building a turn: which records come next, what the code then asks for, and all of it as one commit.

`take_turn` is synchronous and touches no store: it is called from a plain loop callback, hands records to the
kernel one at a time, and returns what has to become durable before anything it caused may be seen outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from msgspec import Raw

from perdure import limits, native
from perdure.engine.effects import effect_entry
from perdure.engine.loops import prunable, save_loops
from perdure.engine.receiving import next_events, unwanted_events
from perdure.engine.resident import Inbox, Resident
from perdure.engine.resident import Outcome as StepOutcome
from perdure.engine.settings import Settings
from perdure.engine.steps import Attempt
from perdure.kernel import journal
from perdure.kernel.commands import (
    Command,
    Complete,
    Continue,
    Effect,
    EndCancelled,
    Fail,
    Log,
    Mark,
    Note,
    Outcome,
    RunStep,
    SendItem,
    StartChild,
)
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.journal import ABSENT, Body, Record, Row, StepDone, to_row
from perdure.kernel.loop import RunLoop
from perdure.kernel.operation import (
    ChildOperation,
    SendOperation,
    StepOperation,
    WatchOperation,
    encode_step_frontier,
)
from perdure.kernel.pending import Pending
from perdure.kernel.run import Run
from perdure.store.base import (
    Entry,
    InboxItem,
    ItemKind,
    NewItem,
    NewRun,
    NextGeneration,
    ParentLink,
    Send,
    Spawn,
    Status,
    StepTurn,
    Turn,
)
from perdure.store.items import ChildNotice, child_item, input_digest, read_child_item


class TurnBuilder:
    """Builds turns for one worker. `draw_seed` gives each new child and generation its seed."""

    def __init__(self, worker_id: str, settings: Settings, draw_seed: Callable[[], int]) -> None:
        self._worker_id = worker_id
        self._settings = settings
        self._draw_seed = draw_seed

    def take_turn(self, resident: Resident, now: int) -> Turn | None:
        """Deliver what is there and describe what must be committed; None if nothing has to be.

        What the code asked for is left in `resident.commands`, to be carried out after the commit (or at once,
        when there is none). Raises what the kernel raises: the caller parks the run.
        """
        run = resident.run
        pending, inbox = run.pending, resident.inbox
        if run.is_plain and not inbox.unread and len(resident.outcomes) == 1 == len(pending.operations):
            outcome = resident.outcomes[0]
            if type(outcome.body) is StepDone and not (
                outcome.operation.settled or resident.commands or resident.written
            ):
                resident.outcomes.clear()
                return self._step_after_step(resident, run, outcome.operation, outcome.body, outcome.known, now)
        entries: list[Entry] = []
        consumed: list[int] = []
        if resident.written:
            written, resident.written = resident.written, ()
            for record in written:
                resident.commands += run.deliver(record)
        while run.outcome is None and len(entries) < limits.TURN_RECORDS_MAX:
            if not (inbox.unread or pending.timers or pending.hurried):
                if not resident.outcomes:
                    break  # the common end, without looking any closer
                self._take_outcomes(resident, now, entries)
                continue
            following = self._next(resident, now)
            if following is None:
                break
            location, body, taken = following
            for item in taken:
                consumed.append(item.id)
                resident.inbox.take(item)
            if body is not None:
                record = Record(resident.next_seq + len(entries), max(now, run.now), location, body)
                entries.append(Entry(to_row(record)))
                resident.commands += run.deliver(record)
        if pending.backoffs and run.outcome is None:
            resident.commands += [RunStep(step) for step in pending.due_steps(now)]
        return self._close_turn(resident, now, entries, consumed)

    def first_turn(self, resident: Resident, now: int) -> Turn:
        """The turn of a run that has just been started: stored even if nothing is to be, so that its frontier is."""
        commands = resident.commands
        run = resident.run
        if run.is_plain:
            if len(commands) == 1 and type(commands[0]) is RunStep and len(run.pending.operations) == 1:
                resident.commands = []
                return self._going_on(resident, commands[0].operation, 2, now, [])
            if not commands and type(ended := run.outcome) is Complete and not run.pending.operations:
                return self._completing(resident, ended, now, [])
        turn = self.take_turn(resident, now)
        if turn is None:
            raise AssertionError("a run that has just started always has a frontier to store")
        return turn

    def take_results(
        self, ended: deque[tuple[Attempt, Any]], now: int, moved: list[Resident], turns: list[Turn]
    ) -> None:
        """Make turns of results, one after another, up to the first that is not as simple as most: that one stays where
        it is, at the head of `ended`, and so does one whose turn raises."""
        while ended:
            attempt, value = ended[0]
            resident = attempt.resident
            if resident.queued or attempt.unwanted or resident.in_flight is not None or not resident.is_current:
                return
            turn = self.take_result(attempt, value, now)
            if turn is None:
                return
            ended.popleft()
            resident.in_flight = turn
            moved.append(resident)
            turns.append(turn)

    def take_result(self, attempt: Attempt, value: Any, now: int) -> Turn | None:
        """The turn of most runs most of the time, by a shorter way: the one step that a run waited for has returned a
        scalar, and nothing else is going on. None, having done nothing, if it is not as simple as that."""
        resident, operation = attempt.resident, attempt.operation
        run, location = resident.run, operation.location
        if (
            not run.is_plain
            or len(run.pending.operations) != 1
            or resident.attempts.get(location) is not attempt
            or operation.settled
            or resident.inbox.unread
            or resident.outcomes
            or resident.commands
            or resident.written
        ):
            return None
        spec, data = operation.spec, operation.data
        try:
            encoded = spec.result.encode(value, spec.what)
        except Exception:
            return None  # the long way says what is wrong with it
        del resident.attempts[location]
        # What `StepRunner.returned` makes of it, without the calls: most results come by here.
        args = Raw(data) if len(data) <= limits.RECORDED_ARGUMENTS_BYTES_MAX else ABSENT
        body = StepDone(Raw(encoded), attempt.number, args, crc32(data), operation.site)
        return self._step_after_step(resident, run, operation, body, value, now)

    def _step_after_step(
        self, resident: Resident, run: Run, operation: StepOperation, body: StepDone, known: Any, now: int
    ) -> Turn | None:
        """The one step that a run waited for has succeeded; the code will ask for the next one or come to its end."""
        seq, at = resident.next_seq, run.loop.now
        if at < now:
            at = now
        record = Record(seq, at, operation.location, body)
        entries = [Entry(to_row(record))]
        return self._describe(resident, run.deliver(record, known), seq, at, now, entries)

    def _describe(
        self, resident: Resident, commands: list[Command], seq: int, at: int, now: int, entries: list[Entry]
    ) -> Turn | None:
        """What is to be stored now that the record at `seq` has been delivered."""
        run = resident.run
        if run.is_plain and seq != limits.JOURNAL_RECORDS_WARN:
            ended, pending = run.outcome, len(run.pending.operations)
            if ended is None:
                if pending == 1 == len(commands) and type(command := commands[0]) is RunStep:
                    return self._going_on(resident, command.operation, seq, at, entries)
            elif type(ended) is Complete and not pending and not commands and resident.parent is None:
                return self._completing(resident, ended, at, entries)
        resident.commands = commands
        return self._close_turn(resident, now, entries, [])

    def _going_on(self, resident: Resident, step: StepOperation, seq: int, at: int, entries: list[Entry]) -> Turn:
        """What is to be stored when the run waits for one step and for nothing else."""
        resident.following = step
        resident.saved_count = 1
        resident.saved_digest = step.digest
        resident.saved_run_status = _RUNNING
        frontier = encode_step_frontier(seq if entries else 1, step)
        kind = StepTurn if entries else Turn
        return kind(resident.key, resident.epoch, 1, seq, entries, _RUNNING, None, at, frontier)

    def _completing(self, resident: Resident, ended: Complete, at: int, entries: list[Entry]) -> Turn:
        """What is to be stored when the run has come to its end, and nobody but its caller is to hear of it."""
        expected = resident.next_seq
        last = Record(expected + len(entries), at, "", journal.Completed(ended.value, ended.abandoned))
        resident.last = last
        frontier = resident.run.frontier()
        entries.append(Entry(to_row(last)))
        return Turn(
            key=resident.key,
            epoch=resident.epoch,
            generation=1,
            expected_seq=expected,
            entries=entries,
            status=Status.COMPLETED,
            wake_at=None,
            at=at,
            frontier=frontier,
        )

    def _close_turn(self, resident: Resident, now: int, entries: list[Entry], consumed: list[int]) -> Turn | None:
        run = resident.run
        pending = run.pending
        frontier = pending.frontier(run.last_seq)
        expecting = False
        for command in resident.commands:
            if type(command) is not RunStep:
                expecting = self._add_effects(resident, now, entries)
                break
        if run.loops is not None:
            save_loops(resident, run.loops, max(now, run.now), entries)
        continued = notice = None
        if run.outcome is not None:
            resident.last, continued = self._end(resident, run.outcome, now, resident.next_seq + len(entries))
            entries.append(Entry(to_row(resident.last)))
            notice = self._notice(resident, now)
            wake_at = None
            status = _ENDED[type(run.outcome)]
        else:
            wake_at = pending.next_deadline()
            # An answer that is expected will be a record which the code has not seen: after a crash somebody must load
            # the run and deliver it, as nobody would for one that waits (tests/events/test_send_from_workflow.py).
            busy = resident.commands or resident.attempts or resident.outcomes or expecting
            status = Status.RUNNING if busy or pending.has_active_steps() else Status.WAITING
        shape = (len(pending), pending.digest, wake_at, status)
        custom_status = run.custom_status if run.custom_status != resident.saved_status else None
        encoded_state = run.encoded_state()
        state = encoded_state if encoded_state != resident.saved_state else None
        waits = self._waits(resident)
        returned = unwanted_events(resident) if resident.inbox.published and run.outcome is None else ()
        dead, resident.dead = resident.dead, ()
        about_events = waits is not None or returned or dead
        if not entries and not consumed and custom_status is None and state is None and not about_events:
            saved = (resident.saved_count, resident.saved_digest, resident.saved_wake, resident.saved_run_status)
            # A log line counts as a change: without a new frontier the next load would take it for unwritten.
            if shape == saved and not any(isinstance(command, Log) for command in resident.commands):
                return None
        resident.saved_count, resident.saved_digest, resident.saved_wake, resident.saved_run_status = shape
        resident.saved_status, resident.saved_state = run.custom_status, encoded_state
        pending.receives_changed = False
        # From here on the next turn may go the shorter way, until the code asks for something that makes this False.
        run.is_plain = not (
            pending.received
            or wake_at is not None
            or encoded_state is not None
            or run.loops is not None
            or run.generation > 1
        )
        return Turn(
            key=resident.key,
            epoch=resident.epoch,
            generation=run.generation,
            expected_seq=resident.next_seq,
            entries=entries,
            status=status,
            wake_at=wake_at,
            at=max(now, run.now),
            frontier=frontier if continued is None else None,
            consumed=consumed,
            custom_status=custom_status,
            state=state,
            notice=notice,
            continued=continued,
            pending_max=self._settings.max_pending_events,
            pruned=prunable(resident),
            waits=waits,
            returned=returned,
            dead=dead,
        )

    def _waits(self, resident: Resident) -> Mapping[str, int] | None:
        """What the store must know about the events the run waits for; None if it does."""
        run = resident.run
        if run.outcome is None:
            return run.pending.awaited_events() if run.pending.receives_changed else None
        # An earlier generation may have waited for something, too.
        return {} if run.pending.received or run.generation > 1 else None

    # -- what comes next -------------------------------------------------------------------------------------

    def _next(self, resident: Resident, now: int) -> tuple[str, Body | None, Sequence[InboxItem]] | None:
        """The earliest of what waits: an outcome, an item, a timer. By time, so that an event which came before a
        deadline wins over it even if both are only seen after a downtime."""
        run = resident.run
        inbox = resident.inbox
        outcomes = resident.outcomes
        timer = run.pending.due_timer(now)
        best_at = timer.at if timer is not None else limits.NEVER
        if inbox.others and inbox.others[0].sent_at <= best_at:
            return self._other(resident, inbox.others[0], now)
        while outcomes and outcomes[0].operation.settled:
            del outcomes[0]  # cancelled in the meantime: its late outcome is refused
        outcome = outcomes[0] if outcomes else None
        if inbox.events or inbox.published or run.pending.hurried:
            matched = next_events(resident, now)
            if matched is not None and matched[3] <= best_at and (outcome is None or matched[3] <= outcome.at):
                return matched[:3]
        if outcome is not None and outcome.at <= best_at:
            del outcomes[0]
            if type(outcome.body) is not StepDone:
                self._note_failure(resident, outcome)
            return outcome.operation.location, outcome.body, ()
        if timer is not None:
            return timer.location, journal.TimerFired(timer.site), ()
        return None

    def _take_outcomes(self, resident: Resident, now: int, entries: list[Entry]) -> None:
        """Deliver outcomes of steps for as long as there is nothing else that could come before one of them."""
        run, outcomes = resident.run, resident.outcomes
        timers, seq, at = run.pending.timers, resident.next_seq + len(entries), max(now, run.now)
        taken = 0
        for outcome in outcomes:
            taken += 1
            operation = outcome.operation
            if operation.settled:
                continue  # cancelled in the meantime: its late outcome is refused
            if type(outcome.body) is not StepDone:
                self._note_failure(resident, outcome)
            record = Record(seq, at, operation.location, outcome.body)
            entries.append(Entry(to_row(record)))
            resident.commands += run.deliver(record, outcome.known)
            seq += 1
            if timers or run.outcome is not None or len(entries) >= limits.TURN_RECORDS_MAX:
                break
        del outcomes[:taken]

    def _note_failure(self, resident: Resident, outcome: StepOutcome) -> None:
        """The log and the step's `on_retry` are to hear of it when it is durable."""
        resident.hooks = (*resident.hooks, outcome)

    def _other(self, resident: Resident, item: InboxItem, now: int) -> tuple[str, Body | None, Sequence[InboxItem]]:
        run = resident.run
        if item.kind is ItemKind.CANCEL:
            if run.cancel_requested:
                return "", None, (item,)
            grace = run.spec.cancel_grace if run.spec.cancel_grace is not None else self._settings.cancel_grace
            until = max(now, run.now) + round(grace * 1_000_000)
            return "", journal.CancelRequested(item.data.decode(), until), (item,)
        if item.kind is ItemKind.HURRY:
            return item.data.decode(), journal.Hurried(), (item,)
        notice = read_child_item(item.data)
        child = run.pending.get(notice.location)
        if isinstance(child, WatchOperation) and notice.generation == run.generation:
            ended = journal.RunEnded(notice.child_id, notice.value, notice.error, notice.cancelled)
            return notice.location, ended, (item,)
        if notice.generation != run.generation or not isinstance(child, ChildOperation):
            return "", None, (item,)  # of an earlier generation, or given up: nobody waits for it
        if notice.error is not None:
            return notice.location, journal.ChildFailed(notice.error, notice.child_id), (item,)
        if notice.value:
            return notice.location, journal.ChildDone(notice.value, notice.child_id), (item,)
        return notice.location, journal.ChildCancelled(notice.cancelled, notice.child_id), (item,)

    # -- effects -----------------------------------------------------------------------------------------------

    def _add_effects(self, resident: Resident, now: int, entries: list[Entry]) -> bool:
        """Turn requests about other runs into entries; what is left waits for the commit.

        True if the code waits for the answer to one of them.
        """
        rest: list[Command] = []
        expecting = False
        for command in resident.commands:
            seq = resident.next_seq + len(entries)
            match command:
                case StartChild(operation):
                    if not operation.settled:
                        entries.append(self._spawn(resident, operation, now, seq))
                        expecting = expecting or operation.awaits_start
                case SendItem(operation):
                    if not operation.settled:
                        entries.append(self._send(resident, operation, now, seq))
                        expecting = expecting or operation.awaited
                case Effect(operation):
                    if not operation.settled:
                        entries.append(effect_entry(operation, seq, max(now, resident.run.now)))
                        expecting = True
                case Mark(location, site):
                    at = max(now, resident.run.now)
                    entries.append(Entry(to_row(Record(seq, at, location, journal.PatchChosen(site)))))
                    if resident.run.loops is not None:
                        resident.run.loops.note(seq, location)
                case Note(location, data, site):
                    at = max(now, resident.run.now)
                    entries.append(Entry(to_row(Record(seq, at, location, journal.Recorded(Raw(data), site)))))
                    if resident.run.loops is not None:
                        resident.run.loops.note(seq, location)
                case _:
                    rest.append(command)
        resident.commands = rest
        return expecting

    def _spawn(self, resident: Resident, child: ChildOperation, now: int, seq: int) -> Entry:
        run = resident.run
        at = max(now, run.now)
        spec = child.spec

        def row(refused: str) -> Row:
            body = journal.ChildStarted(child.child_id, spec.name, spec.version, child.detached, refused, child.site)
            return to_row(Record(seq, at, child.location, body))

        new = NewRun(
            id=child.child_id,
            workflow=spec.name,
            version=spec.version,
            input_digest=input_digest(spec.name, child.data),
            started=to_row(started_record(spec, child.data, self._draw_seed(), at, parent=run.id)),
            created_at=at,
            parent=None
            if child.detached
            else ParentLink(key=resident.key, generation=run.generation, location=child.location),
            owner=self._worker_id,
        )
        return Entry(row(""), Spawn(new=new, refused={"conflict": row("conflict")}))

    def _send(self, resident: Resident, send: SendOperation, now: int, seq: int) -> Entry:
        at = max(now, resident.run.now)

        def row(refused: str) -> Row:
            return to_row(Record(seq, at, send.location, journal.Sent(send.target, send.type, refused, send.site)))

        kind = ItemKind.CANCEL if send.is_cancel else ItemKind.EVENT
        item = NewItem(kind=kind, type=send.type, data=send.data, sent_at=at, dedup=send.dedup, policy=send.policy)
        return Entry(
            row(""),
            Send(target=send.target, item=item, refused={r: row(r) for r in ("not_found", "finished", "full")}),
        )

    # -- the end -------------------------------------------------------------------------------------------------

    def _end(self, resident: Resident, outcome: Outcome, now: int, seq: int) -> tuple[Record, NextGeneration | None]:
        run = resident.run
        at = max(now, run.now)
        continued = None
        match outcome:
            case Complete(value, abandoned):
                body: Body = journal.Completed(value, abandoned)
            case Fail(error, abandoned):
                body = journal.Failed(error, abandoned)
            case EndCancelled(reason, terminated, abandoned):
                body = journal.Cancelled(reason, terminated, abandoned)
            case Continue(spec, data):
                body = journal.Continued(spec.name, spec.version)
                state = run.encoded_state()
                started = to_row(started_record(spec, data, self._draw_seed(), at, parent=run.parent_id, state=state))
                continued = NextGeneration(workflow=spec.name, version=spec.version, started=started)
        return Record(seq, at, "", body), continued

    def _notice(self, resident: Resident, now: int) -> NewItem | None:
        parent = resident.parent
        if parent is None:
            return None
        common = (resident.id, parent.generation, parent.location)
        match resident.run.outcome:
            case Complete(value):
                notice = ChildNotice(*common, value=value)
            case Fail(error):
                notice = ChildNotice(*common, error=error)
            case EndCancelled(reason):
                notice = ChildNotice(*common, cancelled=reason)
            case _:
                return None
        return child_item(notice, max(now, resident.run.now))


#: What a run's status is after its generation ended like this.
_RUNNING = Status.RUNNING
_ENDED: dict[type[Outcome], Status] = {
    Complete: Status.COMPLETED,
    Fail: Status.FAILED,
    EndCancelled: Status.CANCELLED,
    Continue: Status.RUNNING,
}


def started_record(
    spec: WorkflowSpec,
    data: bytes,
    seed: int,
    at: int,
    *,
    parent: str | None = None,
    state: bytes | None = None,
) -> Record:
    """The first record of a generation."""
    carried = Raw(state) if state is not None else ABSENT
    body = journal.Started(spec.name, spec.version, Raw(data), seed, journal.SEMANTICS, parent, carried)
    return Record(1, at, "", body)


native.bind_turns({
    "TurnBuilder": TurnBuilder, "Record": Record, "Entry": Entry, "StepTurn": StepTurn, "Run": Run, "RunStep": RunStep,
    "RunLoop": RunLoop, "Pending": Pending, "Resident": Resident, "Inbox": Inbox, "Outcome": StepOutcome,
    "Complete": Complete, "Completed": journal.Completed, "COMPLETED": Status.COMPLETED,
    "RUNNING": _RUNNING, "limits": vars(limits), "to_row": to_row, "encode_step_frontier": encode_step_frontier,
})  # fmt: skip
