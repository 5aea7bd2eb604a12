"""The server refuses statements that are in order: it ends transactions, cancels statements, or has stale plans."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from fleet.work import GoOn, fleet_engine, many_notes, two_notes
from perdure import Engine, event, publish, receive, start_child, workflow
from perdure.errors import StoreUnavailable
from perdure.store.postgres import PostgresStore, connection, lane
from perdure.store.postgres.faults import Fault
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server


@event
@dataclass
class Injected:
    pass


@workflow
async def child_of_injected(path: str, name: str) -> int:
    return await many_notes(path, name, 2)


@workflow
async def everything(path: str, name: str) -> list[int]:
    """A turn of each kind: plain ones, a child, a publication, waits, an event that was sent."""
    first = await many_notes(path, f"{name} a", 2)
    child = await start_child(child_of_injected(path, f"{name} b"))
    await receive(GoOn)
    await publish(Injected())
    await receive(Injected)
    return [first, await child.result()]


@pytest.fixture
def schema() -> str:
    return server().fresh_schema(recycle=False)


#: Of every kind of table that is written to, in and out of the lane.
TABLES = ("runs", "journal", "inbox", "waits", "publications", "workers")


def inject(schema: str, table: str, state: str, times: int) -> None:
    """The first changes of a table fail with this SQLSTATE. Counted by a sequence: that is not rolled back."""
    server().execute(f"""
        CREATE SEQUENCE "{schema}".injected_{table};
        CREATE FUNCTION "{schema}".fail_{table}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            IF nextval('"{schema}".injected_{table}') <= {times} THEN
                RAISE EXCEPTION 'injected' USING ERRCODE = '{state}';
            END IF;
            RETURN coalesce(NEW, OLD);
        END $$;
        CREATE TRIGGER fail_{table} BEFORE INSERT OR UPDATE OR DELETE ON "{schema}".{table}
        FOR EACH ROW EXECUTE FUNCTION "{schema}".fail_{table}();
    """)


def injected(schema: str, table: str) -> int:
    ((count,),) = server().execute(f'SELECT last_value FROM "{schema}".injected_{table}')
    return int(count)


async def ten_runs(engine: Engine, path: str) -> None:
    """Started and fed by somebody who repeats what was not answered."""
    for n in range(10):
        await repeated(lambda: engine.start(everything(path, f"r{n}"), id=f"r{n}"))  # noqa: B023
        await repeated(lambda: engine.send(f"r{n}", GoOn(), key="go"))  # noqa: B023
    assert [await engine.result(f"r{n}") for n in range(10)] == [[2, 2]] * 10
    for n in range(10):
        kinds = Counter([record.kind for record in await engine.admin.history(f"r{n}")])
        assert kinds == Counter(
            {"started": 1, "child_started": 2, "child_done": 2, "event_received": 2, "published": 1, "completed": 1}
        )


async def repeated(call: Callable[[], Awaitable[object]]) -> None:
    for _ in range(100):
        with contextlib.suppress(StoreUnavailable):
            await call()
            return
    raise AssertionError("refused a hundred times")


#: What each run's steps do, once.
DONE = Counter({f"r{n} {part} {number}": 1 for n in range(10) for part in "ab" for number in range(2)})


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03"])
def test_errors_that_a_repeat_cures_reach_nobody(state: str, schema: str, effects: Effects) -> None:
    """FAULTS B14: serialization failures, deadlocks and locks that were not had, at changes of every table: the whole
    transaction is repeated, nobody hears of it, and every step is recorded and done once."""
    url = server().url(schema)

    async def main() -> None:
        async with Engine(url, worker=False):
            pass  # the schema is there now
        for table in TABLES:
            inject(schema, table, state, 5)
        async with fleet_engine(url, 60) as engine:
            run = await engine.start(everything(str(effects.path), "first"), id="first")
            await run.send(GoOn())
            assert await run.result() == [2, 2]
            await ten_runs(engine, str(effects.path))
        assert all(injected(schema, table) > 5 for table in TABLES)

    run_async(main(), patience=60)
    assert effects.counts() == DONE + Counter({f"first {part} {n}": 1 for part in "ab" for n in range(2)})


def test_statements_that_are_cancelled_are_waited_out(schema: str, effects: Effects) -> None:
    """FAULTS B18: `pg_cancel_backend`, or a timeout of statements, at changes of every table: a caller may hear of it
    and repeats the call, runs go on by themselves."""
    tables = [table for table in TABLES if table != "workers"]  # so that closing, which says what went wrong, succeeds

    async def main() -> None:
        async with fleet_engine(server().url(schema), 60) as engine:
            for table in tables:
                inject(schema, table, "57014", 3)
            await ten_runs(engine, str(effects.path))
        assert all(injected(schema, table) > 3 for table in tables)

    run_async(main(), patience=60)
    assert effects.counts() == DONE


def test_plans_that_a_migration_made_stale_are_made_again(
    schema: str, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS B20: columns get another type while workers have statements prepared; all connections go on, also the
    fast way."""
    states: Counter[str] = Counter()
    remember_faults(monkeypatch, states)
    path = str(effects.path)

    async def main() -> None:
        url = server().url(schema)
        async with fleet_engine(url, 60) as engine, Engine(url, worker=False) as client:
            # Of both: so that what claims, loads and commits is prepared.
            before = [await (client if n % 2 else engine).start(two_notes(path, f"a{n}"), id=f"a{n}") for n in range(6)]
            await until(lambda: len(effects.lines()) == 6)
            server().execute(f"""
                ALTER TABLE "{schema}".runs ALTER COLUMN epoch TYPE bigint, ALTER COLUMN generation TYPE bigint,
                    ALTER COLUMN next_seq TYPE bigint, ALTER COLUMN recoveries TYPE bigint;
                ALTER TABLE "{schema}".journal ALTER COLUMN generation TYPE bigint, ALTER COLUMN seq TYPE bigint;
            """)
            for run in before:
                await run.send(GoOn())
            assert [await run.result() for run in before] == [[f"a{n} 1", f"a{n} 2"] for n in range(6)]
            later = await client.start(many_notes(path, "b", 20), id="b")  # without a worker: it must be claimed
            assert await later.result() == 20
            last = await engine.start(many_notes(path, "c", 5), id="c")
            assert await last.result() == 5
            store = engine.store
            assert isinstance(store, PostgresStore)
            await until(lambda: store.lane_is_open)
        names = [f"a{n} {part}" for n in range(6) for part in (1, 2)] + [f"b {n}" for n in range(20)]
        names += [f"c {n}" for n in range(5)]
        assert effects.counts() == Counter(dict.fromkeys(names, 1))

    run_async(main(), patience=60)
    assert states["0A000"] > 0


def remember_faults(monkeypatch: pytest.MonkeyPatch, states: Counter[str]) -> None:
    """Count what the server says, by SQLSTATE."""
    original = connection.fault_of

    def fault_of(*arguments: Any) -> Fault:
        fault = original(*arguments)
        states[fault.state] += 1
        return fault

    for module in (connection, lane):
        monkeypatch.setattr(module, "fault_of", fault_of)


def test_a_statement_timeout_is_waited_out(schema: str, effects: Effects) -> None:
    """FAULTS B18: the server ends every statement that takes longer than 0.3 s, and somebody else keeps a lock for a
    while; what was ended is repeated."""
    url = f"{server().url(schema)}&options=-c%20statement_timeout%3D300"

    async def main() -> None:
        async with fleet_engine(url, 60) as engine:
            run = await engine.start(two_notes(str(effects.path), "a"), id="a")
            await until(lambda: effects.lines() == ["a 1"])
            with psycopg.connect(server().admin_url) as outside:
                outside.execute(f'SELECT * FROM "{schema}".runs FOR UPDATE')
                sending = asyncio.ensure_future(run.send(GoOn()))
                await asyncio.sleep(1.0)  # longer than three timeouts: the point is that time passes
                assert not sending.done()
            await sending
            assert await run.result() == ["a 1", "a 2"]
        assert effects.counts() == Counter({"a 1": 1, "a 2": 1})

    run_async(main(), patience=60)
