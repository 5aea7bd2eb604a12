"""Ten processes at once on one PostgreSQL: all of them make the schema, all of them want the same runs."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import psycopg
import pytest

from perdure.store.model import Release, RunFilter
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.migrate import newest
from perdure.store.postgres.queries import SQL
from perdure.testing.store.kit import create, worker
from stores.postgres_holds import stores_on
from support.lives import STORES, run_async, until
from support.postgres import server
from support.processes import Process

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")

PROCESSES = CLAIMERS = 10


async def open_and_create(url: str, name: str) -> None:
    """In a process of its own."""
    store = PostgresStore(url)
    await store.open()
    await create(store, name, owner=None)
    print("created", flush=True)
    await store.close()


def test_ten_processes_make_the_schema_once() -> None:
    """CONFORMANCE W1: they wait for the one that migrates, here for a lock that is held until all of them are there;
    then they race, and all work on the same data."""
    schema = server().fresh_schema(recycle=False)
    url = server().url(schema)
    trying = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    with ExitStack() as stack, psycopg.connect(server().admin_url) as outside:
        held = outside.execute(SQL["try_migration_lock"].replace("$1", "%s"), (schema,)).fetchone()
        assert held == (1,)
        target = "stores.test_postgres_processes:open_and_create"
        children = [stack.enter_context(Process(target, url, f"r{number}")) for number in range(PROCESSES)]

        async def all_are_there() -> None:
            await until(lambda: server().execute(trying, (f"{schema} lane",)).fetchone() == (PROCESSES,), patience=60)

        run_async(all_are_there(), patience=60)
        outside.rollback()
        for child in children:
            child.expect("created")
            assert child.wait() == 0

    async def main() -> None:
        async with stores_on(schema, 1) as (store,):
            assert len(await store.list_runs(RunFilter(), 100)) == PROCESSES

    run_async(main())
    assert server().execute(f'SELECT number FROM "{schema}".perdure_schema').fetchall() == [(newest(),)]


@pytest.mark.parametrize("rounds", [25, pytest.param(1_000, marks=pytest.mark.long)])
def test_ten_claimers_get_ten_different_runs(rounds: int) -> None:
    """CONFORMANCE W1, FAULTS C1, C2: each claimer has connections of its own, as in another process. Each run is
    claimed once a round, and nobody goes without one."""
    schema = server().fresh_schema()

    async def main() -> None:
        async with stores_on(schema, CLAIMERS) as stores:
            for number, store in enumerate(stores):
                await store.register_worker(worker(f"w{number}"))
            keys = [await create(stores[0], f"r{number}", owner=None) for number in range(CLAIMERS)]
            for number in range(1, rounds + 1):
                found = await asyncio.gather(*[store.claim(f"w{n}", 100, 1) for n, store in enumerate(stores)])
                claimed = [row for rows in found for row in rows]
                assert sorted(row.key for row in claimed) == keys
                assert [len(rows) for rows in found] == [1] * CLAIMERS
                assert {row.epoch for row in claimed} == {number}
                back = [[Release(key=row.key, epoch=row.epoch, seen_item=0, ready_at=1)] for (row,) in found]
                await asyncio.gather(*[store.release(f"w{n}", back[n]) for n, store in enumerate(stores)])

    run_async(main(), patience=300)
