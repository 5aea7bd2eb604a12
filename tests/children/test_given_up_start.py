"""`start_child` that is cancelled before the child is there: nobody has its handle, so it is not left running."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note
from perdure import Engine, receive, sleep, start_child, step, workflow
from perdure.types import Status
from support.lives import Lives, run_async, until


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def for_ever(number: int) -> int:
    await receive(Note)
    return number


@workflow
async def gives_up(detach: bool) -> int:
    task = asyncio.create_task(start_child(for_ever(1), id="given-up", detach=detach))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await sleep(0.01)
    return await double(2)


@workflow
async def gives_up_a_conflict() -> int:
    task = asyncio.create_task(start_child(for_ever(1), id="taken"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await sleep(0.01)
    return await double(2)


@pytest.mark.parametrize("detach", [False, True])
def test_a_start_that_was_given_up_cancels_its_child_unless_it_is_detached(lives: Lives, detach: bool) -> None:
    """CONFORMANCE C7: the record of the start finds nobody waiting, and the run goes on all the same."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(gives_up(detach), id="run")).result() == 4
            if detach:
                await engine.send("given-up", Note("go"))
                assert await engine.result("given-up") == 1
                return

            async def ended() -> bool:
                return (await engine.status("given-up")).status is Status.CANCELLED

            await until(ended)

    run_async(main())


def test_a_refused_start_that_was_given_up_is_nothing(lives: Lives) -> None:
    """Nobody hears of a refusal that nobody waits for any more. CONFORMANCE C7."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(for_ever(2), id="taken")
            assert await (await engine.start(gives_up_a_conflict(), id="run")).result() == 4
            assert (await engine.status("taken")).status is not Status.CANCELLED

    run_async(main())


def test_a_given_up_start_survives_a_crash_at_every_record(lives: Lives) -> None:
    """CONFORMANCE C7: the child is asked to cancel once, in every life the same."""

    async def main() -> None:
        for limit in range(1, 8):
            other = lives.fresh()

            async def act(engine: Engine) -> int:
                return await (await engine.start(gives_up(False), id="run")).result()

            await other.live_until(limit, act)
            async with other.engine() as engine:
                assert await act(engine) == 4

    run_async(main())
