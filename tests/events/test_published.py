"""A published event reaches exactly those that its class says, once each, wherever they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from events.published_kinds import (
    Alarm,
    Call,
    Flash,
    Gift,
    Glow,
    Job,
    Medal,
    News,
    Open,
    Prize,
    Rule,
    collect,
    collect_in_time,
    collect_later,
    name_of,
    waiting_for,
)
from perdure import Engine, RunHandle, publish, receive, step, workflow
from perdure.types import Status
from support.lives import Lives, run_async, until

SHARED = [News, Alarm, Rule]
SINGLE = [Job, Call, Gift, Prize, Medal]


async def begin(engine: Engine, kind: Any, count: int) -> list[RunHandle[list[int]]]:
    runs = [await engine.start(collect(name_of(kind), 1), id=f"run-{number}") for number in range(count)]
    for run in runs:
        await waiting_for(engine, kind, run.id)
    return runs


async def finished(engine: Engine, runs: list[RunHandle[list[int]]]) -> list[str]:
    views = [await engine.status(run.id) for run in runs]
    return [view.id for view in views if view.status is Status.COMPLETED]


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("kind", SHARED)
def test_every_waiting_run_reads_a_shared_event_once(lives: Lives, kind: Any, count: int) -> None:
    """CONFORMANCE E6: consume=False, to one and to many waiters."""

    async def main() -> None:
        async with lives.engine() as engine:
            runs = await begin(engine, kind, count)
            await engine.publish(kind(5))
            assert [await run.result() for run in runs] == [[5]] * count

    run_async(main())


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("kind", SINGLE)
def test_one_waiting_run_takes_a_single_event(lives: Lives, kind: Any, count: int) -> None:
    """CONFORMANCE E6: consume=True, and delivery="first" whatever consume says."""

    async def main() -> None:
        async with lives.engine() as engine:
            runs = await begin(engine, kind, count)
            await engine.publish(kind(5))
            await until(lambda: one_has_ended(engine, runs))
            assert await engine.admin.published() == []
            # The others wait on: each further event ends one more of them.
            for number in range(count - 1):
                await engine.publish(kind(number))
            assert sorted([(await run.result())[0] for run in runs]) == sorted([5, *range(count - 1)])

    run_async(main())


async def one_has_ended(engine: Engine, runs: list[RunHandle[list[int]]]) -> bool:
    ended = await finished(engine, runs)
    assert len(ended) <= 1
    return len(ended) == 1


@pytest.mark.parametrize("kind", [Job, News, Rule, Gift, Prize, Medal])
def test_an_event_published_to_nobody_waits_for_a_run_that_was_there(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6, E1: published to 0 waiters; the run begins to wait afterwards."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect_later(name_of(kind), 1), id="run")
            await engine.publish(kind(7))
            await run.send(Open())
            assert await run.result() == [7]

    run_async(main())


@pytest.mark.parametrize("kind", [Alarm, Call])
def test_after_wait_is_only_for_runs_that_already_wait(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6: delivery="after_wait"."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect_later(name_of(kind), 1), id="run")
            await engine.publish(kind(1))
            await run.send(Open())
            await waiting_for(engine, kind, "run")
            await engine.publish(kind(2))
            assert await run.result() == [2]

    run_async(main())


@pytest.mark.parametrize("kind", [Rule, Gift, Prize, Medal])
def test_later_runs_see_what_is_for_all(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6: delivery="all" and "first" reach a run that did not exist yet."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.publish(kind(3))
            run = await engine.start(collect(name_of(kind), 1), id="run")
            assert await run.result() == [3]

    run_async(main())


@pytest.mark.parametrize("kind", [Job, News])
def test_after_create_is_only_for_runs_created_before(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6: delivery="after_create", the default."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.publish(kind(1))
            run = await engine.start(collect(name_of(kind), 1), id="run")
            await waiting_for(engine, kind, "run")
            await engine.publish(kind(2))
            assert await run.result() == [2]

    run_async(main())


@pytest.mark.parametrize("kind", [News, Rule, Job, Gift])
def test_published_events_come_in_order(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E2 for published events: FIFO per type, none twice, also over several waits."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect_later(name_of(kind), 20), id="run")
            for number in range(10):
                await engine.publish(kind(number))
            await run.send(Open())
            await waiting_for(engine, kind, "run")
            for number in range(10, 20):
                await engine.publish(kind(number))
            assert await run.result() == list(range(20))

    run_async(main())


def test_targeted_events_come_before_published_ones(lives: Lives) -> None:
    """Whatever came first."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect_later(name_of(News), 4), id="run")
            await engine.publish(News(1))
            await engine.publish(News(2))
            await run.send(News(11))
            await run.send(News(12))
            await run.send(Open())
            assert await run.result() == [11, 12, 1, 2]

    run_async(main())


@pytest.mark.parametrize("kind", [News, Job])
def test_the_same_key_is_published_once(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E3 for published events: identical ones all count, one key counts once."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect_in_time(name_of(kind), 0.3), id="run")
            await waiting_for(engine, kind, "run")
            for _ in range(2):
                await engine.publish(kind(1), key="one")
                await engine.publish(kind(2))
            assert await run.result() == [1, 2, 2]

    run_async(main())


@pytest.mark.parametrize("kind", [Flash, Glow])
def test_an_expired_event_reaches_nobody(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6: expires; unread ones are counted."""

    async def main() -> None:
        async with lives.engine() as engine:
            early = await engine.start(collect(name_of(kind), 1), id="early")
            await waiting_for(engine, kind, "early")
            await engine.publish(kind(1))
            assert await early.result() == [1]
            await engine.publish(kind(2))
            await asyncio.sleep(0.25)
            late = await engine.start(collect_in_time(name_of(kind), 0.1), id="late")
            assert await late.result() == []

    run_async(main())


def test_a_targeted_event_expires_in_the_inbox(lives: Lives) -> None:
    """CONFORMANCE E6: expires holds for events that were sent to a run, too."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect_later(name_of(Flash), 1), id="run")
            await run.send(Flash(1))
            await asyncio.sleep(0.25)
            await run.send(Open())
            await waiting_for(engine, Flash, "run")
            await run.send(Flash(2))
            assert await run.result() == [2]

    run_async(main())


@pytest.mark.parametrize("kind", [News, Job, Alarm, Call, Rule, Gift, Prize])
def test_runs_that_are_not_in_memory_are_woken(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6: evicted runs get what was published, each once."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            runs = await begin(engine, kind, 5)
            for number in range(5 if kind in SINGLE else 1):
                await engine.publish(kind(number))
            got = sorted([(await run.result())[0] for run in runs])
            assert got == (list(range(5)) if kind in SINGLE else [0] * 5)

    run_async(main())


@pytest.mark.parametrize("kind", [News, Job])
def test_runs_of_another_process_are_woken(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E6: a client without a worker publishes for the runs of an engine elsewhere."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            (run,) = await begin(engine, kind, 1)
            await client.publish(kind(4))
            assert await run.result() == [4]

    run_async(main())


@workflow
async def publish_twice(kind: str) -> None:
    await publish(News(1))
    await leave()
    await publish(News(2))


@step
async def leave() -> None:
    return None


def test_publishing_from_workflow_code_happens_once(lives: Lives) -> None:
    """CONFORMANCE E9: a crash after each record in turn; the readers get each event once."""

    async def main() -> None:
        for limit in range(1, 8):
            fresh = lives.fresh()

            async def act(engine: Engine) -> list[list[int]]:
                readers = [await engine.start(collect(name_of(News), 2), id=f"reader-{n}") for n in range(2)]
                for reader in readers:
                    await waiting_for_or_done(engine, reader.id)
                await (await engine.start(publish_twice("x"), id="publisher")).result()
                return [await reader.result() for reader in readers]

            await fresh.live_until(limit, act)
            async with fresh.engine() as engine:
                assert await act(engine) == [[1, 2], [1, 2]]

    run_async(main())


async def waiting_for_or_done(engine: Engine, run_id: str) -> None:
    async def ready() -> bool:
        view = await engine.status(run_id)
        return view.status.terminal or bool(view.waiting)

    await until(ready)


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("kind", [News, Job])
def test_a_crash_around_the_record_of_a_published_event(lives: Lives, kind: Any, before: bool) -> None:
    """CONFORMANCE E5 for published events."""

    async def drive(engine: Engine, handle: RunHandle[list[int]]) -> None:
        for number in range(3):
            await engine.publish(kind(number), key=str(number))

    result = run_async(lives.crash_at_every_record(lambda: collect(name_of(kind), 3), drive=drive, before=before))
    assert result == [0, 1, 2]


@workflow
async def give_up(kind: str, seconds: float) -> str:
    from events.published_kinds import KINDS

    try:
        await receive(KINDS[kind], timeout=seconds)
    except TimeoutError:
        await receive(Open)
        return "gave up"
    return "got it"


@pytest.mark.parametrize("kind", [Job, Gift, Prize])
def test_a_run_that_gave_up_keeps_nothing_from_the_others(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E4: its wait is over, so the next run gets the event."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(give_up(name_of(kind), 0), id="first")
            await waiting_for(engine, Open, "first")
            second = await engine.start(collect(name_of(kind), 1), id="second")
            await waiting_for(engine, kind, "second")
            await engine.publish(kind(1))
            assert await second.result() == [1]

    run_async(main())


@pytest.mark.parametrize("kind", [Job, News])
def test_the_race_of_publishing_and_waiting_loses_nothing(lives: Lives, kind: Any) -> None:
    """CONFORMANCE E1 for published events: published before, while and after the run begins to wait."""

    async def main() -> None:
        async with lives.engine() as engine:
            for ticks in range(40):
                run = await engine.start(collect_later(name_of(kind), 1), id=f"run-{ticks}")

                async def later(ticks: int = ticks) -> None:
                    for _ in range(ticks):
                        await asyncio.sleep(0)
                    await engine.publish(kind(ticks))

                await asyncio.gather(later(), run.send(Open()))
                assert await run.result(timeout=10) == [ticks]

    run_async(main(), patience=60)
