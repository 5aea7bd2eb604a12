"""Committing turns: what one turn changes, all or nothing, because nothing else runs meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.journal import Row
from perdure.store import refusals, rules
from perdure.store.memory import dead_letters, events, inbox, run_end, runs
from perdure.store.memory.tables import Run, Tables, check_storable
from perdure.store.model import Delivery, NewRun, RunKey
from perdure.store.turn import (
    CommitResult,
    Committed,
    Created,
    Creation,
    Entry,
    Existing,
    NextGeneration,
    Publish,
    Reply,
    Send,
    Spawn,
    Turn,
    Watch,
)

# -- a new run with its first turn -----------------------------------------------------------------------


def create(tables: Tables, new: NewRun, turn: Turn | None) -> Created | Existing:
    if turn is not None:
        refusals.check_first_turn(turn)
        check_storable(*(entry.row.location for entry in turn.entries))
    check_storable(new.id, new.workflow, new.version)
    tables.check_here()
    if (existing := tables.by_id.get(new.id)) is not None:
        tables.skip_key()
        return Existing(row=existing.row())
    run = runs.add_run(tables, new, new.parent)
    committed = accept(tables, run, turn) if turn is not None else None
    return Created(key=run.key, epoch=1 if new.owner is not None else 0, committed=committed)


def create_all(tables: Tables, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
    return [create(tables, new, turn) for new, turn in creations]


# -- turns -----------------------------------------------------------------------------------------------


def commit_turns(tables: Tables, turns: Sequence[Turn]) -> Sequence[CommitResult]:
    return [commit_turn(tables, turn) for turn in turns]


def commit_turn(tables: Tables, turn: Turn) -> CommitResult:
    for entry in turn.entries:
        if not entry.row.location.isascii():
            check_storable(entry.row.location)
        if entry.effect is not None and isinstance(entry.effect, (Send, Publish)):
            check_storable(entry.effect.item.type, entry.effect.item.dedup)
    run = tables.runs.get(turn.key)
    if run is not None and run.accepts(turn) and _are_unread(run, turn):
        return accept(tables, run, turn)
    return recognise(tables, run, turn)


def _are_unread(run: Run, turn: Turn) -> bool:
    """Whether every item is there that the turn takes. One that is gone was taken before: by this turn if it comes
    again, else by another worker."""
    return all(item in run.inbox for item in turn.consumed) and all(item.id in run.inbox for item in turn.dead)


def recognise(tables: Tables, run: Run | None, turn: Turn) -> CommitResult:
    """Answer a turn that did not fit: accepted by an earlier call, or refused."""
    if run is None:
        return refusals.GONE
    first, end = turn.expected_seq, turn.expected_seq + len(turn.entries)
    return rules.recognise(
        turn,
        rules.Position(run.epoch, run.generation, run.next_seq, run.status, run.owner),
        lambda: [row for row in run.journal.get(turn.generation, ()) if first <= row.seq < end],
        lambda run_id: child.key if (child := tables.by_id.get(run_id)) is not None else None,
    )


def accept(tables: Tables, run: Run, turn: Turn) -> Committed:
    """Carry out a turn that fits."""
    journal = run.journal[run.generation]
    _advance(tables, run, turn)
    for item_id in turn.consumed:
        events.taken(tables, run.inbox[item_id])
        inbox.drop(tables, run, run.inbox[item_id])
    effects = _Effects(tables, run, turn)
    for entry in turn.entries:
        journal.append(entry.row if entry.effect is None else effects.apply(entry))
    if turn.pruned:
        _prune(run, journal, turn.pruned)
    if turn.continued is not None:
        _continue(run, turn.continued)
    deliveries = effects.deliveries
    dead = dead_letters.take_dead(tables, run, turn.dead, turn.at)
    if turn.status.terminal:
        deliveries += run_end.end(tables, run, journal[-1], turn.at, turn.pending_max)
    elif turn.waits is not None or turn.returned or dead:
        deliveries += events.settle(tables, run, turn.waits, turn.returned, dead, turn.at, turn.pending_max)
    if turn.notice is not None:
        deliveries += run_end.tell_parent(tables, run, turn.notice)
    if deliveries or effects.spawned or run.finished_at is not None or turn.custom_status is not None:
        tables.hint()
    return effects.committed()


def _advance(tables: Tables, run: Run, turn: Turn) -> None:
    run.next_seq += len(turn.entries)
    run.status, run.wake_at, run.updated_at, run.frontier = turn.status, turn.wake_at, turn.at, turn.frontier
    run.reason = None
    if turn.entries:
        run.recoveries = 0  # a record is progress; a frontier alone is not
    if turn.custom_status is not None:
        run.custom_status = turn.custom_status
    if turn.state is not None:
        run.state = turn.state
    if turn.status.terminal:
        runs.finish(tables, run, turn.status, turn.at)


def _prune(run: Run, journal: list[Row], pruned: Sequence[int]) -> None:
    # Counted by what was there: a turn without records that comes again is not told from the first.
    gone, before = set(pruned), len(journal)
    journal[:] = [row for row in journal if row.seq not in gone]
    run.pruned += before - len(journal)


def _continue(run: Run, following: NextGeneration) -> None:
    run.generation += 1
    run.journal[run.generation] = [following.started]
    run.next_seq = 2
    run.pruned = 0
    run.workflow, run.version = following.workflow, following.version
    run.cancel_requested = False  # asked of the generation that ended; this one can be asked anew


class _Effects:
    """What a turn does to other runs, in the change that records it."""

    __slots__ = ("_more", "_replied", "_rows", "_run", "_tables", "_turn", "deliveries", "spawned")

    def __init__(self, tables: Tables, run: Run, turn: Turn) -> None:
        self._tables = tables
        self._run = run
        self._turn = turn
        self._rows: list[Row] = []
        self.deliveries: list[Delivery] = []
        self.spawned: dict[str, RunKey] = {}
        self._more = self._replied = False

    def committed(self) -> Committed:
        return Committed(
            effects=self._rows,
            deliveries=self.deliveries,
            spawned=self.spawned,
            more=self._more,
            replied=self._replied,
        )

    def apply(self, entry: Entry) -> Row:
        """Carry out an entry's effect and choose the row that tells how it went."""
        row = self._outcome(entry)
        self._rows.append(row)
        return row

    def _outcome(self, entry: Entry) -> Row:
        tables, turn = self._tables, self._turn
        match entry.effect:
            case None:
                return entry.row
            case Send() as send:
                reason = self._send(send)
                return send.refused[reason] if reason else entry.row
            case Spawn() as spawn:
                return entry.row if self._spawn(spawn.new) else spawn.refused["conflict"]
            case Publish(item=item):
                # Waits that this turn changes are settled at its end: until then nobody knows whether the run still
                # wants a single event (`check_a_turn_that_stops_waiting_does_not_get_what_it_publishes`).
                but = self._run.key if turn.waits is not None else 0
                self.deliveries += events.publish(tables, item, turn.pending_max, but).deliveries
                self._more = True  # perhaps; looking costs little
                return entry.row
            case Reply(request=request, data=data, at=at):
                tables.replies.setdefault(request, (data, at))
                self._replied = True
                return entry.row
            case Watch() as watch:
                told = run_end.watch(tables, self._run, watch, turn.at)
                self.deliveries += told or ()
                return watch.refused["not_found"] if told is None else entry.row

    def _send(self, send: Send) -> str:
        receiver = self._tables.by_id.get(send.target)
        if receiver is None:
            return "not_found"
        outcome = inbox.offer(self._tables, receiver, send.item, self._turn.pending_max)
        if isinstance(outcome, Delivery):
            self.deliveries.append(outcome)
            return ""
        return outcome

    def _spawn(self, new: NewRun) -> bool:
        link = rules.link_to(self._run.key, new)
        child = self._tables.by_id.get(new.id)
        if child is None:
            child = runs.add_run(self._tables, new, link)
        else:
            self._tables.skip_key()
            if not rules.is_same_child(child, new, link):
                return False
        self.spawned[new.id] = child.key
        return True
