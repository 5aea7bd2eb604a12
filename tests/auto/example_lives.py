"""The examples of auto mode, each with what clients send to it; run in processes that kill themselves at a record."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from perdure import Engine
from support.faulty_stores import killed_at_record

EXAMPLES = Path(__file__).parents[2] / "examples" / "auto"


def example(name: str) -> ModuleType:
    """The example as a module, once per process: its names are registered."""
    full = f"auto_example_{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Life(NamedTuple):
    module: str
    workflow: str
    args: tuple[Any, ...] = ()
    send: Callable[[ModuleType], list[Any]] = lambda module: []

    def invocation(self) -> Any:
        return getattr(example(self.module), self.workflow)(*self.args)

    def events(self) -> list[Any]:
        return self.send(example(self.module))


CASES = {
    life.workflow: life
    for life in (
        Life("order", "order_processing", ("o-1",), lambda m: [m.InventoryReady(["book", "lamp"]), m.Delivered("p")]),
        Life("approval", "review", ("url", "5 ms"), lambda m: [m.Decision(approved=True)]),
        Life("values", "pipeline", ("5 ms",)),
        Life("values", "two_steps", (0.005,)),
        Life("values", "branch"),
        Life("values", "coin"),
        Life("values", "careful"),
        Life("values", "typed"),
        Life("values", "nested"),
        Life("values", "mixed", (0.005,)),
        Life("values", "several", ("5 ms",)),
        Life("loops", "process_items", (["a", "b"], [], "5 ms")),
        Life("loops", "process_recursively", (["a", "b"], [], "5 ms")),
        Life("loops", "process_each", (["a", "b"],)),
        Life("loops", "fetch_all", (["1", "2"],)),
        Life("loops", "fetch_each", (["1", "2"],)),
        Life("loops", "fetch_recursively", (["1", "2"],)),
        Life("loops", "countdown", (3,)),
        Life("loops", "sum_up", (3, 0)),
        Life("loops", "hand_over", (3,)),
        Life("payment", "payment_workflow", ("o-1",)),
        Life("payment", "three_policies"),
        Life("children", "parent"),
        Life("dead_letters", "accountant", (), lambda m: [m.PaymentConfirmation("o-1", 5)]),
        Life("dead_letters", "on_call", (), lambda m: [m.CriticalAlert("a-1", "wet")]),
        Life("dead_letters", "short_lived", (), lambda m: [m.Close()]),
    )
}


async def live(engine: Engine, life: Life) -> Any:
    run = await engine.start(life.invocation(), id="run")
    for number, event in enumerate(life.events()):
        if (await engine.status("run")).status.terminal:
            break
        await run.send(event, key=f"event-{number}")
    result = await run.result()
    if life.workflow == "parent":
        await engine.result("attic")
    return result


async def killed_after(database: str, name: str, limit: str) -> None:
    """What it does is printed by the example; "finished" comes last if nothing killed it."""
    store = killed_at_record(database, int(limit))
    async with Engine(store, sweep_interval=0.02, steps_max=1) as engine:
        await live(engine, CASES[name])
        print("finished", flush=True)
