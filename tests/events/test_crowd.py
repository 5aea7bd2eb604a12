"""Many runs wait for one published event: each gets it once, or exactly one does, also over a kill on the way."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from events.published_kinds import Job, News, collect, name_of
from perdure import Engine, receive, workflow
from perdure.limits import SPREAD_RUNS_MAX
from perdure.types import Status
from support.lives import run_async, until
from support.processes import Process

#: More than two parts of the spreading.
SOME = 2 * SPREAD_RUNS_MAX + 100
MANY = 10_000


@workflow
async def never_ends() -> None:
    await receive(News, match=lambda news: False)


async def gather_crowd(database: Path, kind: type, count: int, events: int) -> None:
    """So many runs that wait, in no process's memory."""
    async with Engine(database) as engine:
        for first in range(0, count, 500):
            numbers = range(first, min(first + 500, count))
            await asyncio.gather(
                *(engine.start(collect(name_of(kind), events), id=f"run-{number}") for number in numbers)
            )
        await engine.start(never_ends(), id="never")


async def ended(engine: Engine) -> int:
    return (await engine.store.count_runs()).get(Status.COMPLETED, 0)


def all_read_it_once(tmp_path: Path, count: int, point: str, number: int, before: bool) -> None:
    database = tmp_path / "crowd.db"

    async def main() -> None:
        await gather_crowd(database, News, count, 2)
        with Process("events.crowd:publish_and_die", str(database), "news", point, str(number), str(before)) as child:
            assert await asyncio.to_thread(child.wait, 120) == -signal.SIGKILL
        async with Engine(database, sweep_interval=0.05) as engine:
            await engine.publish(News(1), key="first")  # a publisher that got no answer publishes again
            await engine.publish(News(2))
            await until(lambda: all_ended(engine, count), patience=200)
            # Twice the same, or one missing, would show in what each collected.
            assert [await engine.result(f"run-{n}") for n in range(count)] == [[1, 2]] * count

    run_async(main(), patience=280)


async def all_ended(engine: Engine, count: int) -> bool:
    return await ended(engine) >= count


def one_takes_it(tmp_path: Path, count: int, more: int, point: str, before: bool) -> None:
    database = tmp_path / "crowd.db"

    async def main() -> None:
        await gather_crowd(database, Job, count, 1)
        with Process("events.crowd:publish_and_die", str(database), "job", point, "1", str(before)) as child:
            assert await asyncio.to_thread(child.wait, 120) == -signal.SIGKILL
        async with Engine(database, sweep_interval=0.05) as engine:
            await engine.publish(Job(1), key="first")
            await until(lambda: all_ended(engine, 1))
            for number in range(2, more + 2):
                await engine.publish(Job(number))
            await until(lambda: all_ended(engine, more + 1), patience=200)
            assert await engine.admin.published() == []
            assert await ended(engine) == more + 1
            views = await engine.list(status="completed", limit=1000)
            taken = sorted([(await engine.result(view.id))[0] for view in views])
            assert taken == list(range(1, more + 2))

    run_async(main(), patience=280)


@pytest.mark.parametrize(
    ("point", "number", "before"),
    [
        ("publish", 1, True),
        ("publish", 1, False),
        ("spread", 1, True),
        ("spread", 1, False),
        ("receive", 300, True),
        ("receive", 300, False),
    ],
)
def test_every_waiting_run_reads_it_once_over_a_kill(tmp_path: Path, point: str, number: int, before: bool) -> None:
    """CONFORMANCE E6, E5 with SIGKILL: consume=False; killed around publishing, between two parts, while reading."""
    all_read_it_once(tmp_path, SOME, point, number, before)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("point", ["publish", "receive"])
def test_exactly_one_waiting_run_takes_it_over_a_kill(tmp_path: Path, point: str, before: bool) -> None:
    """CONFORMANCE E6, E5 with SIGKILL: consume=True."""
    one_takes_it(tmp_path, 300, 50, point, before)


@pytest.mark.long
@pytest.mark.parametrize(("point", "number"), [("spread", 9), ("receive", 4_000)])
def test_ten_thousand_waiting_runs_read_it_once_over_a_kill(tmp_path: Path, point: str, number: int) -> None:
    """Ten thousand waiters, consume=False: all of them, once, over a kill in the middle of the delivery."""
    all_read_it_once(tmp_path, MANY, point, number, False)


@pytest.mark.long
@pytest.mark.parametrize("point", ["publish", "receive"])
def test_exactly_one_of_ten_thousand_takes_it_over_a_kill(tmp_path: Path, point: str) -> None:
    """Ten thousand waiters, consume=True: exactly one, over a kill in the middle of the delivery."""
    one_takes_it(tmp_path, MANY, 900, point, False)
