"""What workers ask for besides turns: to be known, to claim runs and give them back, and what is new for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perdure.limits import NEVER
from perdure.store.model import Acquittal, Delivery, News, Release, RunKey, RunRow, WorkerInfo
from perdure.store.sqlite import events
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.rows import stored_item, stored_run, worker_info
from perdure.store.sqlite.session import Session, snapshot

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


def workers(session: Session) -> Sequence[WorkerInfo]:
    return [worker_info(values) for values in session.rows(SQL["all_workers"])]


def orphaned_owners(session: Session, worker_id: str) -> list[str]:
    return [owner for (owner,) in session.rows(SQL["orphaned_owners"], (worker_id,))]


# -- runs they hold --------------------------------------------------------------------------------------


def is_anything_due(session: Session, at: int) -> bool:
    return session.value(SQL["is_anything_due"], (at,)) is not None


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
    found = session.rows(statement, (worker_id, at, limit, names))
    if suspects_max:
        found += session.rows(SQL["claim_suspects"], (worker_id, at, suspects_max, names, trusted))
    claimed = sorted(map(stored_run, found), key=lambda run: (run.ready_at, run.key))  # RETURNING promises no order
    return [run.shown() for run in claimed]


def acquit(session: Session, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
    session.executemany(SQL["acquit_run"], [(one.recoveries, one.key, one.epoch, worker_id) for one in acquittals])


def held(session: Session, worker_id: str) -> Mapping[RunKey, int]:
    return dict(session.rows(SQL["runs_held"], (worker_id,)))


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


# -- what is new -----------------------------------------------------------------------------------------


def news(session: Session, worker_id: str, cursor: int) -> News:
    return snapshot(session, lambda: _news(session, worker_id, cursor))


def _news(session: Session, worker_id: str, cursor: int) -> News:
    # A cursor is sound here: SQLite has one writer at a time, so item ids become visible in their order.
    # Nothing with a lower id can appear behind a cursor (a store with concurrent writers needs another way).
    last: int = session.value(SQL["last_item"])
    found = session.rows(SQL["fresh_items"], (cursor, worker_id)) if cursor else []
    fresh = [Delivery(item.run_key, worker_id, item.shown()) for item in map(stored_item, found)]
    ended = [key for (key,) in session.rows(SQL["ended_under_owner"], (worker_id,))]
    return News(cursor=last, items=fresh, ended=ended)


def data_version(session: Session) -> int:
    """A number that changes when another connection commits."""
    version: int = session.value(SQL["data_version"])
    return version
