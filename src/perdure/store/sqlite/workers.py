"""What workers ask for besides turns and claims: to be known, and what is new for their runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.limits import NEVER
from perdure.store.model import Delivery, News, Standing, WorkerInfo
from perdure.store.sql.rows import definitions_text, stored_item, worker_info
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session

# -- workers ---------------------------------------------------------------------------------------------


def add_worker(session: Session, worker: WorkerInfo) -> None:
    session.execute(SQL["add_worker"], (
        worker.id, worker.name, worker.host, worker.pid, worker.started_at, worker.release, definitions_text(worker),
    ))  # fmt: skip


def drain(session: Session, worker_id: str, at: int) -> None:
    session.execute(SQL["drain_worker"], (worker_id, at))


def remove_workers(session: Session, worker_ids: Iterable[str], died: bool) -> int:
    """Forget workers and free what they own. Returns how many runs that were."""
    freed = 0
    for worker_id in worker_ids:
        freed += session.change(SQL["free_runs"], (int(died), NEVER, worker_id))
        session.execute(SQL["remove_worker"], (worker_id,))
    return freed


def workers(session: Session) -> Sequence[WorkerInfo]:
    return [worker_info(values) for values in session.rows(SQL["all_workers"])]


def standings(session: Session) -> Mapping[str, Standing]:
    return {
        worker_id: Standing(held=held, draining_since=since)
        for worker_id, held, since in session.rows(SQL["standings"])
    }


def is_registered(session: Session, worker_id: str) -> bool:
    return session.row(SQL["is_registered"], (worker_id,)) is not None


def orphaned_owners(session: Session, worker_id: str) -> list[str]:
    return [owner for (owner,) in session.rows(SQL["orphaned_owners"], (worker_id,))]


# -- what is new -----------------------------------------------------------------------------------------


def news(session: Session, worker_id: str, cursor: int) -> News:
    return session.snapshot(lambda: _news(session, worker_id, cursor))


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
