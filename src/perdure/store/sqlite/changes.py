"""Changes by clients and workers besides turns. Each function is one job of the writer, one atomic change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.limits import NEVER
from perdure.store import items, refusals
from perdure.store.base import (
    PLAIN,
    TERMINAL,
    Acquittal,
    Appended,
    CommitResult,
    Committed,
    Created,
    Creation,
    Delivery,
    Existing,
    NewItem,
    NewRun,
    Rejected,
    Release,
    RunKey,
    RunRow,
    Turn,
    WorkerInfo,
)
from perdure.store.sqlite import events, letters
from perdure.store.sqlite.bulk import only_opens
from perdure.store.sqlite.inbox import (
    Receiver,
    find_open_children,
    find_receiver,
    find_receiver_by_key,
    offer,
)
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.rows import READY_AT, run_row
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.turns import add_run, commit_turn

# -- clients ---------------------------------------------------------------------------------------------


def create(session: Session, new: NewRun, turn: Turn | None) -> Created | Existing:
    if turn is not None:
        refusals.check_first_turn(turn)
    opening = turn if turn is not None and (only_opens(turn) or _ends_at_once(turn)) else None
    key = add_run(session, new, new.parent, opening)
    if key is None:
        return Existing(row=run_row(session.rows(SQL["run_by_id"], (new.id,))[0]))
    committed: CommitResult | None = PLAIN
    if opening is None:
        committed = None if turn is None else commit_turn(session, key, turn)
    elif opening.waits:
        found = events.settle(session, key, opening.waits, (), frozenset(), opening.at, opening.pending_max)
        committed = Committed(deliveries=found)
    if isinstance(committed, Rejected):
        raise AssertionError(f"a fresh run refused its first turn: {committed.reason}")
    return Created(key=key, epoch=int(new.owner is not None), committed=committed)


def _ends_at_once(turn: Turn) -> bool:
    """Whether a first turn is also the last one and concerns nobody else: then it, too, is part of the new row, which
    never enters the indexes of open and owned runs."""
    return (
        turn.status.terminal
        and turn.notice is None
        and not (turn.waits or turn.consumed or turn.returned or turn.dead or turn.pruned)
        and all(entry.effect is None for entry in turn.entries)
    )


def create_all(session: Session, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
    return [create(session, new, turn) for new, turn in creations]


def append(session: Session, run_id: str, item: NewItem, pending_max: int) -> Appended:
    receiver = _existing(session, run_id)
    outcome = offer(session, receiver, item, pending_max)
    if isinstance(outcome, Delivery):
        return Appended(delivery=outcome)
    if outcome == "finished":
        raise refusals.finished(run_id, receiver.status)
    if outcome == "full":
        raise refusals.inbox_full(run_id, item.type, pending_max)
    return Appended(delivery=None)


def request_cancel(session: Session, run_id: str, item: NewItem) -> Delivery | None:
    outcome = offer(session, _existing(session, run_id), item)
    return outcome if isinstance(outcome, Delivery) else None


def terminate(session: Session, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
    """Reads and writes no payload, so a run whose payloads cannot be handled any more can still be ended."""
    found = session.row(SQL["run_by_id"], (run_id,))
    if found is None:
        raise refusals.not_found(run_id)
    run = run_row(found)
    if run.status in TERMINAL:
        return None
    at = max(at, run.updated_at)  # records of one run never go back in time
    session.execute(SQL["terminate_run"], (at, run.key))
    last = items.terminated_row(run.next_seq, at, reason)
    session.execute(SQL["add_record"], (run.key, run.generation, *last))
    asked = items.orphaned_cancel(run_id, reason, at)
    told: list[Delivery | str] = [*letters.end(session, run.key, last, at, NEVER)]
    told += [offer(session, child, asked) for child in find_open_children(session, run.key)]
    if run.parent is not None and (parent := find_receiver_by_key(session, run.parent.key)) is not None:
        told.insert(0, offer(session, parent, items.terminated_notice(run.parent, run_id, reason, at)))
    return [delivery for delivery in told if isinstance(delivery, Delivery)]


def resume(session: Session, run_id: str, at: int) -> bool:
    run = _existing(session, run_id)
    session.execute(SQL["resume_run"], (at, run_id))
    if session.changes() == 0:
        return False
    events.look_again(session, run.key, at)
    return True


def _existing(session: Session, run_id: str) -> Receiver:
    receiver = find_receiver(session, run_id)
    if receiver is None:
        raise refusals.not_found(run_id)
    return receiver


# -- workers ---------------------------------------------------------------------------------------------


def add_worker(session: Session, worker: WorkerInfo) -> None:
    session.execute(SQL["add_worker"], (worker.id, worker.name, worker.host, worker.pid, worker.started_at))


def remove_workers(session: Session, worker_ids: Iterable[str], died: bool) -> int:
    """Forget workers and free what they own. Returns how many runs that were."""
    freed = 0
    for worker_id in worker_ids:
        session.execute(SQL["free_runs"], (int(died), NEVER, worker_id))
        freed += session.changes()
        session.execute(SQL["remove_worker"], (worker_id,))
    return freed


def claim(
    session: Session,
    worker_id: str,
    at: int,
    limit: int,
    suspects_max: int,
    unknown: Sequence[tuple[str, str]],
    trusted: int = 0,
) -> Sequence[RunRow]:
    names = msgspec.json.encode([f"{workflow}\n{version}" for workflow, version in unknown]).decode()
    statement = SQL["claim_trusted"] if trusted else SQL["claim_runs"]
    claimed = session.rows(statement, (worker_id, at, limit, names))
    if suspects_max:
        claimed += session.rows(SQL["claim_suspects"], (worker_id, at, suspects_max, names, trusted))
    claimed.sort(key=lambda values: (values[READY_AT], values[0]))  # RETURNING promises no order
    return [run_row(values) for values in claimed]


def acquit(session: Session, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
    session.executemany(SQL["acquit_run"], [(one.recoveries, one.key, one.epoch, worker_id) for one in acquittals])


def release(session: Session, worker_id: str, releases: Sequence[Release]) -> None:
    rows = [(each.key, each.epoch, each.seen_item, each.ready_at, each.reason) for each in releases]
    released = (worker_id, msgspec.json.encode(rows).decode())
    session.execute(SQL["release_runs"], released)
    session.execute(SQL["let_go"], released)


def park(session: Session, key: RunKey, epoch: int, reason: str, at: int) -> bool:
    session.execute(SQL["park_run"], (reason, at, key, epoch))
    if session.changes() == 1:
        events.return_held(session, key, at)
        return True
    # This recognises the same call again, after a lost answer.
    return session.row(SQL["is_parked"], (key, epoch, reason)) is not None


def data_version(session: Session) -> int:
    version: int = session.value(SQL["data_version"])
    return version
