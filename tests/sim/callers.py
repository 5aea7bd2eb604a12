"""What the clients of a simulated world do: start runs (twice), send, publish, cancel, pause, wait, and insist."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel import programs as wild
from perdure.engine.engine import Engine
from perdure.errors import ActionRefused, EngineNotOpen, PerdureError, RunFinished, RunNotFound, RunParked, StoreError
from sim import programs
from sim.nodes import Node

if TYPE_CHECKING:
    from sim.world import World


class Callers:
    """The code of all clients. A call is made in the life of a node; if that ends, it is made again."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Roots that somebody asked to cancel.
        self.cancelled: set[str] = set()
        #: What was heard of each run.
        self.told: dict[str, Any] = {}
        self._numbers = 0

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def insist(self, node: Node, call: Callable[[Engine], Any]) -> Any:
        """Repeat until the store answers, as a careful client does."""
        while True:
            engine, life = node.engine, node.life
            if engine is not None and node.context is not None:
                # In the node's own life: if that ends, nobody hears the answer.
                asking = self._world.loop.create_task(call(engine), context=node.context)
                while not asking.done() and node.life == life and not node.is_down:
                    await asyncio.wait({asking}, timeout=2.0)
                if asking.done() and not asking.cancelled():  # else its host has cancelled everything
                    try:
                        return asking.result()
                    except (StoreError, EngineNotOpen):
                        pass
            await asyncio.sleep(0.2)

    async def run(self, node: Node, rng: random.Random) -> None:
        for root in self._world.roots:
            if rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(0, 1.0))
            starter = rng.choice([node, node, *self._world.workers])
            self._world.loop.create_task(self.start(starter, root, self._world.programs[root]))
        busy = rng.choice([2.0, 0.3])
        for _ in range(rng.randint(0, 10)):
            await asyncio.sleep(rng.uniform(0, busy))
            root = rng.choice(self._world.roots)
            match rng.choice(["send", "send", "send", "publish", "publish", "cancel", "pause", "terminate", "look"]):
                case "pause":
                    self._world.loop.create_task(self.hold(node, root, rng.uniform(0, 3.0)))
                case "terminate" if rng.random() < 0.2:
                    self.cancelled.add(root)
                    self._world.loop.create_task(self.terminate(node, root))
                case "send":
                    self._world.loop.create_task(self.send(node, root))
                case "publish":
                    self._world.loop.create_task(self.publish(node, rng.random() < 0.5))
                case "cancel" if rng.random() < 0.4:
                    self.cancelled.add(root)
                    self._world.loop.create_task(self.cancel(node, root))
                case _:
                    self._world.loop.create_task(self.result(node, root))

    async def start(self, node: Node, run_id: str, trees: list[programs.Node]) -> None:
        await self.insist(node, lambda engine: engine.start(programs.sim_program(trees, []), id=run_id))

    async def send(self, node: Node, run_id: str) -> None:
        number = self._number()
        try:
            await self.insist(node, lambda engine: engine.send(run_id, wild.Nudge(number), key=f"k{number}"))
        except (RunNotFound, RunFinished):
            return
        self._world.ledger.accepted.add((run_id, number))

    async def publish(self, node: Node, single: bool) -> None:
        number = self._number()
        what = programs.Bell(number) if single else programs.Chime(number)
        await self.insist(node, lambda engine: engine.publish(what, key=f"p{number}"))

    async def cancel(self, node: Node, run_id: str) -> None:
        with contextlib.suppress(RunNotFound):
            await self.insist(node, lambda engine: engine.cancel(run_id, "enough"))

    async def terminate(self, node: Node, run_id: str) -> None:
        with contextlib.suppress(RunNotFound):
            await self.insist(node, lambda engine: engine.admin.terminate(run_id, "at once"))

    async def hold(self, node: Node, run_id: str, seconds: float) -> None:
        """Pause a run for a while, as a person does."""
        with contextlib.suppress(RunNotFound, ActionRefused):
            await self.insist(node, lambda engine: engine.admin.pause(run_id))
        await asyncio.sleep(seconds)
        with contextlib.suppress(RunNotFound, ActionRefused):
            await self.insist(node, lambda engine: engine.admin.unpause(run_id))

    async def resume(self, node: Node, run_id: str) -> None:
        """Let a parked run go on, as a person does when the cause is gone."""
        with contextlib.suppress(RunNotFound, ActionRefused):
            await self.insist(node, lambda engine: engine.admin.resume(run_id))

    async def result(self, node: Node, run_id: str) -> None:
        """Wait for a result; all waiters must hear the same one."""

        async def ask(engine: Engine) -> Any:
            return await engine.result(run_id, timeout=30)

        try:
            heard: Any = ("completed", await self.insist(node, ask))
        except (RunNotFound, RunParked, TimeoutError):
            return
        except PerdureError as error:
            heard = (type(error).__name__, str(error))
        self._world.note(node, f"hears {run_id} {heard[0]}")
        first = self.told.setdefault(run_id, heard)
        self._world.ledger.require(first == heard, f"I6: {run_id} was {first} to one and {heard} to another")
