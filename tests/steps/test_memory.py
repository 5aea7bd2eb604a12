"""What steps make is let go of again."""

from __future__ import annotations

import asyncio
import gc
import sys

from perdure import Engine, step, workflow
from support.lives import run_async


@step
async def increment(number: int) -> int:
    return number + 1


@step(max_attempts=2, initial_delay=0)
async def fail_once_in_a_while(number: int) -> int:
    if number % 3 == 0:
        raise ValueError(number)
    return number


@step
async def wait_a_little(number: int) -> list[int]:
    await asyncio.sleep(0)
    return [number]


@workflow
async def all_of_them(width: int) -> int:
    total = 0
    for number in range(width):
        total = await increment(total)
        total += len(await wait_a_little(number))
    await asyncio.gather(*(increment(number) for number in range(width)))
    await asyncio.gather(*(fail_once_in_a_while(number) for number in range(5)), return_exceptions=True)
    return total


def test_steps_leave_nothing_behind() -> None:
    """A reference that is not given back would show as blocks that grow with the number of runs."""

    async def grown(engine: Engine, runs: int) -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(runs):
            assert await (await engine.start(all_of_them(20))).result() == 40
        gc.collect()
        return sys.getallocatedblocks() - before

    async def main() -> None:
        # On SQLite, as the memory store keeps what it is given.
        import tempfile

        with tempfile.TemporaryDirectory() as directory:
            async with Engine(f"{directory}/runs.db") as engine:
                await grown(engine, 30)
                few = min([await grown(engine, 10) for _ in range(3)])
                many = min([await grown(engine, 60) for _ in range(3)])
        # A single object kept by each step would be thousands more.
        assert many - few < 500

    # What the process holds already is not looked at: each collection would take as long as all that is below.
    gc.collect()
    gc.freeze()
    try:
        run_async(main())
    finally:
        gc.unfreeze()
