"""Runs that sleep outside of memory are back in it when their time comes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from perdure import Engine, event, receive, sleep, workflow
from support.lives import Lives, run_async, until


@event
@dataclass
class Never:
    pass


@workflow
async def nap(seconds: float) -> str:
    await sleep(seconds)
    return "awake"


@workflow
async def wait_for_ever() -> None:
    await receive(Never)


def test_a_near_deadline_is_met_although_the_sweep_comes_late(lives: Lives) -> None:
    """T: the sweep comes every three seconds, the run sleeps one; it is loaded ahead of time, or never leaves."""

    async def main() -> None:
        async with lives.engine(residents_max=2, sweep_interval=3) as engine:
            began = time.monotonic()
            await asyncio.gather(*(engine.start(wait_for_ever(), id=f"waiting-{n}") for n in range(4)))
            run = await engine.start(nap(1), id="nap")
            await asyncio.gather(*(engine.start(wait_for_ever(), id=f"late-{n}") for n in range(4)))
            assert await run.result(timeout=20) == "awake"
            assert time.monotonic() - began < 2.4, "it waited for the next sweep"

    run_async(main(), patience=30)


def test_more_sleepers_than_memory_all_wake_once(lives: Lives) -> None:
    """T: near deadlines compete for two places in memory, without turning in circles."""

    async def main() -> None:
        async with lives.engine(residents_max=2, sweep_interval=0.1) as engine:
            runs = [await engine.start(nap(0.3 + n / 100), id=f"nap-{n}") for n in range(20)]
            assert await asyncio.gather(*(run.result(timeout=20) for run in runs)) == ["awake"] * 20
            for run in runs:
                kinds = [entry.kind for entry in await engine.admin.history(run.id)]
                assert kinds == ["started", "timer_fired", "completed"]
            await until(lambda: len(_residents(engine)) == 0)

    def _residents(engine: Engine) -> list[object]:
        worker = engine.worker
        assert worker is not None
        return list(worker.residents)

    run_async(main(), patience=30)
