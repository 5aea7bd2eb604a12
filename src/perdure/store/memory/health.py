"""How a store in memory is: nothing can be wrong with it but what is in it."""

from __future__ import annotations

import time
from collections import Counter

from perdure.store.health import Contents, DueRun, Examined, Parked, WorkerHealth, WorkerState, fine, kind_of
from perdure.store.memory.tables import Run, Tables
from perdure.store.model import Status


def examine(tables: Tables) -> Examined:
    text = "in memory: gone when this process ends, and seen by no other"
    return Examined(":memory:", (fine("store", text),), _contents(tables))


def _contents(tables: Tables) -> Contents:
    now = time.time_ns() // 1_000
    runs = tables.runs.values()
    due = sorted((run for run in tables.unowned.values() if run.ready_at <= now), key=_since)
    dead = tables.dead_letters.values()
    return Contents(
        now=now,
        counts=Counter(run.status for run in runs),
        parked=_parked([run for run in runs if run.status is Status.PARKED]),
        workers=_workers(tables),
        due=[_due(run) for run in due[:10]],
        due_count=len(due),
        dead_letters=len(dead),
        dead_letter_since=min((one.died_at for one in dead), default=None),
    )


def _since(run: Run) -> int:
    return run.ready_at or run.updated_at


def _due(run: Run) -> DueRun:
    return DueRun(run.id, run.workflow, run.version, _since(run), run.recoveries, run.reason)


def _parked(runs: list[Run]) -> list[Parked]:
    counts = Counter(kind_of(run.reason) for run in runs)
    examples = {kind_of(run.reason): run.id for run in runs}
    return [Parked(kind, count, examples[kind]) for kind, count in counts.most_common()]


def _workers(tables: Tables) -> list[WorkerHealth]:
    owned = Counter(run.owner for run in tables.runs.values())
    return [
        WorkerHealth(
            one.id, one.name, one.host, one.pid, _state(tables, one.id), owned[one.id], definitions=one.definitions
        )
        for one in tables.workers.values()
    ]


def _state(tables: Tables, worker_id: str) -> WorkerState:
    return "dead" if worker_id in tables.dead_workers else "alive"
