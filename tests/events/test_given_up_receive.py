"""A cancelled or losing receive consumes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest

from events.kinds import Note, Stop, Tick
from perdure import Engine, RunCancelled, RunFinished, RunHandle, receive, sleep, step, workflow
from support.lives import Lives, run_async, until


@step
async def quick() -> str:
    return "quick"


@step
async def fail_at_once() -> None:
    raise LookupError("at once")


async def left_over() -> list[str]:
    """What is still in the inbox, up to Stop."""
    taken: list[str] = []
    while isinstance(one := await receive(Note, Stop), Note):
        taken.append(one.text)
    return taken


@workflow
async def race_by_wait() -> list[str]:
    tasks = [asyncio.create_task(receive(Note)), asyncio.create_task(receive(Tick))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    winner = next(iter(done)).result()
    return [repr(winner), *await left_over()]


@workflow
async def two_receives_of_one_type() -> list[str]:
    first, second = asyncio.create_task(receive(Note)), asyncio.create_task(receive(Note))
    done, _ = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    assert done == {first}
    return [first.result().text, *await left_over()]


@workflow
async def limited_by_timeout() -> list[str]:
    try:
        async with asyncio.timeout(0.01):
            await receive(Note)
    except TimeoutError:
        pass
    await receive(Tick)
    return await left_over()


@workflow
async def limited_by_wait_for() -> list[str]:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(receive(Note), 0.01)
    await receive(Tick)
    return await left_over()


@workflow
async def gathered_with_a_failure() -> list[str]:
    waiting = asyncio.create_task(receive(Note))
    try:
        await asyncio.gather(waiting, fail_at_once.options(max_attempts=1)())
    except LookupError:
        waiting.cancel()
    await receive(Tick)
    return await left_over()


@workflow
async def grouped_with_a_failure() -> list[str]:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(receive(Note))
            group.create_task(fail_at_once.options(max_attempts=1)())
    except* LookupError:
        pass
    await receive(Tick)
    return await left_over()


@workflow
async def cancelled_in_the_turn_of_the_event() -> list[str]:
    """The receive is given up by the very event that wins: the other event must stay."""
    notes = asyncio.create_task(receive(Note))
    await receive(Tick)
    notes.cancel()
    await sleep(0.001)
    return await left_over()


async def tick_then_notes(engine: Engine, handle: RunHandle[list[str]]) -> None:
    await engine.send(handle.id, Tick(1), key="tick")
    await engine.send(handle.id, Note("a"), key="a")
    await engine.send(handle.id, Note("b"), key="b")
    await engine.send(handle.id, Stop(), key="stop")


async def waits_for_a_tick(run: RunHandle[list[str]]) -> bool:
    return any("tests.tick" in wait.detail for wait in (await run.status()).waiting)


async def notes_only(engine: Engine, handle: RunHandle[list[str]]) -> None:
    for text in ("a", "b", "c"):
        await engine.send(handle.id, Note(text), key=text)
    await engine.send(handle.id, Stop(), key="stop")


def test_the_loser_of_a_wait_consumes_nothing(lives: Lives) -> None:
    """CONFORMANCE E4: asyncio.wait FIRST_COMPLETED, with a crash after every record."""

    async def drive(engine: Engine, handle: RunHandle[list[str]]) -> None:
        await tick_then_notes(engine, handle)

    async def main() -> None:
        for limit in range(1, 8):
            one = lives.fresh()

            async def act(engine: Engine) -> list[str]:
                handle = await engine.start(race_by_wait(), id="run")
                await drive(engine, handle)
                return await handle.result()

            await one.live_until(limit, act)
            async with one.engine() as engine:
                winner, *rest = await act(engine)
                won = [] if "Tick" in winner else ["a"]
                assert won + rest == ["a", "b"], f"after a crash at record {limit}"

    run_async(main())


def test_the_second_of_two_receives_of_one_type_consumes_nothing_when_cancelled(lives: Lives) -> None:
    """CONFORMANCE E4: several events wait already, so both receives could have been served in one turn."""
    result = run_async(lives.crash_at_every_record(two_receives_of_one_type, drive=notes_only))
    assert result == ["a", "b", "c"]


def test_a_receive_that_timed_out_consumes_nothing(lives: Lives) -> None:
    """CONFORMANCE E4: asyncio.timeout and wait_for around a receive. The events come after the timeout."""

    async def main() -> None:
        for invocation in (limited_by_timeout(), limited_by_wait_for()):
            async with lives.fresh().engine() as engine:
                run = await engine.start(invocation, id="run")
                await until(partial(waits_for_a_tick, run))
                await run.send(Note("a"))
                await run.send(Tick(1))
                await run.send(Stop())
                assert await run.result() == ["a"]

    run_async(main())


def test_a_receive_cancelled_with_its_group_consumes_nothing(lives: Lives) -> None:
    """CONFORMANCE E4: a sibling fails; in gather the task is cancelled by hand, in a TaskGroup by the group."""

    async def main() -> None:
        for invocation in (gathered_with_a_failure(), grouped_with_a_failure()):
            async with lives.fresh().engine() as engine:
                run = await engine.start(invocation, id="run")
                await until(partial(waits_for_a_tick, run))
                await tick_then_notes(engine, run)
                assert await run.result() == ["a", "b"]

    run_async(main())


def test_a_receive_given_up_in_the_turn_of_another_event_consumes_nothing(lives: Lives) -> None:
    """CONFORMANCE E4, over a crash after every record: both events are there when the turn is taken."""
    result = run_async(lives.crash_at_every_record(cancelled_in_the_turn_of_the_event, drive=tick_then_notes))
    assert result == ["a", "b"]


def test_cancelling_the_run_consumes_nothing(lives: Lives) -> None:
    """CONFORMANCE E4, L1: no event is taken by the receive that the cancel ends; later ones are refused."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(hold_until_cancelled(), id="run")
            await run.cancel("enough")
            with pytest.raises(RunCancelled):
                await run.result()
            assert "event_received" not in [entry.kind for entry in await engine.admin.history("run")]
            with pytest.raises(RunFinished):
                await run.send(Note("late"))

    run_async(main())


@workflow
async def hold_until_cancelled() -> None:
    try:
        await receive(Note)
    except asyncio.CancelledError:
        await quick()
        raise
