"""Machines whose clocks are wrong: timers go by the clock of the database."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure import Engine, sleep, workflow
from perdure.store.postgres import PostgresStore
from support.lives import run_async
from support.postgres import server
from support.processes import Process

#: By how much the clocks of the workers and the clients are wrong.
SKEWS = ("+5m", "-5m", "-1d")
RUNS, SECONDS = 40, 2.0
#: A timer may be late by this much: a sweep, and what a loaded machine takes.
LATE_SECONDS_MAX = 2.0
#: Half of what a call of the server takes: nobody knows its time any better.
DOUBT_SECONDS = 0.1


@workflow
async def skewed_nap(seconds: float) -> float:
    await sleep(seconds)
    return seconds


def faked(skew: str) -> dict[str, str]:
    """The environment of a process whose wall clock is wrong; its monotonic clock is not."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        pytest.skip("no faketime: `apt install faketime` for tests with wrong clocks")
    return {"LD_PRELOAD": str(found[0]), "FAKETIME": skew, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


async def serve_skewed(url: str) -> None:
    async with Engine(PostgresStore(url), sweep_interval=0.5, lease=5):
        import time

        print(round(time.time()), flush=True)
        await asyncio.Event().wait()


async def start_skewed(url: str, prefix: str, seconds: str) -> None:
    """A client, without a worker, whose clock is as wrong."""
    async with Engine(PostgresStore(url), worker=False) as client:
        for number in range(RUNS // len(SKEWS)):
            await client.start(skewed_nap(float(seconds)), id=f"{prefix}-{number}")
        print("started", flush=True)


@pytest.fixture
def schema() -> str:
    """One in which the server notes when each record was stored, by its own clock."""
    schema = server().fresh_schema(recycle=False)

    async def make() -> None:
        async with Engine(server().url(schema), worker=False):
            pass

    run_async(make())
    server().execute(f'ALTER TABLE "{schema}".journal ADD COLUMN stored timestamptz DEFAULT clock_timestamp()')
    return schema


def test_timers_go_by_the_clock_of_the_database(schema: str) -> None:
    """FAULTS C9: workers and clients that are five minutes ahead, five minutes behind, and a day behind; no timer is
    early by the database's clock, none late by more than two seconds."""
    url = server().url(schema)

    async def main() -> None:
        ((real,),) = server().execute("SELECT extract(epoch FROM clock_timestamp())").fetchall()
        with ExitStack() as stack:
            told = []
            for skew in SKEWS:
                worker = stack.enter_context(Process("fleet.test_clocks:serve_skewed", url, env=faked(skew)))
                told.append(int(await asyncio.to_thread(worker.line)) - float(real))
            assert [round(off / 60) for off in told] == [5, -5, -1440], "their clocks are wrong"
            for skew in SKEWS:
                name = f"by{skew}"
                with Process("fleet.test_clocks:start_skewed", url, name, str(SECONDS), env=faked(skew)) as starter:
                    assert await asyncio.to_thread(starter.line) == "started"
            async with Engine(url, worker=False) as client:
                for run in await client.list():
                    assert await client.result(run.id, timeout=20) == SECONDS

    run_async(main(), patience=60)
    rows = (
        server()
        .execute(f"""
        SELECT r.id, began.at / 1e6 - extract(epoch FROM began.stored),
            extract(epoch FROM fired.stored) - began.at / 1e6
        FROM "{schema}".runs r JOIN "{schema}".journal began ON began.run_key = r.key AND began.seq = 1
        JOIN "{schema}".journal fired ON fired.run_key = r.key AND fired.kind = 'timer_fired'
    """)
        .fetchall()
    )
    ahead = {run: float(seconds) for run, seconds, _ in rows}
    waited = {run: float(seconds) for run, _, seconds in rows}
    assert len(waited) == RUNS // len(SKEWS) * len(SKEWS)
    # The moment from which a run counts was written by a client: a little before it was stored, by the right clock.
    assert min(ahead.values()) > -LATE_SECONDS_MAX, ahead
    assert max(ahead.values()) < DOUBT_SECONDS, ahead
    assert min(waited.values()) > SECONDS - DOUBT_SECONDS, waited
    assert max(waited.values()) < SECONDS + LATE_SECONDS_MAX, waited
