"""`receive_many`: so many at once, or as many as come in time; all or nothing."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note, Stop, Tick
from events.published_kinds import Job, News, waiting_for
from perdure import Engine, RunHandle, receive, receive_many, step, workflow
from perdure.errors import BadArgument
from support.lives import Lives, run_async


@step
async def nothing() -> None:
    return None


@workflow
async def in_threes(rounds: int) -> list[list[int]]:
    found: list[list[int]] = []
    for _ in range(rounds):
        found.append([tick.number for tick in await receive_many(Tick, max=3)])
        await nothing()
    return found


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_so_many_events_come_together_over_crashes(lives: Lives, before: bool) -> None:
    """CONFORMANCE E2, E5: counts, in order, each event once."""

    async def drive(engine: Engine, handle: RunHandle[list[list[int]]]) -> None:
        for number in range(9):
            await engine.send(handle.id, Tick(number), key=str(number))

    result = run_async(lives.crash_at_every_record(lambda: in_threes(3), drive=drive, before=before))
    assert result == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@workflow
async def as_many_as_come(seconds: float) -> tuple[list[int], int]:
    found = await receive_many(Tick, Note, max=10, timeout=seconds)
    return [event.number for event in found if isinstance(event, Tick)], len(found)


@pytest.mark.parametrize("sent", [0, 1, 4])
def test_when_time_is_over_it_takes_what_is_there(lives: Lives, sent: int) -> None:
    """CONFORMANCE E2: timeouts; also when nothing came."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(as_many_as_come(0.2), id="run")
            for number in range(sent):
                await run.send(Tick(number))
            if sent:
                await run.send(Note("x"))
            assert await run.result() == (list(range(sent)), sent + bool(sent))

    run_async(main())


@workflow
async def cancelled_on_the_way() -> list[int]:
    collecting = asyncio.create_task(receive_many(Tick, max=5))
    await receive(Stop)
    collecting.cancel()
    return [(await receive(Tick)).number for _ in range(3)]


def test_a_cancelled_wait_for_many_takes_nothing(lives: Lives) -> None:
    """CONFORMANCE E4: three of five had come; all three are still there."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(cancelled_on_the_way(), id="run")
            for number in range(3):
                await run.send(Tick(number))
            await run.send(Stop())
            assert await run.result() == [0, 1, 2]

    run_async(main())


@workflow
async def many_published(kind: str, count: int) -> list[int]:
    if kind == "job":
        return [job.number for job in await receive_many(Job, max=count)]
    return [news.number for news in await receive_many(News, max=count, match=lambda news: news.number > 2)]


@pytest.mark.parametrize(("kind", "expected"), [("job", [0, 1, 2, 3]), ("news", [3, 4, 5, 6])])
def test_many_published_events(lives: Lives, kind: str, expected: list[int]) -> None:
    """CONFORMANCE E6: a run that waits for several holds several."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(many_published(kind, 4), id="run")
            await waiting_for(engine, Job if kind == "job" else News, "run")
            for number in range(7):
                await engine.publish(Job(number) if kind == "job" else News(number))
            assert await run.result() == expected

    run_async(main())


@workflow
async def wrong_counts() -> list[str]:
    said: list[str] = []
    for count in (0, -1, True, 1.5, 100_000):
        try:
            await receive_many(Tick, max=count)  # type: ignore[arg-type]
        except BadArgument as error:
            said.append(error.message)
    return said


def test_impossible_counts_are_refused(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            said = await (await engine.start(wrong_counts(), id="run")).result()
            assert len(said) == 5
            assert all("between 1 and 1000" in one for one in said)

    run_async(main())
