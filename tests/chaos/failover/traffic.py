"""Clients that start runs and send to them without a pause, and remember what was acknowledged and when.

What the store acknowledged is a promise: a `start` or `send` that returned, a result that was heard, and a step that
was recorded, which is seen by the next one having begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from chaos.failover.work import Parcel, journey
from perdure import Engine
from perdure.errors import RunNotFound, StoreUnavailable
from support.effects import Effects

T = TypeVar("T")

LEGS, PARCELS = 4, 3
#: Between two runs of a client: what is tested is what is lost, not how much can be done.
_PAUSE_SECONDS = 0.02


@dataclass
class Traffic:
    """Of several clients on one engine. Times are monotonic."""

    engine: Engine
    effects: Effects
    clients: int = 4
    prefix: str = "r"
    #: When each was acknowledged, and for starts when they were first asked for.
    asked: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    sent: dict[tuple[str, int], float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    results: dict[str, list[int]] = field(default_factory=dict)
    #: Runs that were acknowledged and are not there, as a client was told.
    found_lost: dict[str, float] = field(default_factory=dict)
    #: How long a client waits for a result before it repeats all that it has said, with the same ids and keys. None:
    #: for ever. With a server that forgets, this is how a client finds out that an event is lost.
    patience: float | None = None
    stopping: bool = False
    longest_call: float = 0.0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the store takes it, as its errors say."""
        began = time.monotonic()
        while True:
            try:
                found = await call()
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            else:
                self.longest_call = max(self.longest_call, time.monotonic() - began)
                return found

    async def _one_run(self, name: str) -> None:
        self.asked.setdefault(name, time.monotonic())
        path, engine = str(self.effects.path), self.engine
        handle = await self.insist(lambda: engine.start(journey(path, name, LEGS, PARCELS), id=name))
        self.started.setdefault(name, time.monotonic())
        for number in range(PARCELS):
            await self.insist(functools.partial(handle.send, Parcel(number), key=str(number)))
            self.sent.setdefault((name, number), time.monotonic())
        self.results[name] = await self.insist(lambda: handle.result(timeout=self.patience))
        self.ended[name] = time.monotonic()

    async def _client(self, client: int) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(_PAUSE_SECONDS)
            name = f"{self.prefix}{client}-{number}"
            number += 1
            while name not in self.ended:
                try:
                    await self._one_run(name)
                except TimeoutError:
                    continue
                except RunNotFound:  # it was acknowledged, and is lost: this is how a client finds out
                    self.found_lost.setdefault(name, time.monotonic())

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """While the block runs, and until each client's last run has ended."""
        self._tasks = [asyncio.create_task(self._client(client)) for client in range(self.clients)]
        try:
            yield
            self.stopping = True
            await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()

    def check_clients(self) -> None:
        """Raise what a client came to grief by."""
        for task in self._tasks:
            if task.done():
                task.result()

    # -- figures -------------------------------------------------------------------------------------------------

    @property
    def acknowledged(self) -> str:
        return f"{len(self.started)} starts, {len(self.sent)} sends, {len(self.ended)} results"

    def went_on_after(self, moment: float) -> float | None:
        """How long after a moment a run had come to its end that was asked for after it: a start, commits by a worker,
        events and the end, all on whatever server there is by then."""
        ends = [self.ended[name] for name, asked in self.asked.items() if asked > moment and name in self.ended]
        return min(ends) - moment if ends else None

    # -- what must hold --------------------------------------------------------------------------------------------

    def steps_that_came_back(self) -> list[str]:
        """Steps that began again after the next one had begun: their record was there, and was lost."""
        latest: dict[str, int] = {}
        back: list[str] = []
        for line in self.effects.lines():
            name, number = line.split()
            if int(number) < latest.get(name, -1):
                back.append(line)
            latest[name] = int(number)
        return back

    async def check_every_run(self, admin: Engine) -> None:
        """Every run that was started ended once, with each event once, and with a journal without gaps."""
        expected = list(range(PARCELS))
        for name in self.started:
            assert self.results[name] == expected, (name, self.results[name])
            history = await admin.admin.history(name)
            assert [record.seq for record in history] == list(range(1, len(history) + 1)), name
            kinds = [record.kind for record in history]
            assert kinds.count("step_done") == LEGS + PARCELS, (name, kinds)
            assert kinds[0] == "started", (name, kinds)
            assert kinds[-1] == "completed", (name, kinds)


async def goes_on(traffic: Traffic, moment: float, patience: float) -> float:
    """Wait until work goes on after a moment; how long that took."""
    async with asyncio.timeout(patience):
        while (took := traffic.went_on_after(moment)) is None:
            traffic.check_clients()
            await asyncio.sleep(0.02)
    return took
