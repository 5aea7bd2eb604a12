"""The connection on which a store hears of others is ended by the server."""

from __future__ import annotations

import asyncio
import time

from fleet.work import GoOn, fleet_engine, two_notes
from perdure import Engine
from perdure.store.postgres import PostgresStore
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server

_LISTENERS = "SELECT pid, query FROM pg_stat_activity WHERE application_name = %s"


def listeners(schema: str) -> dict[int, str]:
    return dict(server().execute(_LISTENERS, (f"{schema} listener",)).fetchall())


def test_a_listener_that_is_terminated_listens_again_and_looks(effects: Effects) -> None:
    """FAULTS B16: it listens on a new connection, first that and then a look at everything: what happened in between is
    found, and the next event comes by a notification, long before any sweep."""
    schema = server().fresh_schema()
    url = server().url(schema)

    async def main() -> None:
        # It would sweep in a minute: what comes sooner was told.
        engine = Engine(PostgresStore(url), sweep_interval=60, lease=600)
        async with engine, Engine(PostgresStore(url), worker=False) as client:
            runs = [await engine.start(two_notes(str(effects.path), f"r{n}"), id=f"r{n}") for n in range(3)]
            for run in runs:
                await until(lambda: waits(client, run.id))  # noqa: B023
            await until(lambda: all(query.startswith("LISTEN") for query in listeners(schema).values()))
            before = set(listeners(schema))
            assert before
            for pid in before:
                server().execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
            await client.send("r0", GoOn())  # while nobody hears
            assert await client.result("r0", timeout=20) == ["r0 1", "r0 2"]

            async def listens_again() -> bool:
                now = listeners(schema)
                return bool(now) and not before & set(now) and all(q.startswith("LISTEN") for q in now.values())

            await until(listens_again)
            for name in ("r1", "r2"):
                began = time.monotonic()
                await client.send(name, GoOn())
                assert await client.result(name, timeout=20) == [f"{name} 1", f"{name} 2"]
                assert time.monotonic() - began < 10, "told, not swept"

    async def waits(client: Engine, run_id: str) -> bool:
        return (await client.status(run_id)).status == "waiting"

    run_async(main(), patience=60)


def test_a_fleet_that_hears_nothing_goes_on_by_looking(effects: Effects) -> None:
    """FAULTS B16: listeners are ended again and again; sweeps find what nobody was told of."""
    schema = server().fresh_schema()
    url = server().url(schema)

    async def main() -> None:
        async with fleet_engine(url, 60) as engine, Engine(url, worker=False) as client:
            ending = asyncio.ensure_future(keep_ending_listeners())
            try:
                for n in range(5):
                    await client.start(two_notes(str(effects.path), f"r{n}"), id=f"r{n}")
                    await client.send(f"r{n}", GoOn())
                assert [await client.result(f"r{n}") for n in range(5)] == [[f"r{n} 1", f"r{n} 2"] for n in range(5)]
            finally:
                ending.cancel()
            assert engine.worker is not None

    async def keep_ending_listeners() -> None:
        while True:
            for pid in listeners(schema):
                server().execute("SELECT pg_terminate_backend(%s)", (pid,))
            await asyncio.sleep(0.02)

    run_async(main(), patience=60)
