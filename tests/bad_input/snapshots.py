"""Everything a store holds, to show that a refused call wrote nothing."""

from __future__ import annotations

from typing import Any

from perdure import Engine
from perdure.store.model import RunFilter, Status


async def everything(engine: Engine) -> list[Any]:
    store = engine.store
    found: list[Any] = [dict(await store.count_runs())]
    for row in await store.list_runs(RunFilter(), 1_000):
        rows = [
            entry for generation in range(1, row.generation + 1) for entry in await store.journal(row.key, generation)
        ]
        found.append((row, rows, list(await store.inbox(row.key, 1_000))))
    return found


async def quiet(engine: Engine, run_id: str) -> bool:
    """Whether a run has come to rest, so that a snapshot taken now stays true."""
    return (await engine.status(run_id)).status in {Status.WAITING, Status.COMPLETED, Status.FAILED, Status.CANCELLED}
