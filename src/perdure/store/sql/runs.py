"""The life of a run besides its turns: created, terminated, resumed, paused, reopened, restored, deleted. Each function
that the store calls is one job of the writer, one atomic change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.limits import NEVER
from perdure.store import items, refusals
from perdure.store.model import (
    CLAIMABLE,
    TERMINAL,
    Delivery,
    NewRun,
    ParentLink,
    Reopen,
    RunKey,
    RunRow,
    Snapshot,
    Status,
    restored_status,
)
from perdure.store.sql import dead_letters, events, run_end
from perdure.store.sql.inbox import Receiver, find_open_children, find_receiver_by_key, offer, put, whole_inbox
from perdure.store.sql.rows import run_row
from perdure.store.sql.session import Session
from perdure.store.turn import Created, Existing, Turn

#: What goes with a run that is deleted: statements.
_REMAINS = ("delete_journal", "delete_inbox", "delete_keys", "forget_waits", "forget_coming")


def add_run(session: Session, new: NewRun, parent: ParentLink | None, opening: Turn | None = None) -> RunKey | None:
    """Create a run with its first record, and as far as `opening` has brought it. None if the id is taken."""
    owner, status = new.owner, Status.PENDING if new.owner is None else Status.RUNNING
    next_seq, updated_at, finished_at = 2, new.created_at, None
    shown: tuple[Any, ...] = (None, None, None, None)
    if opening is not None:
        status = opening.status
        shown = (opening.wake_at, opening.frontier, opening.custom_status, opening.state)
        if status.terminal:
            owner, next_seq, updated_at, finished_at = None, 2 + len(opening.entries), opening.at, opening.at
    named = (new.id, new.workflow, new.version, status, int(new.owner is not None), owner)
    times = (next_seq, new.created_at, updated_at, finished_at)
    link = (None, None, None) if parent is None else (parent.key, parent.generation, parent.location)
    key = session.insert(session.sql["add_run"], (*named, *times, new.input_digest, *link, *shown))
    if key is None:
        return None
    session.execute(session.sql["add_record"], (key, 1, *new.started))
    if opening is not None:
        for entry in opening.entries:
            session.execute(session.sql["add_record"], (key, 1, *entry.row))
    return key


def find(session: Session, run_id: str) -> RunRow | None:
    found = session.row(session.sql["run_by_id"], (run_id,))
    return None if found is None else run_row(found)


def existing(session: Session, run_id: str) -> RunRow:
    run = find(session, run_id)
    if run is None:
        raise refusals.not_found(run_id)
    return run


# -- clients ---------------------------------------------------------------------------------------------


def terminate(session: Session, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
    """Reads and writes no payload, so a run whose payloads cannot be handled any more can still be ended."""
    run = existing(session, run_id)
    if run.status in TERMINAL:
        return None
    if run.status is Status.ARRIVING:
        raise refusals.still_coming(run_id)
    at = max(at, run.updated_at)  # records of one run never go back in time
    session.execute(session.sql["terminate_run"], (at, run.key))
    last = items.terminated_row(run.next_seq, at, reason)
    session.execute(session.sql["add_record"], (run.key, run.generation, *last))
    deliveries = run_end.end(session, run.key, last, at, NEVER)
    if run.parent is not None:
        notice = items.terminated_notice(run.parent, run_id, reason, at)
        deliveries += run_end.tell_parent(session, run.parent.key, notice)
    asked = items.orphaned_cancel(run_id, reason, at)
    told = [offer(session, child, asked) for child in find_open_children(session, run.key)]
    return [*deliveries, *(each for each in told if isinstance(each, Delivery))]


def resume(session: Session, run_id: str, at: int) -> bool:
    run = existing(session, run_id)
    if not session.change(session.sql["resume_run"], (at, run_id)):
        return False
    events.look_again(session, run.key, at)
    return True


# -- people ----------------------------------------------------------------------------------------------


def pause(session: Session, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
    run = existing(session, run_id)
    if run.status not in CLAIMABLE:
        return None
    session.execute(session.sql["pause_run"], (reason, at, run.key))
    owner = find_receiver_by_key(session, run.key) if run.owner is not None else None
    told = offer(session, owner, items.pause_item(at)) if owner is not None else ""
    return [*([told] if isinstance(told, Delivery) else []), *events.return_held(session, run.key, at)]


def unpause(session: Session, run_id: str, at: int) -> bool:
    run = existing(session, run_id)
    if not session.change(session.sql["unpause_run"], (at, run.key)):
        return False
    session.execute(session.sql["drop_pause_items"], (run.key,))
    events.look_again(session, run.key, at)
    return True


def reopen(session: Session, reopen: Reopen) -> bool:
    found = session.row(session.sql["run_by_key"], (reopen.key,))
    if found is None:
        return False
    run, record = run_row(found), reopen.record
    if reopen.parent_seq is not None and (
        run.parent is None or session.value(session.sql["next_seq_of"], (run.parent.key,)) != reopen.parent_seq
    ):
        return False
    if session.row(session.sql["is_coming"], (run.key,)) is not None:
        raise refusals.still_coming(run.id)
    fence = (run.key, reopen.epoch, record.seq)
    if not session.change(session.sql["reopen_run"], (reopen.frontier, record.at, *fence)):
        return False
    session.execute(session.sql["add_record"], (run.key, run.generation, *record))
    if reopen.parent_seq is not None and run.parent is not None:
        told = items.notices_of(run.id, run.parent, whole_inbox(session, run.parent.key))
        session.executemany(session.sql["take_item"], [(item.id, run.parent.key) for item in told])
    session.execute(session.sql["drop_pause_items"], (run.key,))
    dead_letters.restore_unread(session, run.key, run.finished_at)
    return True


def restore(session: Session, snapshot: Snapshot) -> Created | Existing:
    run = snapshot.run
    named = (run.id, run.generation, run.workflow, run.version, restored_status(run.status))
    times = (run.wake_at, run.next_seq, run.created_at, run.updated_at, run.finished_at)
    shown = (int(run.cancel_requested), run.frontier, run.reason, run.custom_status, run.state, run.pruned)
    key = session.insert(session.sql["restore_run"], (*named, *times, run.input_digest, *shown))
    if key is None:
        return Existing(row=existing(session, run.id))
    for generation, rows in snapshot.journals.items():
        session.executemany(session.sql["add_record"], [(key, generation, *row) for row in rows])
    events.begin_here(session, key)
    last_item = 0
    for item in snapshot.inbox:
        receiver = Receiver(key, run.id, run.status, None, int(run.cancel_requested), last_item)
        last_item = put(session, receiver, item).item.id
    return Created(key=key, epoch=0, committed=None)


def delete(session: Session, keys: Sequence[RunKey]) -> int:
    gone = 0
    for key in keys:
        run_id: str | None = session.value(session.sql["delete_run"], (key,))
        if run_id is not None:
            gone += 1
            for name in _REMAINS:
                session.execute(session.sql[name], (key,))
            session.execute(session.sql["delete_replies"], (items.request_name(run_id, ""),))
    return gone
