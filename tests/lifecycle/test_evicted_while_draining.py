"""A run that leaves memory while its worker drains, with a step to be worked on, is due at once for others."""

from __future__ import annotations

import asyncio

from perdure import step, workflow
from support.lives import Lives, run_async

gates: dict[str, asyncio.Event] = {}
begun: list[str] = []


@step
async def gated(name: str) -> str:
    begun.append(name)
    await gates[name].wait()
    return name


@step
async def after(name: str) -> str:
    return name


@workflow
async def two_steps(name: str) -> str:
    await gated(name)
    return await after(name)


def test_a_run_evicted_by_a_draining_worker_is_not_lost(lives: Lives) -> None:
    """FAULTS O16: its next step is not begun any more, and it must not count as waiting for nothing."""

    async def main() -> None:
        gates.update({name: asyncio.Event() for name in ("a", "b")})
        begun.clear()
        engine = await lives.engine(residents_max=1).open()
        for name in gates:
            await engine.start(two_steps(name), id=name)
        while len(begun) < 2:
            await asyncio.sleep(0.001)
        closing = asyncio.ensure_future(engine.close(grace=1))
        await asyncio.sleep(0)  # it drains from here on
        gates["a"].set()
        while engine.worker is not None and engine.worker.residents.holds("a"):
            await asyncio.sleep(0.001)
        gates["b"].set()
        await closing
        async with lives.engine(residents_max=1) as second:
            for name in gates:
                assert await second.result(name, timeout=10) == name

    run_async(main())
