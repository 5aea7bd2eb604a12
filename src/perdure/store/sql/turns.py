"""Committing turns: the heart of the store, and its hot path.

A common turn (the run stays open, no effects) is one UPDATE that carries the whole fence in its WHERE, and
the INSERTs of its records. (When many come together, `bulk` does them all at once.) If the UPDATE hits
nothing, the turn is either one that an earlier call made durable ("raised but committed", law 6) or one that
must be refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.journal import Row
from perdure.store import refusals, rules
from perdure.store.model import Delivery, NewRun, RunKey
from perdure.store.sql import dead_letters, events, run_end
from perdure.store.sql.inbox import find_receiver, offer
from perdure.store.sql.rows import records
from perdure.store.sql.runs import add_run, existing
from perdure.store.sql.session import Session
from perdure.store.turn import (
    NO_EFFECTS,
    CommitResult,
    Committed,
    Created,
    Creation,
    Entry,
    Existing,
    Publish,
    Rejected,
    Reply,
    Send,
    Spawn,
    Turn,
    Watch,
    ends_at_once,
    only_opens,
)

# -- a new run with its first turn -----------------------------------------------------------------------


def create(session: Session, new: NewRun, turn: Turn | None) -> Created | Existing:
    if turn is not None:
        refusals.check_first_turn(turn)
    # Then the new row never enters the indexes of open and owned runs, or enters them once.
    opening = turn if turn is not None and (only_opens(turn) or ends_at_once(turn)) else None
    key = add_run(session, new, new.parent, opening)
    if key is None:
        return Existing(row=existing(session, new.id))
    committed: CommitResult | None = NO_EFFECTS
    if opening is None:
        committed = None if turn is None else commit_turn(session, key, turn)
    elif opening.waits:
        found = events.settle(session, key, opening.waits, (), frozenset(), opening.at, opening.pending_max)
        committed = Committed(deliveries=found)
    if isinstance(committed, Rejected):
        raise AssertionError(f"a fresh run refused its first turn: {committed.reason}")
    return Created(key=key, epoch=int(new.owner is not None), committed=committed)


def create_all(session: Session, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
    return [create(session, new, turn) for new, turn in creations]


# -- turns -----------------------------------------------------------------------------------------------


def commit_turns(session: Session, turns: Sequence[Turn]) -> Sequence[CommitResult]:
    return [commit_turn(session, turn.key, turn) for turn in turns]


def _is_about_events(turn: Turn) -> bool:
    return bool(turn.waits is not None or turn.returned or turn.dead)


def commit_turn(session: Session, key: RunKey, turn: Turn) -> CommitResult:
    """Make one turn durable, all or nothing. The key is apart because a first turn does not know it."""
    taken: list[int | None] = []
    if turn.consumed or turn.dead:
        taken = [
            session.value(session.sql["item_is_unread"], (item, key))
            for item in (*turn.consumed, *(one.id for one in turn.dead))
        ]
        if None in taken:
            # Taken before: by this very turn if it comes again, else by a worker that had the run in between.
            return _recognise(session, key, turn)
    moved = _update_run(session, key, turn)
    if not moved:
        return _recognise(session, key, turn)
    generation = turn.generation
    if turn.consumed:
        session.executemany(session.sql["take_item"], [(item_id, key) for item_id in turn.consumed])
        session.executemany(
            session.sql["remove_publication"],
            [(publication,) for publication in taken if publication and publication > 0],
        )
    if turn.pruned:
        # Counted by what was there: a turn without records that comes again is not told from the first.
        gone = session.change_many(session.sql["prune_record"], [(key, generation, seq) for seq in turn.pruned])
        session.execute(session.sql["note_pruned"], (gone, key, generation))
    about_events = moved == _WITH_REMAINS or _is_about_events(turn)
    for entry in turn.entries:
        if entry.effect is not None:
            break
        session.execute(session.sql["add_record"], (key, generation, *entry.row))
    else:
        if turn.continued is None and turn.notice is None and not about_events:
            return NO_EFFECTS
    return _Effects(session, key, turn).apply(about_events=about_events)


#: What became of a turn that fits: the run goes on or has nothing left behind, or it ended and something is to be done.
_MOVED, _WITH_REMAINS = 1, 2


def _update_run(session: Session, key: RunKey, turn: Turn) -> int:
    """Move the run on, if the turn fits where the run is; 0: it does not."""
    status, expected = turn.status, turn.expected_seq
    fence = (key, turn.epoch, turn.generation, expected, turn.worker)
    next_seq = expected + len(turn.entries)
    shown = (turn.frontier, turn.custom_status, turn.state)
    following = turn.continued
    if following is not None:
        named = (status, following.workflow, following.version, turn.at, turn.wake_at)
        return session.change(session.sql["continue_run"], (*named, *shown, *fence))
    if status.terminal:
        if session.change(session.sql["finish_run"], (status, next_seq, turn.at, *shown, *fence)):
            return _WITH_REMAINS if session.value(session.sql["leaves_something"], (key,)) else _MOVED
        return 0
    return session.change(session.sql["advance_run"], (status, next_seq, turn.at, turn.wake_at, *shown, *fence))


class _Effects:
    """What a turn does to other runs, in the transaction that records it."""

    def __init__(self, session: Session, key: RunKey, turn: Turn) -> None:
        self._session = session
        self._key = key
        self._turn = turn
        self._effects: list[Row] = []
        self._deliveries: list[Delivery] = []
        self._spawned: dict[str, RunKey] = {}
        self._more = self._replied = False

    def apply(self, *, about_events: bool) -> Committed:
        """Everything from the first entry with an effect on; the entries before it are written already."""
        turn, generation = self._turn, self._turn.generation
        started = False
        for entry in turn.entries:
            started = started or entry.effect is not None
            if started:
                self._session.execute(self._session.sql["add_record"], (self._key, generation, *self._row(entry)))
        if turn.continued is not None:
            self._session.execute(self._session.sql["add_record"], (self._key, generation + 1, *turn.continued.started))
        if about_events:
            self._about_events()
        if turn.notice is not None:
            parent = self._session.value(self._session.sql["parent_of_run"], (self._key,))
            self._deliveries += run_end.tell_parent(self._session, parent, turn.notice)
        return Committed(
            effects=self._effects,
            deliveries=self._deliveries,
            spawned=self._spawned,
            more=self._more,
            replied=self._replied,
        )

    def _about_events(self) -> None:
        """What the run waits for now, or what it leaves behind."""
        session, key, turn = self._session, self._key, self._turn
        dead = dead_letters.take_dead(session, key, turn.dead, turn.at) if turn.dead else set[str]()
        if turn.status.terminal:
            last = turn.entries[-1].row
            self._deliveries += run_end.end(session, key, last, turn.at, turn.pending_max)
        else:
            self._deliveries += events.settle(session, key, turn.waits, turn.returned, dead, turn.at, turn.pending_max)

    def _row(self, entry: Entry) -> Row:
        """Carry out an entry's effect and choose the row that tells how it went."""
        match entry.effect:
            case None:
                return entry.row
            case Send() as send:
                reason = self._send(send)
                row = send.refused[reason] if reason else entry.row
            case Spawn() as spawn:
                row = entry.row if self._spawn(spawn.new) else spawn.refused["conflict"]
            case Publish(item=item):
                # Waits that this turn changes are settled at its end: until then nobody knows whether the run still
                # wants a single event (`check_a_turn_that_stops_waiting_does_not_get_what_it_publishes`).
                but = self._key if self._turn.waits is not None else 0
                published = events.publish(self._session, item, self._turn.pending_max, but)
                self._deliveries += published.deliveries
                self._more = self._more or published.more
                row = entry.row
            case Reply(request=request, data=data, at=at):
                self._session.execute(self._session.sql["add_reply"], (request, data, at))
                self._replied = True
                row = entry.row
            case Watch() as watch:
                told = run_end.watch(self._session, self._key, self._turn.generation, watch, self._turn.at)
                row = watch.refused["not_found"] if told is None else entry.row
                self._deliveries += told or ()
        self._effects.append(row)
        return row

    def _send(self, send: Send) -> str:
        receiver = find_receiver(self._session, send.target)
        if receiver is None:
            return "not_found"
        outcome = offer(self._session, receiver, send.item, self._turn.pending_max)
        if isinstance(outcome, Delivery):
            self._deliveries.append(outcome)
            return ""
        return outcome

    def _spawn(self, new: NewRun) -> bool:
        link = rules.link_to(self._key, new)
        key = add_run(self._session, new, link)
        if key is None:
            taken = existing(self._session, new.id)
            if not rules.is_same_child(taken, new, link):
                return False
            key = taken.key
        self._spawned[new.id] = key
        return True


def _recognise(session: Session, key: RunKey, turn: Turn) -> CommitResult:
    """Answer a turn that did not fit: accepted by an earlier call, or refused."""
    position = session.row(session.sql["position_of_run"], (key,))
    window = (key, turn.generation, turn.expected_seq - 1, len(turn.entries))
    return rules.recognise(
        turn,
        None if position is None else rules.Position._make(position),
        lambda: records(session.rows(session.sql["records"], window)),
        lambda run_id: child.key if (child := find_receiver(session, run_id)) is not None else None,
    )
