"""Through PgBouncer in transaction mode, as `deploy/pgbouncer.ini` sets it up: each transaction may be on another
session of the server. The whole store suite does so in `make test-postgres-matrix`; here is what is particular."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass

import pytest

from perdure import Engine, event, receive, step, workflow
from perdure.limits import POSTGRES_POLL_SECONDS
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.watch import channel_of
from perdure.testing.store.kit import create, row_of
from support.effects import Effects
from support.lives import STORES, run_async, until
from support.postgres import has_pooler, server

pytestmark = [
    pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run"),
    pytest.mark.skipif(not has_pooler(), reason="PgBouncer is not installed: `make setup-servers`"),
]


@event
@dataclass
class PooledWord:
    word: str


@step
async def pooled_note(path: str, word: str) -> str:
    Effects(path).add(word)
    return word


@workflow
async def pooled_words(path: str, count: int) -> list[str]:
    return [await pooled_note(path, (await receive(PooledWord)).word) for _ in range(count)]


def test_a_fleet_through_a_pooler_makes_the_schema_and_does_its_work(effects: Effects) -> None:
    """FAULTS B17: from the first migration on; two workers, and a client that sends."""
    url = server(pooled=True).url(server(pooled=True).fresh_schema(recycle=False))

    async def main() -> None:
        async with Engine(url, sweep_interval=0.1), Engine(url, sweep_interval=0.1) as other:
            async with Engine(url, worker=False) as client:
                runs = [await client.start(pooled_words(str(effects.path), 3), id=f"r{n}") for n in range(10)]
                for word in "abc":
                    await asyncio.gather(*[client.send(run.id, PooledWord(f"{run.id} {word}")) for run in runs])
                results = [await run.result() for run in runs]
            assert other.store.lane_is_open  # type: ignore[attr-defined]
        assert results == [[f"r{n} {word}" for word in "abc"] for n in range(10)]
        assert effects.counts() == Counter({f"r{n} {word}": 1 for n in range(10) for word in "abc"})

    run_async(main(), patience=60)


def test_a_pooler_that_seems_to_deliver_notifications_is_found_out(caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS B17: with one session of the server, LISTEN and NOTIFY of one client meet there. What others change is
    heard of all the same: by looking."""
    url = server(pooled=True).url(server(pooled=True).fresh_schema())

    async def main() -> None:
        one, other = PostgresStore(url), PostgresStore(url)
        await one.open()
        await other.open()
        heard = asyncio.Event()
        one.watch(heard.set)
        await until(lambda: one._listener is not None and one._listener.is_pushed is not None)
        assert one._listener is not None
        assert one._listener.is_pushed is False
        heard.clear()
        await create(other, "a", owner=None)
        await asyncio.wait_for(heard.wait(), 10 * POSTGRES_POLL_SECONDS)
        await one.close()
        await other.close()

    with caplog.at_level(logging.WARNING, "perdure"):
        run_async(main(), patience=60)
    assert sum("does not deliver notifications" in record.getMessage() for record in caplog.records) == 1


def test_settings_of_one_client_are_not_those_of_the_next() -> None:
    """FAULTS B17: two schemas share the sessions of the server, and each transaction says which is its own."""
    pooled = server(pooled=True)
    urls = [pooled.url(pooled.fresh_schema()) for _ in range(2)]

    async def main() -> None:
        stores = [PostgresStore(url) for url in urls]
        for store in stores:
            await store.open()
        for number in range(20):
            await asyncio.gather(*[create(store, f"{place}-{number}") for place, store in enumerate(stores)])
        for place, store in enumerate(stores):
            assert (await row_of(store, f"{place}-19")).id == f"{place}-19"
            assert await store.get(f"{1 - place}-19") is None
            assert sum((await store.count_runs()).values()) == 20
            assert channel_of(store.location) != channel_of(stores[1 - place].location)
            await store.close()

    run_async(main(), patience=60)
