"""Events that do not reach their run: where they go, and how they come back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from events.kinds import Note, Tick
from events.published_kinds import Flash, Gift, Job, News, Open, Stray, Whisper, collect, name_of, waiting_for
from perdure import Engine, RunFinished, RunNotFound, continue_as, receive, workflow
from perdure.admin import DeadLetterView
from perdure.errors import BadArgument, DeadLetterNotFound
from perdure.types import Status
from support.lives import Lives, run_async, until


@workflow
async def open_then(end: str) -> str:
    await receive(Open)
    if end == "fail":
        raise LookupError("on purpose")
    return end


async def ended_with_unread(engine: Engine, event: Any, end: str = "complete", run_id: str = "run") -> None:
    """A run that ends while this event lies unread in its inbox."""
    run = await engine.start(open_then(end), id=run_id)
    await run.send(event)
    if end == "terminate":
        await engine.admin.terminate(run_id)
    elif end == "cancel":
        await run.cancel()
    else:
        await run.send(Open())
    await until(lambda: has_ended(engine, run_id))


async def has_ended(engine: Engine, run_id: str) -> bool:
    return (await engine.status(run_id)).status.terminal


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("complete", Status.COMPLETED),
        ("fail", Status.FAILED),
        ("cancel", Status.CANCELLED),
        ("terminate", Status.CANCELLED),
    ],
)
def test_an_unread_event_of_an_ended_run_is_a_dead_letter(lives: Lives, end: str, status: Status) -> None:
    """CONFORMANCE E7: with its target, the target's status, times and reason; and nothing stays in the inbox."""

    async def main() -> None:
        async with lives.engine() as engine:
            before = datetime.now(UTC)
            await ended_with_unread(engine, Note("unread"), end)
            (letter,) = await engine.admin.dead_letters()
            assert (letter.type, letter.data) == ("tests.note", {"text": "unread"})
            assert (letter.target, letter.target_status) == ("run", status)
            assert before - timedelta(seconds=5) <= letter.sent_at <= letter.died_at <= datetime.now(UTC)
            assert "before reading it" in letter.reason
            row = await engine.store.get("run")
            assert row is not None
            assert await engine.store.inbox(row.key, 10) == []

    run_async(main())


def test_undelivered_broadcast_goes_to_another_run(lives: Lives) -> None:
    """CONFORMANCE E6: undelivered="broadcast", in the commit that ends the run."""

    async def main() -> None:
        async with lives.engine() as engine:
            other = await engine.start(collect(name_of(Stray), 1), id="other")
            await waiting_for(engine, Stray, "other")
            await ended_with_unread(engine, Stray(3))
            assert await other.result() == [3]
            assert await engine.admin.dead_letters() == []

    run_async(main())


def test_undelivered_discard_leaves_nothing(lives: Lives) -> None:
    """CONFORMANCE E6: undelivered="discard"."""

    async def main() -> None:
        async with lives.engine() as engine:
            await ended_with_unread(engine, Whisper(3))
            assert await engine.admin.dead_letters() == []
            assert await engine.admin.published() == []

    run_async(main())


def test_an_expired_event_is_counted_and_no_dead_letter(lives: Lives) -> None:
    """CONFORMANCE E6: expires and undelivered together."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(open_then("done"), id="run")
            await run.send(Flash(1))
            await asyncio.sleep(0.25)
            await run.send(Open())
            await run.result()
            assert await engine.admin.dead_letters() == []
            assert await engine.store.expired_events() == {"tests.flash": 1}

    run_async(main())


def test_a_published_event_held_by_an_ended_run_goes_to_the_next(lives: Lives) -> None:
    """CONFORMANCE E6, E4: one run gets it, and not one that ended without taking it."""

    async def main() -> None:
        engine = await lives.engine().open()
        for run_id in ("first", "second"):
            await engine.start(collect(name_of(Gift), 1), id=run_id)
            await waiting_for(engine, Gift, run_id)
        await lives.crash(engine)
        async with lives.engine(worker=False) as client:  # nobody works: the first run cannot take what it is given
            await client.publish(Gift(1))
            assert [one.holder for one in await client.admin.published()] == ["first"]
            await client.admin.terminate("first")
            assert [one.holder for one in await client.admin.published()] == ["second"]
            assert await client.admin.dead_letters() == []
        async with lives.engine() as engine:
            assert await engine.result("second") == [1]
            assert await engine.admin.published() == []

    run_async(main())


def test_unread_events_carry_over_continue_as(lives: Lives) -> None:
    """CONFORMANCE E8: targeted and published ones; a shared one is not read again by the next generation."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(two_generations([]), id="run")
            await waiting_for(engine, News, "run")
            await run.send(Tick(1))
            await engine.publish(News(5))
            await until(lambda: in_generation(engine, 2))
            await engine.publish(News(6))
            assert await run.result() == [5, 1, 6]

    run_async(main())


@workflow
async def two_generations(so_far: list[int]) -> list[int]:
    news = await receive(News)
    if not so_far:
        await continue_as([news.number])
    return [*so_far, (await receive(Tick)).number, news.number]


async def in_generation(engine: Engine, generation: int) -> bool:
    return (await engine.status("run")).generation == generation


# -- replaying ---------------------------------------------------------------------------------------------


async def one_letter(engine: Engine, event: Any) -> DeadLetterView:
    await ended_with_unread(engine, event, run_id="ended")
    (letter,) = await engine.admin.dead_letters()
    return letter


def test_a_replayed_letter_wakes_a_run_that_already_waits(lives: Lives) -> None:
    """CONFORMANCE E7: replay to one run; the letter is gone."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            letter = await one_letter(engine, Job(4))
            run = await engine.start(collect(name_of(Job), 1), id="waiting")
            await waiting_for(engine, Job, "waiting")
            await engine.start(collect(name_of(News), 1), id="pushes it out of memory")
            await engine.admin.replay_dead_letter(letter.id, "waiting")
            assert await run.result() == [4]
            assert await engine.admin.dead_letters() == []

    run_async(main())


def test_a_letter_replayed_to_all_is_published(lives: Lives) -> None:
    """CONFORMANCE E7: by the rules of its class."""

    async def main() -> None:
        async with lives.engine() as engine:
            letter = await one_letter(engine, News(4))
            runs = [await engine.start(collect(name_of(News), 1), id=f"run-{n}") for n in range(3)]
            for run in runs:
                await waiting_for(engine, News, run.id)
            await engine.admin.replay_dead_letter(letter.id)
            assert [await run.result() for run in runs] == [[4]] * 3
            assert await engine.admin.dead_letters() == []

    run_async(main())


def test_a_letter_that_cannot_be_replayed_stays(lives: Lives) -> None:
    """Bad input: a finished run, an unknown one, no such letter, nonsense. Nothing is written."""

    async def main() -> None:
        async with lives.engine() as engine:
            letter = await one_letter(engine, Note("x"))
            with pytest.raises(RunFinished, match="'ended' has already ended"):
                await engine.admin.replay_dead_letter(letter.id, "ended")
            with pytest.raises(RunNotFound, match="'nobody'"):
                await engine.admin.replay_dead_letter(letter.id, "nobody")
            with pytest.raises(DeadLetterNotFound, match="no dead letter 999"):
                await engine.admin.replay_dead_letter(999)
            with pytest.raises(BadArgument):
                await engine.admin.replay_dead_letter("1")  # type: ignore[arg-type]
            assert await engine.admin.dead_letters() == [letter]
            assert await engine.admin.published() == []

    run_async(main())


def test_letters_are_listed_in_pages_and_removed(lives: Lives) -> None:
    """CONFORMANCE E7: list by type, page on, remove."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(open_then("done"), id="run")
            for number in range(5):
                await run.send(Tick(number))
                await run.send(Note(str(number)))
            await run.send(Open())
            await run.result()
            ticks = await engine.admin.dead_letters(type="tests.tick", limit=3)
            assert [letter.data["number"] for letter in ticks] == [0, 1, 2]
            rest = await engine.admin.dead_letters(type="tests.tick", limit=3, after=ticks[-1].id)
            assert [letter.data["number"] for letter in rest] == [3, 4]
            assert await engine.admin.remove_dead_letters(ticks[0].id, ticks[1].id, 12345) == 2
            assert await engine.admin.remove_dead_letters(ticks[0].id) == 0
            assert len(await engine.admin.dead_letters()) == 8
            with pytest.raises(DeadLetterNotFound):
                await engine.admin.replay_dead_letter(ticks[0].id)

    run_async(main())


# -- bytes that do not fit -----------------------------------------------------------------------------------


def test_an_event_whose_bytes_do_not_fit_is_a_dead_letter_and_the_run_goes_on(lives: Lives) -> None:
    """Instead of parking the run at every try. The reason says what does not fit."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect("tests.job", 2), id="run")
            await engine.admin.send_json("run", "tests.job", b'{"number":1}')
            await engine.admin.send_json("run", "tests.job", b'{"nummer":2}')
            await engine.admin.send_json("run", "tests.job", b'{"number":3}')
            assert await run.result() == [1, 3]
            (letter,) = await engine.admin.dead_letters()
            assert (letter.target, letter.data) == ("run", {"nummer": 2})
            assert "number" in letter.reason

    run_async(main())
