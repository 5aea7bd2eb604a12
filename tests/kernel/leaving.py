"""A workflow that ends its process: what `test_leaving_the_process.py` runs in children."""

from __future__ import annotations

import sys

from perdure import Engine, step, workflow

_life = {"leaves": ""}


@step
async def before_leaving(value: int) -> int:
    print("step", flush=True)
    return value


@workflow
async def exits_in_the_middle() -> int:
    value = await before_leaving(1)
    if _life["leaves"] == "exit":
        sys.exit(3)
    if _life["leaves"] == "interrupt":
        raise KeyboardInterrupt
    return value


async def life(database: str, leaves: str) -> None:
    _life["leaves"] = leaves
    async with Engine(database, sweep_interval=0.02) as engine:
        run = await engine.start(exits_in_the_middle(), id="run")
        print("result", await run.result(), flush=True)
