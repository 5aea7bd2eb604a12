"""`receive(match=...)`: takes what fits, leaves the rest, and says the same on every replay."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note, Tick
from events.published_kinds import Gift, Job, News, Open, waiting_for
from perdure import Engine, RunHandle, now, receive, step, workflow
from perdure.errors import BadArgument, RunParked
from perdure.types import Status
from support.lives import Lives, run_async, until

ASKED: list[int] = []


@workflow
async def evens_then_all(count: int) -> list[int]:
    """First three even ones, then everything that is left."""
    found = [(await receive(Tick, match=lambda tick: tick.number % 2 == 0)).number for _ in range(3)]
    return found + [(await receive(Tick)).number for _ in range(count - 3)]


def test_what_does_not_match_stays_in_order(lives: Lives) -> None:
    """CONFORMANCE E2, with match: the others are kept for the next receive."""

    async def drive(engine: Engine, handle: RunHandle[list[int]]) -> None:
        for number in range(1, 8):
            await engine.send(handle.id, Tick(number), key=str(number))

    for before in (True, False):
        result = run_async(lives.crash_at_every_record(lambda: evens_then_all(7), drive=drive, before=before))
        assert result == [2, 4, 6, 1, 3, 5, 7]


@workflow
async def wait_for_number(kind: str, number: int) -> int:
    types = {"job": Job, "gift": Gift, "news": News}
    return (await receive(types[kind], match=lambda event: event.number == number)).number


@pytest.mark.parametrize("kind", ["job", "gift"])
def test_a_published_event_goes_on_until_it_finds_its_run(lives: Lives, kind: str) -> None:
    """CONFORMANCE E6 with match: one run takes it, those it does not fit leave it to others."""
    event = {"job": Job, "gift": Gift}[kind]

    async def main() -> None:
        async with lives.engine() as engine:
            runs = [await engine.start(wait_for_number(kind, n), id=f"run-{n}") for n in range(6)]
            for run in runs:
                await waiting_for(engine, event, run.id)
            for number in (5, 3, 99, 0, 4, 1, 2):
                await engine.publish(event(number))
            assert [await run.result() for run in runs] == list(range(6))
            # What fits nobody is still there, held by no one.
            await until(lambda: free(engine, [99]))

    run_async(main())


async def free(engine: Engine, numbers: list[int]) -> bool:
    published = await engine.admin.published()
    return [(one.data["number"], one.holder) for one in published] == [(number, None) for number in numbers]


def test_what_fitted_nobody_is_offered_to_later_waits(lives: Lives) -> None:
    """No event is overlooked: a run that refused it may take it in another wait."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(two_waits(), id="run")
            await waiting_for(engine, Job, "run")
            for number in range(5):
                await engine.publish(Job(number))
            await until(lambda: free(engine, [0, 1, 2, 3, 4]))
            await run.send(Open())
            assert await run.result() == [0, 1, 2, 3, 4]

    run_async(main())


@workflow
async def two_waits() -> list[int]:
    refusing = asyncio.create_task(receive(Job, match=lambda job: False))
    await receive(Open)
    refusing.cancel()
    return [(await receive(Job)).number for _ in range(5)]


@workflow
async def count_questions() -> int:
    def even(tick: Tick) -> bool:
        ASKED.append(tick.number)
        return tick.number % 2 == 0

    found = await receive(Tick, match=even)
    await rest()
    await receive(Open)
    return found.number


@step
async def rest() -> None:
    return None


def test_match_is_asked_once_about_each_event_and_never_on_replay(lives: Lives) -> None:
    """The record says what was received; changed state or a changed function cannot change it."""

    async def main() -> None:
        ASKED.clear()
        engine = await lives.engine().open()
        run = await engine.start(count_questions(), id="run")
        for number in (1, 3, 4):
            await run.send(Tick(number))
        await waiting_for(engine, Open, "run")
        await lives.crash(engine)
        assert ASKED == [1, 3, 4]
        async with lives.engine() as engine:
            await engine.send("run", Open())
            assert await engine.result("run") == 4  # replayed from its journal by another worker
        assert ASKED == [1, 3, 4]

    run_async(main())


@workflow
async def broken_match(verb: str) -> str:
    def broken(note: Note) -> bool:
        if verb == "now":
            now()
        raise KeyError("no such note")

    return (await receive(Note, match=broken)).text


@pytest.mark.parametrize("verb", ["", "now"])
def test_a_match_that_raises_parks_the_run_and_keeps_the_event(lives: Lives, verb: str) -> None:
    """Law 8: a person fixes the function; nothing is lost. Verbs are refused in it: a replay would not ask again."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(broken_match(verb), id="run")
            await run.send(Note("x"))
            with pytest.raises(RunParked, match=r"MatchFailed: the match of receive 'receive' of 'tests.note'"):
                await run.result()
            view = await run.status()
            assert view.status is Status.PARKED
            assert ("NotInWorkflow" if verb else "KeyError: 'no such note'") in (view.reason or "")
            row = await engine.store.get("run")
            assert row is not None
            assert len(await engine.store.inbox(row.key, 10)) == 1

    run_async(main())


@workflow
async def bad_match() -> str:
    try:
        await receive(Note, match="x")  # type: ignore[call-overload]
    except BadArgument as error:
        return error.message
    return ""


def test_a_match_must_be_callable(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(bad_match(), id="run")
            assert "match is a function" in await run.result()

    run_async(main())
