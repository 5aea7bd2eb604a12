"""Connections that break while a fleet works: the server ends sessions, and everything goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

from fleet.work import fleet_engine, many_notes
from perdure.errors import StoreError
from support.effects import Effects
from support.lives import run_async, until
from support.postgres import server

RUNS, STEPS = 30, 12


def end_sessions(schema: str) -> int:
    """End every session that works in a schema; how many there were."""
    with psycopg.connect(server().admin_url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s AND pid <> "
            "pg_backend_pid()",
            (f"{schema}%",),
        ).fetchall()
    return len(found)


def test_sessions_that_the_server_ends_change_nothing(effects: Effects) -> None:
    """FAULTS B12, B13, B16: before a commit, after it, and while listening; every step is recorded once, and done
    once, because its process lives."""
    schema = server().fresh_schema()
    url = server().url(schema)
    if "application_name" not in url:
        url += f"&application_name={schema}"

    async def main() -> None:
        ended = 0
        # With a lease that outlasts this test: one whose connection is ended again and again may be lost, rightly.
        async with fleet_engine(url, 60) as one, fleet_engine(url, 60) as two:
            runs = []
            for number in range(RUNS):
                engine = one if number % 2 else two
                runs.append(await engine.start(many_notes(str(effects.path), f"r{number}", STEPS), id=f"r{number}"))
            waiting = asyncio.gather(*[run.result() for run in runs])
            for _ in range(10):
                ended += await asyncio.to_thread(end_sessions, schema)
                await asyncio.sleep(0)
            # One more, of which the caller may hear: the call is repeated then, as the error says.
            for attempt in range(100):
                try:
                    last = await one.start(many_notes(str(effects.path), "last", STEPS), id="last")
                    break
                except StoreError:
                    assert attempt < 99
            assert await waiting == [STEPS] * RUNS
            assert await last.result() == STEPS
            for name in [f"r{number}" for number in range(RUNS)] + ["last"]:
                kinds = Counter([record.kind for record in await one.admin.history(name)])
                assert kinds == Counter({"started": 1, "step_done": STEPS, "completed": 1})
            # New connections take the place of those that broke, also for the fast way.
            await until(lambda: all(engine.store.lane_is_open for engine in (one, two)))  # type: ignore[attr-defined]
        assert ended > 0
        names = [f"r{number}" for number in range(RUNS)] + ["last"]
        assert effects.counts() == Counter({f"{name} {step}": 1 for name in names for step in range(STEPS)})

    run_async(main(), patience=120)


class _Broken:
    """libpq's connection, whose next call has no answer at all, as after a reset that arrives while it sends."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name in ("exec_", "exec_prepared", "exec_params", "prepare"):
            return self._fail
        return getattr(self._real, name)

    def _fail(self, *_: object) -> None:
        raise psycopg.OperationalError("executing query failed: server closed the connection unexpectedly")


def test_a_call_that_has_no_answer_at_all_is_an_outage(effects: Effects, caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS B12: libpq may give no result, and psycopg raises its own error then; calls are repeated all the same, and
    nothing of it is unforeseen."""

    async def main() -> None:
        async with fleet_engine(server().url(server().fresh_schema()), 60) as engine:
            run = await engine.start(many_notes(str(effects.path), "a", 2), id="a")
            assert await run.result() == 2
            store: Any = engine.store
            for thread in (store._writer, store._reader):
                with thread.using:
                    session = thread.ready()
                    session.connection._connection = _Broken(session.connection._connection)
            assert await engine.cancel("a") is False
            assert (await engine.status("a")).status == "completed"
            assert await (await engine.start(many_notes(str(effects.path), "b", 2), id="b")).result() == 2

    run_async(main())
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]
