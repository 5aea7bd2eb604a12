"""What workers ask for besides turns: to claim runs and to give them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.store.model import Acquittal, Release, RunKey, RunRow
from perdure.store.sql import events
from perdure.store.sql.rows import stored_run
from perdure.store.sql.session import Session

# -- runs they hold --------------------------------------------------------------------------------------


def is_anything_due(session: Session, at: int) -> bool:
    return session.value(session.sql["is_anything_due"], (at,)) is not None


def claim(
    session: Session,
    worker_id: str,
    at: int,
    limit: int,
    suspects_max: int,
    unknown: Sequence[tuple[str, str]],
    trusted: int = 0,
    marks: Sequence[int] = (),
) -> Sequence[RunRow]:
    """`marks`: where a look begins, for statements that want to know."""
    names = msgspec.json.encode([f"{workflow}\n{version}" for workflow, version in unknown]).decode()
    statement = session.sql["claim_trusted"] if trusted else session.sql["claim_runs"]
    found = session.rows(statement, (worker_id, at, limit, names, *marks))
    if suspects_max:
        found += session.rows(session.sql["claim_suspects"], (worker_id, at, suspects_max, names, trusted))
    claimed = sorted(map(stored_run, found), key=lambda run: (run.ready_at, run.key))  # RETURNING promises no order
    return [run.shown() for run in claimed]


def acquit(session: Session, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
    session.executemany(
        session.sql["acquit_run"], [(one.recoveries, one.key, one.epoch, worker_id) for one in acquittals]
    )


def held(session: Session, worker_id: str) -> Mapping[RunKey, int]:
    return dict(session.rows(session.sql["runs_held"], (worker_id,)))


def release(session: Session, worker_id: str, releases: Sequence[Release]) -> None:
    rows = [(each.key, each.epoch, each.seen_item, each.ready_at, each.reason) for each in releases]
    released = (worker_id, msgspec.json.encode(rows).decode())
    session.execute(session.sql["release_runs"], released)
    session.execute(session.sql["let_go"], released)


def park(session: Session, key: RunKey, epoch: int, reason: str, at: int) -> bool:
    if session.change(session.sql["park_run"], (reason, at, key, epoch)):
        events.return_held(session, key, at)
        return True
    # This recognises the same call again, after a lost answer.
    return session.row(session.sql["is_parked"], (key, epoch, reason)) is not None
