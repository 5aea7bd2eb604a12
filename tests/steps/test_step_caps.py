"""Caps on how many attempts run at once: per step (`concurrency`) and per worker (`steps_max`)."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Engine, step, workflow
from support.lives import Lives, run_async, until

running = 0
peak = 0
entered: list[int] = []
gate = asyncio.Event()


@pytest.fixture(autouse=True)
def fresh() -> None:
    global running, peak
    running = peak = 0
    entered.clear()


async def _work(number: int) -> int:
    global running, peak
    running += 1
    peak = max(peak, running)
    entered.append(number)
    try:
        await gate.wait()
    finally:
        running -= 1
    return number


@step(concurrency=2)
async def capped(number: int) -> int:
    return await _work(number)


@step
async def uncapped(number: int) -> int:
    return await _work(number)


@workflow
async def many_capped(count: int) -> list[int]:
    return list(await asyncio.gather(*(capped(number) for number in range(count))))


@workflow
async def one_capped(number: int) -> int:
    return await capped(number)


@workflow
async def many_uncapped(count: int) -> list[int]:
    return list(await asyncio.gather(*(uncapped(number) for number in range(count))))


def test_concurrency_of_a_step_is_kept_over_all_runs(lives: Lives) -> None:
    """Two at once, in one run and over several, first come first served."""

    async def main() -> None:
        global gate
        gate = asyncio.Event()
        async with lives.engine() as engine:
            handles = [await engine.start(many_capped(3)), await engine.start(many_capped(3))]
            await until(lambda: len(entered) == 2)
            gate.set()
            assert [await handle.result() for handle in handles] == [[0, 1, 2], [0, 1, 2]]

    run_async(main())
    assert peak == 2
    assert len(entered) == 6


def test_steps_max_of_the_worker_is_kept(lives: Lives) -> None:
    """No more steps run at once than `steps_max`, over all runs of the worker."""

    async def main() -> None:
        global gate
        gate = asyncio.Event()
        async with lives.engine(steps_max=3) as engine:
            handle = await engine.start(many_uncapped(10))
            await until(lambda: len(entered) == 3)
            gate.set()
            assert await handle.result() == list(range(10))

    run_async(main())
    assert peak == 3
    assert entered == list(range(10)), "first come, first served"


def test_cancelled_attempt_in_the_queue_does_not_block_those_behind_it(lives: Lives) -> None:
    """A and B run, C and D wait; C is cancelled; D still gets its turn."""

    async def main() -> None:
        global gate
        gate = asyncio.Event()
        async with lives.engine() as engine:
            handles = [await engine.start(one_capped(number), id=f"run-{number}") for number in range(5)]
            await until(lambda: len(entered) == 2)
            for number in (2, 3):
                assert await engine.admin.terminate(f"run-{number}")
            gate.set()
            results = [await handles[number].result(timeout=5) for number in (0, 1, 4)]
            assert results == [0, 1, 4]

    run_async(main())
    assert sorted(entered) == [0, 1, 4]


def test_attempt_ended_before_it_began_gives_its_place_back(lives: Lives) -> None:
    """Runs terminated in the very moment their step starts leave no hole in the capacity."""

    async def main() -> None:
        global gate
        gate = asyncio.Event()
        gate.set()
        async with lives.engine(steps_max=2) as engine:
            for number in range(6):
                await engine.start(one_capped(number), id=f"short-{number}")
                await engine.admin.terminate(f"short-{number}")
            assert await (await engine.start(one_capped(99), id="last")).result(timeout=5) == 99
            await idle(engine)

    async def idle(engine: Engine) -> None:
        assert engine.worker is not None
        steps = engine.worker.attempts
        await until(lambda: steps.running == 0, patience=5)

    run_async(main())
