"""A run that changes hands between a worker's claim and its load: only the newer owner runs it."""

from __future__ import annotations

import asyncio

from perdure import Engine, step, workflow
from perdure.store.memory import MemoryStore
from support.faulty_stores import Call, DisturbedStore, answered
from support.lives import run_async

begun: list[str] = []


@step
async def once() -> str:
    begun.append("once")
    await asyncio.sleep(0.05)
    return "done"


@workflow
async def simple() -> str:
    return await once()


def test_a_run_that_was_taken_over_before_it_was_loaded_has_one_owner() -> None:
    """FAULTS C1, C3: the load shows the successor's epoch, which gives no right to commit."""

    async def main() -> None:
        begun.clear()
        memory = MemoryStore()
        async with Engine(memory, worker=False) as client:
            await client.start(simple(), id="run")
            successors: list[Engine] = []

            async def stand_still(call: Call) -> None:
                """Between claim and load, until the worker is taken for dead and another has taken over."""
                memory.kill_worker(call.args[0])
                successors.append(await Engine(memory, sweep_interval=0.01).open())
                while not begun:
                    await asyncio.sleep(0.001)

            store = DisturbedStore(memory)
            store.after("claim", stand_still, answered, times=1)
            async with Engine(store, sweep_interval=0.01) as engine:
                assert await client.result("run", timeout=10) == "done"
                (successor,) = successors
                await successor.close()
                assert engine.worker is not None
                assert not list(engine.worker.residents)
        assert begun == ["once"]

    run_async(main())
