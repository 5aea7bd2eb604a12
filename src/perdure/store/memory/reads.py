"""Everything that only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from perdure.kernel.journal import Row
from perdure.store.memory.tables import PublishedEvent, Run, Tables
from perdure.store.model import DeadLetter, InboxItem, Loaded, Publication, RunFilter, RunKey, RunRow, Status

# -- runs ------------------------------------------------------------------------------------------------


def get(tables: Tables, run_id: str) -> RunRow | None:
    run = tables.by_id.get(run_id)
    return None if run is None else run.row()


def load(tables: Tables, keys: Sequence[RunKey]) -> Sequence[Loaded]:
    found = [run for key in keys if (run := tables.runs.get(key)) is not None]
    return [
        Loaded(run=run.row(), rows=list(run.journal[run.generation]), inbox=list(run.inbox.values())) for run in found
    ]


def journal(
    tables: Tables, key: RunKey, generation: int, after_seq: int = 0, limit: int | None = None
) -> Sequence[Row]:
    run = tables.runs.get(key)
    rows = run.journal.get(generation, []) if run is not None else []
    return [row for row in rows if row.seq > after_seq][:limit]


def inbox(tables: Tables, key: RunKey, limit: int) -> Sequence[InboxItem]:
    run = tables.runs.get(key)
    return list(run.inbox.values())[:limit] if run is not None else []


def list_runs(tables: Tables, where: RunFilter, limit: int, before: RunKey | None) -> Sequence[RunRow]:
    found: list[RunRow] = []
    for run in reversed(tables.runs.values()):
        if len(found) >= limit:
            break
        if (before is None or run.key < before) and _matches(run, where):
            found.append(run.row())
    return found


def _matches(run: Run, where: RunFilter) -> bool:
    return (
        (not where.statuses or run.status in where.statuses)
        and (where.workflow is None or run.workflow == where.workflow)
        and (where.id_prefix is None or run.id.startswith(where.id_prefix))
        and (where.parent_key is None or (run.parent is not None and run.parent.key == where.parent_key))
        and (where.finished_before is None or (run.finished_at is not None and run.finished_at < where.finished_before))
    )


def count_runs(tables: Tables) -> Mapping[Status, int]:
    return dict(Counter(run.status for run in tables.runs.values()))


# -- events ----------------------------------------------------------------------------------------------


def reply(tables: Tables, request: str) -> bytes | None:
    found = tables.replies.get(request)
    return None if found is None else found[0]


def publications(tables: Tables, kind: str | None, limit: int, after: int) -> Sequence[Publication]:
    found = [one for one in tables.events.publications.values() if one.id > after and kind in (None, one.type)]
    return [_shown(tables, one) for one in found[:limit]]


def _shown(tables: Tables, published: PublishedEvent) -> Publication:
    return Publication(
        id=published.id,
        type=published.type,
        data=published.data,
        published_at=published.published_at,
        policy=published.policy,
        expires_at=published.expires_at,
        holder=None if published.holder is None else tables.runs[published.holder].id,
    )


def dead_letters(tables: Tables, kind: str | None, limit: int, after: int) -> Sequence[DeadLetter]:
    return [one for one in tables.dead_letters.values() if one.id > after and kind in (None, one.type)][:limit]


def expired_events(tables: Tables) -> Mapping[str, int]:
    return dict(tables.events.expired)
