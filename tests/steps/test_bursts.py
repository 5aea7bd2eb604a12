"""Steps that only compute run one after another in one task, which also sees to what follows from them."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import Engine, step, workflow
from support.lives import Lives, run_async, until

host: dict[str, Any] = {}
seen: list[Any] = []


@step
async def compute(number: int) -> int:
    return number + 1


@step
async def unwant_the_next() -> str:
    """Makes the attempt that is queued behind this one unwanted, as a run that leaves memory would."""
    worker = host["engine"]._worker
    for resident in worker.coordinator:
        worker._steps.cancel(resident, "never")
    return "done"


@step
async def never() -> None:
    seen.append("began")


@workflow
async def chain(count: int) -> int:
    number = 0
    for _ in range(count):
        number = await compute(number)
        seen.append(asyncio.current_task(host["loop"]))
    return number


@workflow
async def pair() -> None:
    await asyncio.gather(unwant_the_next(), never())


async def _recorded(engine: Engine, run_id: str) -> list[str]:
    return [entry.location for entry in await engine.history(run_id)]


def test_a_burst_whose_last_attempt_is_unwanted_is_followed_up(lives: Lives) -> None:
    """Nobody else would deliver what the attempts before it returned."""
    seen.clear()

    async def main() -> None:
        async with lives.engine() as engine:
            host["engine"] = engine
            run = await engine.start(pair())

            async def is_recorded() -> bool:
                return "unwant_the_next" in await _recorded(engine, run.id)

            await until(is_recorded)
            await run.cancel()
        assert seen == []

    run_async(main())


def test_workflow_code_never_runs_inside_a_task_of_the_host(lives: Lives) -> None:
    """Newer Pythons allow one current task per thread: the turns after a burst are taken outside of it."""
    seen.clear()

    async def main() -> None:
        host["loop"] = asyncio.get_running_loop()
        async with lives.engine() as engine:
            assert await (await engine.start(chain(10))).result() == 10
        assert seen == [None] * 10

    run_async(main())


def test_a_chain_lets_others_have_their_turn(lives: Lives) -> None:
    """FAULTS B24: a run whose steps never wait does not keep the event loop to itself."""
    seen.clear()

    async def main() -> None:
        host["loop"] = asyncio.get_running_loop()
        rounds = 0
        async with lives.engine() as engine:
            run = await engine.start(chain(200))
            while len(seen) < 200:
                await asyncio.sleep(0)
                rounds += 1
            assert await run.result() == 200
        assert rounds >= 20

    run_async(main())
