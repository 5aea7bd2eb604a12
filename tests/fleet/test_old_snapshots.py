"""A transaction of somebody else that is never ended: nothing that is deleted or changed can be cleaned up any more."""

from __future__ import annotations

import time

import psycopg
import pytest

from fleet.work import fleet_engine, many_notes
from perdure import Engine
from perdure.store.postgres import PostgresStore
from support.effects import Effects
from support.lives import run_async
from support.postgres import server

#: Enough for a look at the start of the index to read thousands of entries of runs that nobody has to claim any more.
RUNS = 6_000
#: A look without such entries takes a tenth of a millisecond; one that reads them all, several.
LOOK_SECONDS_MAX = 0.004


@pytest.mark.long
def test_claims_stay_quick_under_an_old_snapshot(effects: Effects) -> None:
    """FAULTS B22: a report is left open while thousands of runs are started, claimed and end; looking for what is due
    does not get slower by it, and neither do runs."""
    schema = server().fresh_schema(recycle=False)
    url = server().url(schema)

    async def main() -> None:
        async with fleet_engine(url, 60) as engine, Engine(PostgresStore(url), worker=False) as client:
            with psycopg.connect(server().admin_url) as outside:
                outside.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                outside.execute(f'SELECT count(*) FROM "{schema}".runs')
                for first in range(0, RUNS, 500):
                    runs = [
                        await client.start(many_notes(str(effects.path), f"r{n}", 1), id=f"r{n}")
                        for n in range(first, first + 500)
                    ]
                    for run in runs:
                        assert await run.result() == 1
                store = engine.store
                assert isinstance(store, PostgresStore)
                assert engine.worker is not None
                took = []
                for _ in range(50):
                    began = time.monotonic()
                    assert await store.claim(engine.worker.id, time.time_ns() // 1_000, 10) == []
                    took.append(time.monotonic() - began)
                last = await client.start(many_notes(str(effects.path), "last", 1), id="last")
                assert await last.result(timeout=10) == 1
                assert outside.execute("SELECT 1").fetchone() == (1,), "the snapshot was there all the time"
        quick = sorted(took)[len(took) // 2]
        assert quick < LOOK_SECONDS_MAX, f"a look took {quick * 1_000:.2f} ms"

    run_async(main(), patience=300)
