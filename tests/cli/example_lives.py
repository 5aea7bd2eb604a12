"""Examples run by hand, in processes that can be killed: their workflows, on a file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from perdure import Engine

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    """The example as a module. Once per process: its names are registered."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def begin(name: str, database: str) -> None:
    """Start the example's workflow and let it run until this process is killed."""
    module = example(name)
    invocation = {
        "approval": lambda: module.reimburse("expense-1", 4200),
        "subscription": lambda: module.subscribe("ann", 0.2, 4),
        "human_in_the_loop": lambda: module.agent("a ticket"),
    }[name]()
    async with Engine(database, sweep_interval=0.02) as engine:
        run = await engine.start(invocation, id="run")
        if name == "human_in_the_loop":
            await run.send(module.Verdict("look up a ticket", go=True))
        await run.result()


async def finish(name: str, database: str) -> None:
    """The next process: does what people do, and prints the result."""
    module = example(name)
    async with Engine(database, sweep_interval=0.02) as engine:
        if name == "approval":
            await engine.send("run", module.Decision(approved=True, by="ann"))
        elif name == "human_in_the_loop":
            print(await engine.request("run", module.WhatNow(), timeout=20), flush=True)
            await engine.send("run", module.Verdict("pay for a ticket", go=False))
        print(await engine.result("run", timeout=20), flush=True)
