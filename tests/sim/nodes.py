"""The processes of a simulated world, and their clocks."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

from perdure.engine.clock import HostTime
from perdure.engine.engine import Engine
from perdure.store.model import WorkerInfo
from sim.loop import SimLoop

#: When the clocks of the world begin, in microseconds.
EPOCH = 1_900_000_000_000_000


class Clock(HostTime):
    """A node's clock: off by `skew` seconds, and going wrong by `drift`."""

    def __init__(self, loop: SimLoop, skew: float, drift: float) -> None:
        self._loop = loop
        self._skew = skew
        self._drift = drift

    def now(self) -> int:
        return EPOCH + round((self._loop.time() * (1.0 + self._drift) + self._skew) * 1_000_000)


class Node:
    """A process that comes and goes. Each life has an engine of its own."""

    def __init__(self, name: str, index: int, clock: Clock, worker: bool, options: dict[str, Any]) -> None:
        self.name = name
        self.index = index
        self.clock = clock
        self.worker = worker
        self.options = options
        self.life = 0
        self.context: Context | None = None
        #: Ready to be used; and all that this life has made.
        self.engine: Engine | None = None
        self.engines: list[Engine] = []
        self.worker_id = ""
        self.info: WorkerInfo | None = None
        self.main: asyncio.Task[None] | None = None
        #: Hints do not reach it.
        self.deaf = False
        self.is_down = True
        #: Its tasks were cancelled from outside: this life is about to end.
        self.is_ending = False
