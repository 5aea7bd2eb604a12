"""One turn of a run: what has arrived goes in, all that must become durable comes out.

`advance` is the only way from the engine into a run that lives: it orders what arrived, makes numbered records of it,
hands these to the code one at a time, and answers with everything that one commit has to hold and what may be carried
out once that is durable. It is synchronous and touches no store. The engine adds who may commit (`engine.turns`).

    arrivals ──▶ records ──▶ code runs until it is idle ──▶ requests about others, states of loops, the end ──▶ Advance

What comes first is decided by time: an event that was sent before a deadline wins over it, even if both are only seen
after a downtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from perdure import limits
from perdure.kernel import journal
from perdure.kernel.arrivals import Arrivals, StepOutcome
from perdure.kernel.commands import Command, Effect, Log, RunStep, Write
from perdure.kernel.effects import Entry, NextGeneration, ParentLink, RunKey
from perdure.kernel.items import ChildNotice, DeadItem, InboxItem, ItemKind, NewItem, child_item, read_child_item
from perdure.kernel.journal import Body, Record, end_of, started_record, to_row
from perdure.kernel.operations.base import Asker
from perdure.kernel.outcomes import Complete, Continue, EndCancelled, Fail, Outcome
from perdure.kernel.receiving import next_events, unwanted_events
from perdure.kernel.run import Run


class Host(msgspec.Struct, frozen=True):
    """What turns need to know of the worker that takes them."""

    worker_id: str
    #: For runs whose workflow does not say.
    cancel_grace: float
    #: The seed of a new run or generation, by its id and number.
    draw_seed: Callable[[str, int], int]


class Stored(msgspec.Struct, eq=False):
    """What the store has of a run, as of the last turn that was taken here."""

    key: RunKey
    epoch: int
    #: Where the next record goes. Moved by the engine when a turn is durable.
    next_seq: int
    parent: ParentLink | None = None
    #: Records that were deleted from the journal: iterations of loops that no replay needs.
    pruned: int = 0
    #: The number and the digest of what it waits for; -1: nothing was stored.
    saved_count: int = -1
    saved_digest: int = -1
    saved_wake: int | None = None
    saved_busy: bool | None = None
    saved_status: bytes | None = None
    saved_state: bytes | None = None


class Advance(msgspec.Struct, eq=False, gc=False):
    """What one turn came to."""

    #: The position of the first entry, and the time of the turn.
    seq: int
    at: int = 0
    #: Records in their order, with the effects that are part of them.
    entries: list[Entry] = []
    #: Inbox items that were delivered.
    consumed: list[int] = []
    #: To be carried out when all of this is durable.
    commands: list[Command] = []
    #: Failed attempts among the records: the log and `on_retry` hear of them when they are durable.
    failures: Sequence[StepOutcome] = ()
    #: What the code waits for now, and until when time gives it nothing to do.
    frontier: bytes = b""
    wake_at: int | None = None
    #: Whether there is work for the run that neither time nor the outside has to bring.
    is_busy: bool = False
    #: None: as stored.
    custom_status: bytes | None = None
    state: bytes | None = None
    waits: Mapping[str, int] | None = None
    returned: Sequence[int] = ()
    dead: list[DeadItem] = []
    pruned: Sequence[int] = ()
    #: The record that ends this generation, what its parent hears, and the generation that follows.
    last: Record | None = None
    notice: NewItem | None = None
    continued: NextGeneration | None = None
    #: Whether any of this has to be stored.
    is_news: bool = False

    def add(self, location: str, body: Body) -> Record:
        """The next record of the turn."""
        record = Record(self.seq + len(self.entries), self.at, location, body)
        self.entries.append(Entry(to_row(record)))
        return record


def advance(run: Run, arrivals: Arrivals, stored: Stored, now: int, host: Host) -> Advance:
    """Take one turn. Raises what the kernel raises (`Diverged`, `Spinning`...): the caller parks the run."""
    turn = Advance(stored.next_seq)
    if arrivals.written:
        written, arrivals.written = arrivals.written, ()
        for record in written:
            run.hand_over(record)
    if has_lone_result(run, arrivals, stored):
        _deliver_outcomes(run, arrivals, turn, now)
    else:
        _deliver(run, arrivals, turn, now, host)
        if run.pending.backoffs and run.outcome is None:
            run.commands += [RunStep(step) for step in run.pending.due_steps(now)]
    turn.commands = run.take_commands()
    if arrivals.commands:
        turn.commands = [*arrivals.commands, *turn.commands]
        arrivals.commands = ()
    conclude(run, arrivals, stored, turn, now, host)
    return turn


# -- what comes in -------------------------------------------------------------------------------------------


def has_lone_result(run: Run, arrivals: Arrivals, stored: Stored) -> bool:
    """Whether the one step that a run waits for has returned, and nothing else is stored of it or there for it. Such a
    result is a turn of its own, also if the code then asks for what is due at once: so the fast path need not look."""
    outcomes, pending = arrivals.outcomes, run.pending
    return (
        len(outcomes) == 1 == len(pending.operations)
        and not outcomes[0].body.is_failure
        and waits_for_steps_only(run, stored)
        and not (outcomes[0].operation.settled or arrivals.unread)
    )


def waits_for_steps_only(run: Run, stored: Stored) -> bool:
    """Whether this run has never waited for anything but steps, as far as the store has to know."""
    return (
        run.generation == 1
        and run.loops is None
        and stored.saved_wake is None
        and stored.saved_state is None
        and not run.pending.received
    )


def _deliver(run: Run, arrivals: Arrivals, turn: Advance, now: int, host: Host) -> None:
    """Hand over what arrived, one record at a time, until the code has ended or nothing is left."""
    pending = run.pending
    while run.outcome is None and len(turn.entries) < limits.TURN_RECORDS_MAX:
        if not (arrivals.unread or pending.timers or pending.expired_receives):
            if not arrivals.outcomes:
                return  # the common end, without looking any closer
            _deliver_outcomes(run, arrivals, turn, now)
            continue
        following = _next(run, arrivals, turn, now, host)
        if following is None:
            return
        location, body, taken = following
        for item in taken:
            turn.consumed.append(item.id)
            arrivals.take(item)
        if body is not None:
            turn.at = now if now > run.loop.now else run.loop.now
            run.hand_over(turn.add(location, body))


def _deliver_outcomes(run: Run, arrivals: Arrivals, turn: Advance, now: int) -> None:
    """Outcomes of steps, for as long as there is nothing else that could come before one of them."""
    timers, outcomes = run.pending.timers, arrivals.outcomes
    turn.at = now if now > run.loop.now else run.loop.now
    taken = 0
    for outcome in outcomes:
        taken += 1
        operation, body = outcome.operation, outcome.body
        if operation.settled:
            continue  # cancelled in the meantime: its late outcome is refused
        if body.is_failure:
            turn.failures = (*turn.failures, outcome)
        run.hand_over(turn.add(operation.location, body))
        if timers or run.outcome is not None or len(turn.entries) >= limits.TURN_RECORDS_MAX:
            break
    del outcomes[:taken]


def _next(
    run: Run, arrivals: Arrivals, turn: Advance, now: int, host: Host
) -> tuple[str, Body | None, Sequence[InboxItem]] | None:
    """The earliest of what waits: an outcome, an item, a timer."""
    outcomes = arrivals.outcomes
    timer = run.pending.due_timer(now)
    best_at = timer.at if timer is not None else limits.NEVER
    if arrivals.others and arrivals.others[0].sent_at <= best_at:
        return _other(run, arrivals.others[0], now, host)
    while outcomes and outcomes[0].operation.settled:
        del outcomes[0]  # cancelled in the meantime: its late outcome is refused
    outcome = outcomes[0] if outcomes else None
    if arrivals.events or arrivals.published or run.pending.expired_receives:
        matched = next_events(run.pending, arrivals, now, turn.dead)
        if matched is not None and matched[3] <= best_at and (outcome is None or matched[3] <= outcome.at):
            return matched[:3]
    if outcome is not None and outcome.at <= best_at:
        del outcomes[0]
        if outcome.body.is_failure:
            turn.failures = (*turn.failures, outcome)
        return outcome.operation.location, outcome.body, ()
    if timer is not None:
        return timer.location, timer.fired(), ()
    return None


def _other(run: Run, item: InboxItem, now: int, host: Host) -> tuple[str, Body | None, Sequence[InboxItem]]:
    """An item that is no event. One that means nothing to the run any more is taken without a record."""
    if item.kind is ItemKind.CANCEL:
        if run.cancel_requested:
            return "", None, (item,)
        grace = run.spec.cancel_grace if run.spec.cancel_grace is not None else host.cancel_grace
        until = max(now, run.now) + round(grace * 1_000_000)
        return "", journal.CancelRequested(item.data.decode(), until), (item,)
    if item.kind is ItemKind.RETRY_NOW:
        return item.data.decode(), journal.RetriedNow(), (item,)
    notice = read_child_item(item.data)
    waiting = run.pending.get(notice.location)
    if waiting is None or notice.generation != run.generation:
        return "", None, (item,)  # of an earlier generation, or given up: nothing waits for it
    body = waiting.end_of(notice)
    return ("", None, (item,)) if body is None else (notice.location, body, (item,))


# -- what goes out -------------------------------------------------------------------------------------------


def conclude(run: Run, arrivals: Arrivals, stored: Stored, turn: Advance, now: int, host: Host) -> None:
    """The code is idle, or has ended: what there is to store besides the records that were delivered."""
    pending, ended = run.pending, run.outcome
    turn.at = now if now > run.loop.now else run.loop.now
    turn.frontier = pending.frontier(run.last_seq)
    expecting = _add_requests(run, stored, turn, host) if turn.commands else False
    if run.loops is not None and ended is None:  # nothing goes on from the state of a loop in a run that has ended
        for location, state in run.loops.take_saves():
            run.loops.note_state(turn.add(location, state).seq, location)
    if ended is None:
        turn.wake_at = pending.next_deadline()
        # An answer that is expected will be a record which the code has not seen: after a crash a worker must load the
        # run and deliver it, as none would for one that waits (tests/events/test_send_from_workflow.py).
        turn.is_busy = bool(turn.commands or arrivals.outcomes or expecting) or pending.has_active_steps()
        if arrivals.published:
            turn.returned = unwanted_events(pending, arrivals)
        if pending.receives_changed:
            turn.waits = pending.awaited_events()
    else:
        turn.is_busy = type(ended) is Continue
        _end(run, stored, turn, ended, host)
        if pending.received or run.generation > 1:  # an earlier generation may have waited for something, too
            turn.waits = {}
    _compare(run, stored, turn)


def _compare(run: Run, stored: Stored, turn: Advance) -> None:
    """What of this the store does not have yet, and whether there is anything."""
    pending = run.pending
    if run.custom_status != stored.saved_status:
        turn.custom_status = run.custom_status
    state = run.encoded_state()
    if state != stored.saved_state:
        turn.state = state
    shape = (len(pending.operations), pending.digest, turn.wake_at, turn.is_busy)
    turn.is_news = bool(
        turn.entries
        or turn.consumed
        or turn.returned
        or turn.dead
        or turn.waits is not None
        or turn.custom_status is not None
        or turn.state is not None
        or shape != (stored.saved_count, stored.saved_digest, stored.saved_wake, stored.saved_busy)
        # Without a new frontier the next load would take a log line for unwritten.
        or any(isinstance(command, Log) for command in turn.commands)
    )
    if turn.is_news:
        stored.saved_count, stored.saved_digest, stored.saved_wake, stored.saved_busy = shape
        stored.saved_status, stored.saved_state = run.custom_status, state
        pending.receives_changed = False
        if run.loops is not None:
            turn.pruned = run.loops.take_prunable(stored.next_seq)


def _add_requests(run: Run, stored: Stored, turn: Advance, host: Host) -> bool:
    """Make entries of what was asked about other runs; the rest waits for the commit.

    True if the code waits for the answer to one of them.
    """
    for command in turn.commands:
        if type(command) is not RunStep:
            break
    else:
        return False
    asker = Asker(stored.key, run.id, run.generation, host.worker_id, host.draw_seed)
    rest: list[Command] = []
    expecting = False
    for command in turn.commands:
        seq = turn.seq + len(turn.entries)
        match command:
            case Effect(operation):
                if not operation.settled:
                    turn.entries.append(operation.entry(seq, turn.at, asker))
                    expecting = expecting or operation.awaits_answer()
            case Write(location, body):
                turn.add(location, body)
                if run.loops is not None:
                    run.loops.note(seq, location)
            case _:
                rest.append(command)
    turn.commands = rest
    return expecting


# -- the end -------------------------------------------------------------------------------------------------


def _end(run: Run, stored: Stored, turn: Advance, ended: Outcome, host: Host) -> None:
    """The last record, what the parent hears of it, and how the next generation begins."""
    turn.last = turn.add("", end_of(ended))
    if isinstance(ended, Continue):
        spec, seed = ended.workflow, host.draw_seed(run.id, run.generation + 1)
        started = started_record(spec, ended.input, seed, turn.at, parent=run.parent_id, state=run.encoded_state())
        turn.continued = NextGeneration(spec.name, spec.version, to_row(started))
    elif stored.parent is not None:
        turn.notice = child_item(_notice(run.id, stored.parent, ended), turn.at)


def _notice(run_id: str, parent: ParentLink, ended: Outcome) -> ChildNotice:
    common = (run_id, parent.generation, parent.location)
    match ended:
        case Complete(value):
            return ChildNotice(*common, value=value)
        case Fail(error):
            return ChildNotice(*common, error=error)
        case EndCancelled(reason):
            return ChildNotice(*common, cancelled=reason)
        case _:
            raise AssertionError("a run that continues has not ended")
