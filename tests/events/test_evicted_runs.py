"""Events reach runs that are not in memory, and carry over `continue_as`."""

from __future__ import annotations

import asyncio

from events.kinds import Note, Stop, Tick
from perdure import Engine, continue_as, receive, send, step, workflow
from support.lives import Lives, run_async, until


@step
async def echo(text: str) -> str:
    return text


@workflow
async def echo_notes(count: int) -> list[str]:
    return [await echo((await receive(Note)).text) for _ in range(count)]


@workflow
async def tell(target: str, text: str) -> None:
    await send(target, Note(text))


def test_events_wake_runs_that_left_memory(lives: Lives) -> None:
    """CONFORMANCE E1: one place in memory, ten runs; each is evicted and comes back for its events, in order."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            runs = [await engine.start(echo_notes(3), id=f"run-{number}") for number in range(10)]
            for text in ("a", "b", "c"):
                for run in runs:
                    await run.send(Note(text))
            for run in runs:
                assert await run.result(timeout=20) == ["a", "b", "c"]

    run_async(main())


def test_an_event_to_an_evicted_run_from_another_engine(lives: Lives) -> None:
    """CONFORMANCE E1: the sender has no worker, so only the store can wake it."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine, lives.engine(worker=False) as client:
            for number in range(5):
                await engine.start(echo_notes(1), id=f"run-{number}")

            async def all_wait() -> bool:
                return len(await engine.list(status="waiting")) == 5

            await until(all_wait)
            for number in range(5):
                await client.send(f"run-{number}", Note(str(number)))
            for number in range(5):
                assert await engine.result(f"run-{number}", timeout=20) == [str(number)]

    run_async(main())


def test_a_workflow_wakes_an_evicted_run(lives: Lives) -> None:
    """CONFORMANCE E9, E1: `send` from workflow code to a run that is not in memory."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            runs = [await engine.start(echo_notes(1), id=f"run-{number}") for number in range(3)]
            for run in runs:
                await engine.start(tell(run.id, run.id), id=f"tell-{run.id}")
            for run in runs:
                assert await run.result(timeout=20) == [run.id]

    run_async(main())


def test_starting_a_run_again_while_it_is_being_evicted(lives: Lives) -> None:
    """CONFORMANCE E1, L3: an idempotent start in the middle of eviction and wake-up loses nothing."""

    async def drive(engine: Engine, number: int) -> list[str]:
        run_id = f"run-{number}"
        for text in ("a", "b", "c"):
            run = await engine.start(echo_notes(3), id=run_id)
            await run.send(Note(text))
            await engine.start(echo_notes(3), id=run_id)
        return await engine.get(run_id).result(timeout=20)

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            results = await asyncio.gather(*(drive(engine, number) for number in range(12)))
            assert results == [["a", "b", "c"]] * 12

    run_async(main())


@workflow
async def one_note_per_generation(heard: list[str], left: int) -> list[str]:
    heard = [*heard, (await receive(Note)).text]
    if left > 1:
        await continue_as(heard, left - 1)
    await receive(Stop)
    return heard


@workflow
async def continue_with_unread() -> str:
    await receive(Tick)
    await continue_as(read_the_rest())
    raise AssertionError


@workflow
async def read_the_rest() -> str:
    first, second = await receive(Note), await receive(Note)
    return first.text + second.text


def test_unread_events_carry_over_continue_as(lives: Lives) -> None:
    """CONFORMANCE E8: all events are there before the first generation ends; each goes to one generation."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(one_note_per_generation([], 5), id="run")
            for number in range(5):
                await run.send(Note(str(number)))
            await run.send(Stop())
            assert await run.result() == ["0", "1", "2", "3", "4"]
            assert (await run.status()).generation == 5

    run_async(main())


def test_unread_events_carry_over_to_another_workflow_and_over_a_crash(lives: Lives) -> None:
    """CONFORMANCE E8: with a crash around every record."""

    async def main() -> None:
        async def act(engine: Engine) -> str:
            await engine.start(continue_with_unread(), id="run")
            for number, one in enumerate([Note("a"), Note("b"), Tick(1)]):
                await engine.send("run", one, key=str(number))
            return await engine.result("run")

        for before in (False, True):
            for limit in range(1, 7):
                one = lives.fresh()
                await one.live_until(limit, act, before=before)
                async with one.engine() as engine:
                    assert await act(engine) == "ab"

    run_async(main())
