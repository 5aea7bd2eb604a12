"""When the chaos is over and the store answers again, workers die, again and again.

    kills    all of them, from outside, more often than a run may be recovered: a run that only waits, with unread
             events in its inbox, is never blamed for that
    poison   by a run whose step kills its worker: it is parked after as many deaths as the settings say, and nobody
             else is

They come in a phase of their own because a store that fails could keep any worker from writing down which runs did
nothing wrong.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.store.model import Status
from sim.nodes import Node
from sim.plan import PLAGUE_FAULTS, Fault

if TYPE_CHECKING:
    from sim.world import World

POISON = "poison"
DEATHS_MAX = limits.RECOVERIES_MAX_DEFAULT
#: Until the workers of the last life are replaced.
_DOWN_SECONDS = 0.1
#: In which poison must have been found: most of it is waiting for suspects to show what they are.
_POISON_SECONDS_MAX = 600.0


class Plague:
    """The phase in which workers die, and what may come of it."""

    def __init__(self, world: World, plan: Sequence[Fault]) -> None:
        self._world = world
        self._faults = [fault for fault in plan if fault.kind in PLAGUE_FAULTS]
        self._rng = random.Random(f"plague {world.seed}")
        self._kills_after: float | None = None
        self._deaths = 0
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._is_killing = False

    def __bool__(self) -> bool:
        return bool(self._faults)

    async def run(self) -> None:
        for number, fault in enumerate(self._faults):
            self._world.happened[fault.kind] += 1
            await self._start_runs(number, fault)
            await (self._kill(fault) if fault.kind == "kills" else self._poison(fault))

    def may_be_parked(self, run: Any) -> bool:
        """The run that kills; and, where all are killed, one that was in a step whenever its worker died."""
        if not (run.reason or "").startswith("poisoned"):
            return False
        return bool(run.id.startswith(POISON) or (self._is_killing and b'"kind":"step"' in (run.frontier or b"")))

    # -- runs that are there -----------------------------------------------------------------------------------------

    async def _start_runs(self, number: int, fault: Fault) -> None:
        """Some in a step of some seconds, some that wait, with an event in the inbox that they do not ask for."""
        rng, world = self._rng, self._world
        seconds = rng.choice([0.5, 3.0, 8.0])
        found = {f"a{number}{n}": ["work", f"a{number}{n}", 0, 3, seconds, 5] for n in range(rng.randint(1, 12))}
        idle = {f"i{number}{n}": ["chime", None] for n in range(rng.randint(1, 4))}
        found |= idle
        if fault.kind == "poison":
            found[f"{POISON}{number}"] = ["work", POISON, 0, 1, 0.0, 5]
            self._kills_after = fault.seconds
        for run_id, tree in found.items():
            await world.callers.start(world.clients[0], run_id, [tree])
        for run_id in idle:
            await world.callers.send(world.clients[0], run_id)

    # -- deaths ------------------------------------------------------------------------------------------------------

    async def _kill(self, fault: Fault) -> None:
        self._is_killing = True
        for _ in range(DEATHS_MAX + 2):
            await asyncio.sleep(fault.seconds * self._rng.uniform(0.7, 1.5))
            for node in self._world.workers:
                self._world.crash(node, _DOWN_SECONDS)

    async def _poison(self, fault: Fault) -> None:
        world, self._deaths = self._world, 0
        self._attempts.clear()
        end = world.loop.time() + _POISON_SECONDS_MAX
        (poison,) = [
            run for run in world.memory.tables.runs.values() if run.id.startswith(POISON) and not _has_ended(run)
        ]
        while poison.status is not Status.PARKED:
            await asyncio.sleep(0.5)
            world.ledger.require(world.loop.time() < end, f"I14: run {poison.id} kills its workers and is not parked")
        self._kills_after = None
        world.ledger.require(self._deaths <= DEATHS_MAX, f"I14: {poison.id} was parked after {self._deaths} deaths")
        most = max(self._attempts.values(), default=0)
        world.ledger.require(most <= DEATHS_MAX + 1, f"I14: a run beside {poison.id} lost {most - 1} attempts")

    def attempt_begins(self, run_id: str, location: str, uid: str, node: Node | None) -> bool:
        """Whether this one never ends."""
        if not self._faults or node is None:
            return False
        if uid != POISON:
            self._attempts[run_id, location] += 1
            return False
        if self._kills_after is None:
            return False
        self._deaths += 1
        self._world.own_call(self._kills_after, self._world.crash, node, _DOWN_SECONDS, node.life)
        return True


def _has_ended(run: Any) -> bool:
    return bool(run.status.terminal)
