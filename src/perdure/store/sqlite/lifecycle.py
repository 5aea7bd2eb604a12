"""Changes that people make to runs: pause, reopen, restore, delete. Each function is one job of the writer."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.store import items, refusals
from perdure.store.base import (
    CLAIMABLE,
    Created,
    Delivery,
    Existing,
    Reopen,
    RunKey,
    RunRow,
    Snapshot,
    restored_status,
)
from perdure.store.sqlite import events, letters
from perdure.store.sqlite.inbox import Receiver, find_receiver_by_key, offer, put, whole_inbox
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.rows import run_row
from perdure.store.sqlite.session import Session

#: What goes with a run that is deleted.
_REMAINS = (SQL["delete_journal"], SQL["delete_inbox"], SQL["delete_keys"], SQL["forget_waits"])


def pause(session: Session, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
    run = _existing(session, run_id)
    if run.status not in CLAIMABLE:
        return None
    session.execute(SQL["pause_run"], (reason, at, run.key))
    owner = find_receiver_by_key(session, run.key) if run.owner is not None else None
    told = offer(session, owner, items.pause_item(at)) if owner is not None else ""
    return [*([told] if isinstance(told, Delivery) else []), *events.return_held(session, run.key, at)]


def unpause(session: Session, run_id: str, at: int) -> bool:
    run = _existing(session, run_id)
    session.execute(SQL["unpause_run"], (at, run.key))
    if session.changes() == 0:
        return False
    session.execute(SQL["drop_pause_items"], (run.key,))
    events.look_again(session, run.key, at)
    return True


def reopen(session: Session, reopen: Reopen) -> bool:
    found = session.row(SQL["run_by_key"], (reopen.key,))
    if found is None:
        return False
    run, record = run_row(found), reopen.record
    if reopen.parent_seq is not None and (
        run.parent is None or session.value(SQL["next_seq_of"], (run.parent.key,)) != reopen.parent_seq
    ):
        return False
    session.execute(SQL["reopen_run"], (reopen.frontier, record.at, run.key, reopen.epoch, record.seq))
    if session.changes() == 0:
        return False
    session.execute(SQL["add_record"], (run.key, run.generation, *record))
    if reopen.parent_seq is not None and run.parent is not None:
        told = items.notices_of(run.id, run.parent, whole_inbox(session, run.parent.key))
        session.executemany(SQL["take_item"], [(item.id, run.parent.key) for item in told])
    session.execute(SQL["drop_pause_items"], (run.key,))
    letters.give_back(session, run.key, run.finished_at)
    return True


def restore(session: Session, snapshot: Snapshot) -> Created | Existing:
    run = snapshot.run
    named = (run.id, run.generation, run.workflow, run.version, restored_status(run.status))
    times = (run.wake_at, run.next_seq, run.created_at, run.updated_at, run.finished_at)
    shown = (int(run.cancel_requested), run.frontier, run.reason, run.custom_status, run.state, run.pruned)
    session.execute(SQL["restore_run"], (*named, *times, run.input_digest, *shown))
    if session.changes() == 0:
        return Existing(row=run_row(session.rows(SQL["run_by_id"], (run.id,))[0]))
    key = session.connection.last_insert_rowid()
    for generation, rows in snapshot.journals.items():
        session.executemany(SQL["add_record"], [(key, generation, *row) for row in rows])
    events.begin_here(session, key)
    last_item = 0
    for item in snapshot.inbox:
        receiver = Receiver(key, run.id, run.status, None, int(run.cancel_requested), last_item)
        last_item = put(session, receiver, item).item.id
    return Created(key=key, epoch=0, committed=None)


def delete(session: Session, keys: Sequence[RunKey]) -> int:
    gone = 0
    for key in keys:
        run_id: str | None = session.value(SQL["delete_run"], (key,))
        if run_id is not None:
            gone += 1
            for statement in _REMAINS:
                session.execute(statement, (key,))
            session.execute(SQL["delete_replies"], (items.request_name(run_id, ""),))
    return gone


def _existing(session: Session, run_id: str) -> RunRow:
    found = session.row(SQL["run_by_id"], (run_id,))
    if found is None:
        raise refusals.not_found(run_id)
    return run_row(found)
