"""Claims on PostgreSQL: each worker of a fleet gets its share of what is due."""

from __future__ import annotations

import pytest

from perdure.store.postgres import PostgresStore
from perdure.testing.store.kit import new_run, worker
from support.lives import STORES, run_async
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")


async def pending(store: PostgresStore, count: int) -> None:
    for number in range(count):
        await store.create(new_run(f"r{number}", owner=None), None)


async def claimed_in_one_look(store: PostgresStore, worker_id: str) -> int:
    """As the sweep does: until nothing comes any more."""
    count = len(await store.claim(worker_id, NOW, 30))
    while found := await store.claim(worker_id, NOW, 30, again=True):
        count += len(found)
    return count


NOW = 4_000_000_000_000_000


def test_a_worker_leaves_the_others_their_share() -> None:
    """Of 100 due runs one of two workers takes 60 in a look: its half, and ten; then the other gets the rest, as due as
    they were."""
    url = server().url(server().fresh_schema())

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        await pending(store, 100)
        assert await claimed_in_one_look(store, "w1") == 60
        assert await claimed_in_one_look(store, "w2") == 30
        assert await claimed_in_one_look(store, "w1") == 10
        assert await claimed_in_one_look(store, "w2") == 0
        await store.close()

    run_async(main(), patience=60)


def test_a_worker_that_is_alone_takes_everything() -> None:
    """Those that are dead get no share."""
    url = server().url(schema := server().fresh_schema())

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        server().declare_dead(schema, "w2")
        await pending(store, 100)
        assert await claimed_in_one_look(store, "w1") == 100
        await store.close()

    run_async(main(), patience=60)
