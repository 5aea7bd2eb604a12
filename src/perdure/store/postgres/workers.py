"""What workers ask for besides turns and claims: to be known, to be found dead, and what is new for their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.limits import NEVER, POSTGRES_REAP_RUNS_MAX
from perdure.store.model import Delivery, LeaseStanding, LeaseTerms, News, Standing, WorkerInfo
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.session import Session
from perdure.store.sql.rows import definitions_text, stored_item, worker_info

#: A worker whose connection is gone is dead if it said nothing for so many heartbeats: more than the longest pause
#: between two (1.2), so that one whose connection breaks has the time to make another.
_SILENT_HEARTBEATS = 1.5

# -- workers ---------------------------------------------------------------------------------------------


def add_worker(session: Session, worker: WorkerInfo, terms: LeaseTerms) -> tuple[int, int]:
    """Its number, and the database's time."""
    silence = _SILENT_HEARTBEATS * terms.heartbeat
    session.execute(SQL["add_worker"], (
        worker.id, worker.name, worker.host, worker.pid, worker.started_at, worker.release, definitions_text(worker),
        repr(terms.seconds), repr(silence),
    ))  # fmt: skip
    ((number, now),) = session.rows(SQL["number_of_worker"], (worker.id,))
    return number, now


def drain(session: Session, worker_id: str, at: int) -> None:
    session.execute(SQL["drain_worker"], (worker_id, at))


def store_time(session: Session) -> int:
    now: int = session.value(SQL["store_time"])
    return now


def mark_dead(session: Session, worker_id: str) -> None:
    """Find the dead: their lease is over, or their process is gone."""
    session.execute(SQL["mark_dead"], (worker_id,))


def gone_workers(session: Session, worker_id: str) -> list[str]:
    """Whose runs are to be freed."""
    marked = [found for (found,) in session.rows(SQL["marked_workers"], (worker_id,))]
    return marked + [found for (found,) in session.rows(SQL["orphaned_owners"], (worker_id,))]


def free_some(session: Session, worker_id: str, died: bool) -> int:
    """Free a page of a worker's runs; returns how many there were. The worker is forgotten with the last page."""
    keys = [key for (key,) in session.rows(SQL["runs_of_owner"], (worker_id, POSTGRES_REAP_RUNS_MAX))]
    if keys:
        session.execute(SQL["free_runs"], (int(died), NEVER, keys))
    if len(keys) < POSTGRES_REAP_RUNS_MAX:
        session.execute(SQL["remove_worker"], (worker_id,))
    return len(keys)


def workers(session: Session) -> Sequence[WorkerInfo]:
    return [worker_info(values) for values in session.rows(SQL["all_workers"])]


def standings(session: Session) -> Mapping[str, Standing]:
    return {
        worker_id: Standing(held=held, draining_since=since, lease=_lease(*times))
        for worker_id, held, since, *times in session.rows(SQL["standings"])
    }


def _lease(now: int, renewed_at: int, silent_at: int, take_over_at: int, ends_at: int) -> LeaseStanding:
    return LeaseStanding(
        now=now, renewed_at=renewed_at, silent_at=silent_at, take_over_at=take_over_at, ends_at=ends_at
    )


def dead_workers(session: Session) -> frozenset[str]:
    return frozenset(worker_id for (worker_id,) in session.rows(SQL["dead_workers"]))


def expire(session: Session, worker_ids: Sequence[str]) -> None:
    session.executemany(SQL["expire_worker"], [(worker_id,) for worker_id in worker_ids])


# -- what is new -----------------------------------------------------------------------------------------


def news(session: Session, worker_id: str, cursor: int) -> News:
    return session.snapshot(lambda: _news(session, worker_id, cursor))


def _news(session: Session, worker_id: str, cursor: int) -> News:
    # Transactions become visible in another order than they begin, so the cursor is the oldest that was under way: its
    # items, and those of newer ones, are read again (tests/stores/test_postgres_news.py).
    following: int = session.value(SQL["oldest_transaction"])
    found = session.rows(SQL["fresh_items"], (cursor, worker_id)) if cursor else []
    fresh = [Delivery(item.run_key, worker_id, item.shown()) for item in map(stored_item, found)]
    ended = [key for (key,) in session.rows(SQL["ended_under_owner"], (worker_id,))]
    return News(cursor=following, items=fresh, ended=ended)
