"""The children of `test_recovery_of_many`: workers with many runs in long steps, one of which may kill them."""

from __future__ import annotations

import asyncio
import os
import signal

from perdure import Engine, step, workflow
from support.effects import Effects


def _say(line: str) -> None:
    from pathlib import Path

    Effects(Path(os.environ["EFFECTS"])).add(line)


@step
async def long(name: str, seconds: float) -> str:
    _say(name)
    await asyncio.sleep(seconds)
    return name


@step
async def deadly() -> str:
    _say("poison")
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@workflow
async def in_a_long_step(name: str, seconds: float) -> str:
    return await long(name, seconds)


@workflow
async def poison() -> str:
    return await deadly()


async def start_many(path: str, count: str, seconds: str) -> None:
    """Start the runs here, in this process, and wait to be killed."""
    async with Engine(path) as engine:
        starts = (engine.start(in_a_long_step(f"run-{n}", float(seconds)), id=f"run-{n}") for n in range(int(count)))
        await asyncio.gather(*starts)
        print("started", flush=True)
        await asyncio.Event().wait()


async def work(path: str) -> None:
    """A worker that starts nothing of its own."""
    async with Engine(path, sweep_interval=0.05):
        print("open", flush=True)
        await asyncio.Event().wait()
