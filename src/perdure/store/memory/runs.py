"""The life of a run besides its turns: created, terminated, resumed, paused, reopened, restored, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.limits import AT_ONCE, NEVER
from perdure.store import items, refusals
from perdure.store.memory import dead_letters, events, inbox, run_end
from perdure.store.memory.tables import Run, Tables, check_storable
from perdure.store.model import (
    CLAIMABLE,
    Delivery,
    ItemKind,
    NewRun,
    ParentLink,
    Reopen,
    RunKey,
    Snapshot,
    Status,
    restored_status,
)
from perdure.store.turn import Created, Existing


def add_run(tables: Tables, new: NewRun, parent: ParentLink | None) -> Run:
    """Create a run with its first record. Its id must be free."""
    run = Run(
        key=tables.new_key(new.id),
        id=new.id,
        workflow=new.workflow,
        version=new.version,
        input_digest=new.input_digest,
        created_at=new.created_at,
        updated_at=new.created_at,
        ready_at=AT_ONCE,
        owner=new.owner,
        epoch=0 if new.owner is None else 1,
        status=Status.PENDING if new.owner is None else Status.RUNNING,
        parent=parent,
        journal={1: [new.started]},
    )
    tables.runs[run.key] = tables.by_id[run.id] = run
    if run.owner is None:
        tables.unowned[run.key] = run
    if parent is not None:
        tables.children.setdefault(parent.key, []).append(run)
    return run


def finish(tables: Tables, run: Run, status: Status, at: int) -> None:
    """The run is terminal, nobody's, with nothing to wake for."""
    run.status, run.finished_at, run.updated_at, run.owner, run.wake_at = status, at, at, None, None
    tables.unowned.pop(run.key, None)


# -- clients ---------------------------------------------------------------------------------------------


def terminate(tables: Tables, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
    run = inbox.existing(tables, run_id)
    if run.status.terminal:
        return None
    tables.check_here()
    if run.status is Status.ARRIVING:
        raise refusals.still_coming(run_id)
    at = max(at, run.updated_at)  # records of one run never go back in time
    last = items.terminated_row(run.next_seq, at, reason)
    run.journal[run.generation].append(last)
    run.next_seq += 1
    run.epoch += 1
    # The owner stays on the row, so that `news(...).ended` can tell it; its `release` clears it.
    owner = run.owner
    finish(tables, run, Status.CANCELLED, at)
    if owner is not None:
        run.owner = owner
        tables.ended_under_owner.add(run.key)
    run.frontier = run.reason = None
    deliveries = run_end.end(tables, run, last, at, NEVER)
    if run.parent:
        deliveries += run_end.tell_parent(tables, run, items.terminated_notice(run.parent, run.id, reason, at))
    asked = items.orphaned_cancel(run.id, reason, at)
    told = [inbox.offer(tables, child, asked) for child in tables.children.get(run.key, ())]
    return [*deliveries, *(each for each in told if isinstance(each, Delivery))]


def resume(tables: Tables, run_id: str, at: int) -> bool:
    run = inbox.existing(tables, run_id)
    if run.status is not Status.PARKED:
        return False
    tables.check_here()
    run.status, run.updated_at = Status.PENDING, max(at, run.updated_at)
    _make_claimable(tables, run)
    events.look_again(tables, run, at)
    return True


# -- people ----------------------------------------------------------------------------------------------


def pause(tables: Tables, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
    check_storable(reason)
    run = inbox.existing(tables, run_id)
    if run.status not in CLAIMABLE:
        return None
    run.status, run.reason, run.updated_at = Status.PAUSED, reason, max(at, run.updated_at)
    run.epoch += 1
    tables.unowned.pop(run.key, None)
    told = inbox.offer(tables, run, items.pause_item(at)) if run.owner is not None else ""
    return [*([told] if isinstance(told, Delivery) else []), *events.return_held(tables, run, at)]


def unpause(tables: Tables, run_id: str, at: int) -> bool:
    run = inbox.existing(tables, run_id)
    if run.status is not Status.PAUSED:
        return False
    tables.check_here()
    run.status, run.owner, run.updated_at = Status.PENDING, None, max(at, run.updated_at)
    _drop_pause_items(tables, run)
    _make_claimable(tables, run)
    events.look_again(tables, run, at)
    return True


def reopen(tables: Tables, reopen: Reopen) -> bool:
    run = tables.runs.get(reopen.key)
    if run is None or (run.epoch, run.next_seq, run.status) != (reopen.epoch, reopen.record.seq, Status.FAILED):
        return False
    tables.check_here()
    if run.key in tables.coming:
        raise refusals.still_coming(run.id)
    parent = tables.runs.get(run.parent.key) if run.parent is not None else None
    if reopen.parent_seq is not None:
        if parent is None or parent.next_seq != reopen.parent_seq:
            return False
        for told in items.notices_of(run.id, run.parent, parent.inbox.values()):
            inbox.drop(tables, parent, told)
    ended_at = run.finished_at
    run.journal[run.generation].append(reopen.record)
    run.next_seq += 1
    run.epoch += 1
    run.status, run.finished_at, run.frontier = Status.PENDING, None, reopen.frontier
    run.updated_at = reopen.record.at
    _drop_pause_items(tables, run)
    _make_claimable(tables, run)
    dead_letters.restore_unread(tables, run, ended_at)
    return True


def _make_claimable(tables: Tables, run: Run) -> None:
    run.ready_at, run.recoveries, run.reason = AT_ONCE, 0, None
    tables.unowned[run.key] = run


def _drop_pause_items(tables: Tables, run: Run) -> None:
    """They are for the worker that held the run; the worker that claims it next has nothing to do with them."""
    for item in [item for item in run.inbox.values() if item.kind is ItemKind.PAUSE]:
        inbox.drop(tables, run, item)


def restore(tables: Tables, snapshot: Snapshot) -> Created | Existing:
    row = snapshot.run
    tables.check_here()
    tables.last_key += 1
    if (existing := tables.by_id.get(row.id)) is not None:
        return Existing(row=existing.row())
    run = Run(
        key=tables.last_key,
        id=row.id,
        generation=row.generation,
        workflow=row.workflow,
        version=row.version,
        input_digest=row.input_digest,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        ready_at=AT_ONCE,
        owner=None,
        epoch=0,
        status=restored_status(row.status),
        parent=None,
        journal={number: list(rows) for number, rows in snapshot.journals.items()},
        next_seq=row.next_seq,
        wake_at=row.wake_at,
        cancel_requested=row.cancel_requested,
        frontier=row.frontier,
        reason=row.reason,
        custom_status=row.custom_status,
        state=row.state,
        pruned=row.pruned,
    )
    tables.runs[run.key] = tables.by_id[run.id] = run
    events.begin_here(tables, run)
    for item in snapshot.inbox:
        inbox.put(tables, run, item)
    if run.status in CLAIMABLE:
        tables.unowned[run.key] = run
    return Created(key=run.key, epoch=0, committed=None)


def delete(tables: Tables, keys: Sequence[RunKey]) -> int:
    gone = [run for key in set(keys) if (run := tables.runs.get(key)) is not None]
    gone = [run for run in gone if run.status.terminal and run.owner is None]
    if gone and tables.departure is not None and not tables.departure.gone:
        tables.check_here()
    for run in gone:
        del tables.runs[run.key], tables.by_id[run.id]
        for item_id in run.inbox:
            tables.arrivals.pop(item_id, None)
        names = items.request_name(run.id, "")
        for name in [name for name in tables.replies if name.startswith(names)]:
            del tables.replies[name]
        tables.children.pop(run.key, None)
        tables.coming.pop(run.key, None)
        if run.parent is not None and run.parent.key in tables.children:
            tables.children[run.parent.key].remove(run)
    return len(gone)
