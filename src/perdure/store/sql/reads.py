"""Everything that only reads. Each function is one job of the reader."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import msgspec

from perdure.kernel.journal import Row
from perdure.store.model import (
    TERMINAL,
    DeadLetter,
    InboxItem,
    Loaded,
    Publication,
    RunFilter,
    RunKey,
    RunRow,
    Status,
)
from perdure.store.sql.inbox import whole_inbox
from perdure.store.sql.rows import (
    StoredRun,
    Values,
    dead_letter,
    inbox_item,
    read_policy,
    records,
    run_row,
    stored_run,
)
from perdure.store.sql.session import Session

#: The largest integer of 64 bits: "no page before this one", and "no limit".
_EVERYTHING = 2**63 - 1
_LAST_CHARACTER = 0x10FFFF


# -- runs ------------------------------------------------------------------------------------------------


def get(session: Session, run_id: str) -> RunRow | None:
    found = session.row(session.sql["run_by_id"], (run_id,))
    return None if found is None else run_row(found)


def load(session: Session, keys: Sequence[RunKey]) -> Sequence[Loaded]:
    # One snapshot: a run row with the journal of a moment later would replay into a divergence.
    wanted = msgspec.json.encode(keys).decode()
    return session.snapshot(
        lambda: [_load(session, found) for found in session.rows(session.sql["runs_by_keys"], (wanted,))]
    )


def _load(session: Session, found: Values) -> Loaded:
    run = run_row(found)
    received = whole_inbox(session, run.key) if run.last_item else ()  # most never had an item
    return Loaded(run=run, rows=journal(session, run.key, run.generation), inbox=received)


def journal(
    session: Session, key: RunKey, generation: int, after_seq: int = 0, limit: int | None = None
) -> Sequence[Row]:
    window = (key, generation, after_seq, _EVERYTHING if limit is None else limit)
    return records(session.rows(session.sql["records"], window))


def inbox(session: Session, key: RunKey, limit: int) -> Sequence[InboxItem]:
    return [inbox_item(values) for values in session.rows(session.sql["items"], (key, limit))]


def list_runs(session: Session, where: RunFilter, limit: int, before: RunKey | None) -> Sequence[RunRow]:
    below = _EVERYTHING if before is None else before
    return [run.shown() for run in session.snapshot(lambda: _list(session, where, limit, below))]


def _list(session: Session, where: RunFilter, limit: int, below: RunKey) -> list[StoredRun]:
    """Choose the statement whose index fits the filter best."""
    statuses = msgspec.json.encode(sorted(where.statuses)).decode()
    workflow, ended_before = where.workflow, where.finished_before
    if where.id_prefix is not None:
        ids = (where.id_prefix, _end_of_prefix(where.id_prefix) or session.after_all_text)
        narrowed = (below, *ids, workflow, statuses, where.parent_key, limit, ended_before)
        return _found(session, session.sql["list_by_prefix"], narrowed)
    if where.parent_key is not None:
        children = (below, where.parent_key, workflow, statuses, limit, ended_before)
        return _found(session, session.sql["list_children"], children)
    if not where.statuses and ended_before is None:
        return _found(session, session.sql["list_all"], (below, workflow, limit))
    # Open and ended runs have indexes of their own; each gives its newest, already in order.
    ended = (where.statuses or TERMINAL) & TERMINAL
    pages = [
        _found(session, session.sql["list_ended"], (below, status, workflow, limit, ended_before)) for status in ended
    ]
    if ended != where.statuses and ended_before is None:
        pages.append(_found(session, session.sql["list_open"], (below, statuses, workflow, limit)))
    return list(heapq.merge(*pages, key=lambda run: -run.key))[:limit]


def _found(session: Session, statement: str, parameters: Values) -> list[StoredRun]:
    return [stored_run(values) for values in session.rows(statement, parameters)]


def _end_of_prefix(prefix: str) -> str | None:
    """The first text after all texts with this prefix; None: there is none.

    A range has no wildcards, so a `%` or `*` in an id means itself (FAULTS F12).
    """
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place])
        if code < _LAST_CHARACTER:
            following = 0xE000 if code == 0xD7FF else code + 1  # surrogates cannot be stored
            return prefix[:place] + chr(following)
    return None


def count_runs(session: Session) -> Mapping[Status, int]:
    counted = session.snapshot(
        lambda: session.rows(session.sql["count_open"]) + session.rows(session.sql["count_ended"])
    )
    return {Status(status): count for status, count in counted}


# -- events ----------------------------------------------------------------------------------------------


def is_spreading(session: Session) -> bool:
    return session.row(session.sql["next_spreading"]) is not None


def reply(session: Session, request: str) -> bytes | None:
    found: bytes | None = session.value(session.sql["reply"], (request,))
    return found


def publications(session: Session, kind: str | None, limit: int, after: int) -> Sequence[Publication]:
    return [
        Publication(
            id=publication,
            type=type_name,
            data=data,
            published_at=published_at,
            policy=read_policy(policy),
            expires_at=expires_at,
            holder=holder,
        )
        for publication, type_name, data, published_at, policy, expires_at, holder in session.rows(
            session.sql["publications"], (kind, after, limit)
        )
    ]


def dead_letters(session: Session, kind: str | None, limit: int, after: int) -> Sequence[DeadLetter]:
    return [dead_letter(values) for values in session.rows(session.sql["dead_letters"], (kind, after, limit))]


def expired_events(session: Session) -> Mapping[str, int]:
    return dict(session.rows(session.sql["expired_events"]))
