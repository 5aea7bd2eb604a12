"""The users of the fleet under fire: they start runs, send and publish, repeat what was not answered, as people would,
and remember what they were told."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from chaos import work
from chaos.work import ChaosAsk, ChaosChime, ChaosDone, ChaosNote, ChaosTicket
from perdure import Engine
from perdure.errors import StoreUnavailable
from perdure.types import Invocation

T = TypeVar("T")

#: What a user who gets no answer at all waits before trying again.
_PATIENCE_SECONDS = 40.0
#: Chimes that each who hears is to hear.
CHIMES = 5


class Told:
    """What the clients know for certain, and what not."""

    def __init__(self) -> None:
        #: Acknowledged: ids of runs, and numbers of notes that were sent to them.
        self.started: set[str] = set()
        self.sent: defaultdict[str, set[int]] = defaultdict(set)
        #: Asked for, with an answer or without.
        self.tried: defaultdict[str, set[int]] = defaultdict(set)
        #: What went wrong with calls, by the first words.
        self.errors: Counter[str] = Counter()
        #: Results that are not what they should be, and answers that must not be.
        self.wrong: list[str] = []
        self.ended = 0


class Clients:
    """`engines` have no workers. Each flow below is the life of one run, or of a few that have to do with another."""

    def __init__(self, engines: list[Engine], rng: random.Random) -> None:
        self._engines = engines
        self._rng = rng
        self.told = Told()
        self._tickets = 0

    def engine(self) -> Engine:
        return self._rng.choice(self._engines)

    async def retried(self, call: Callable[[Engine], Awaitable[T]]) -> T:
        """Repeat a call until it is answered."""
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    return await call(self.engine())
            except StoreUnavailable as error:
                self.told.errors[_short(error)] += 1
                if "deadlock" in str(error):
                    self.told.wrong.append(f"a user heard of a deadlock: {error}")
                await asyncio.sleep(self._rng.uniform(0.02, 0.3))
            except TimeoutError:
                self.told.errors[f"no answer for {_PATIENCE_SECONDS:g} s"] += 1

    async def start(self, run_id: str, invocation: Callable[[], Invocation[Any]]) -> None:
        await self.retried(lambda engine: engine.start(invocation(), id=run_id))
        self.told.started.add(run_id)

    async def result(self, run_id: str) -> Any:
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    found = await self.engine().result(run_id)
                self.told.ended += 1
                return found
            except StoreUnavailable as error:
                self.told.errors[_short(error)] += 1
                await asyncio.sleep(self._rng.uniform(0.02, 0.3))
            except TimeoutError:
                continue

    async def send(self, run_id: str, number: int) -> None:
        self.told.tried[run_id].add(number)
        await self.retried(lambda engine: engine.send(run_id, ChaosNote(number), key=f"note {number}"))
        self.told.sent[run_id].add(number)

    async def send_once(self, run_id: str, number: int) -> None:
        """Without a key, and without a second try."""
        self.told.tried[run_id].add(number)
        try:
            await self.engine().send(run_id, ChaosNote(number))
            self.told.sent[run_id].add(number)
        except StoreUnavailable as error:
            self.told.errors[_short(error)] += 1

    def require(self, run_id: str, condition: bool, found: object) -> None:
        if not condition:
            self.told.wrong.append(f"run {run_id} ended with {found!r}")

    # -- flows ---------------------------------------------------------------------------------------------------

    async def chain(self, name: str) -> None:
        count = self._rng.randint(1, 12)
        pause = self._rng.choice([0.0, 0.0, 0.02, 0.3])
        await self.start(name, lambda: work.chaos_chain(count, pause))
        found = await self.result(name)
        self.require(name, len(set(found)) == count, found)

    async def fan(self, name: str) -> None:
        count = self._rng.randint(2, 10)
        await self.start(name, lambda: work.chaos_fan(count))
        found = await self.result(name)
        self.require(name, len(set(found)) == count + 2, found)

    async def listen(self, name: str) -> None:
        count = self._rng.randint(1, 8)
        await self.start(name, lambda: work.chaos_listen(count))
        for number in range(count):
            await self.send(name, number)
            await asyncio.sleep(self._rng.choice([0.0, 0.05, 0.5]))
        found = await self.result(name)
        self.require(name, found == list(range(count)), found)

    async def collect(self, name: str) -> None:
        await self.start(name, lambda: work.chaos_collect())
        for number in range(self._rng.randint(1, 8)):
            await self.send_once(name, number)
            await asyncio.sleep(self._rng.choice([0.0, 0.1]))
        await self.retried(lambda engine: engine.send(name, ChaosDone(), key="done"))
        found = await self.result(name)
        told = self.told
        fine = len(set(found)) == len(found) and told.sent[name] <= set(found) <= told.tried[name]
        self.require(name, fine, (found, told.sent[name]))

    async def answer(self, name: str) -> None:
        count = self._rng.randint(1, 4)
        await self.start(name, lambda: work.chaos_answer(count))
        for number in range(count):
            key = f"question {number}"
            got = await self.retried(lambda engine: engine.request(name, ChaosAsk(number), key=key))  # noqa: B023
            self.require(name, got == 2 * number, got)
        self.require(name, await self.result(name) == count, "another count")

    async def tickets(self, name: str) -> None:
        """As many takers as tickets; half of the tickets are published by a run."""
        count = self._rng.randint(1, 4)
        first, self._tickets = self._tickets, self._tickets + 2 * count
        await self.start(f"{name}-announce", lambda: work.chaos_announce(first, count))
        takers = [f"{name}-take-{number}" for number in range(2 * count)]
        for taker in takers:
            await self.start(taker, lambda: work.chaos_take())
        for number in range(first + count, first + 2 * count):
            key = f"ticket {number}"
            await self.retried(lambda engine: engine.publish(ChaosTicket(number), key=key))  # noqa: B023
        for taker in takers:
            await self.result(taker)
        await self.result(f"{name}-announce")

    async def chimes(self, name: str) -> None:
        """Many hear the same."""
        hearers = [f"{name}-hear-{number}" for number in range(8)]
        for hearer in hearers:
            await self.start(hearer, lambda: work.chaos_hear(CHIMES))
        for number in range(CHIMES):
            await self.retried(lambda engine: engine.publish(ChaosChime(number), key=f"chime {number}"))  # noqa: B023
            await asyncio.sleep(self._rng.uniform(0.0, 3.0))
        for hearer in hearers:
            found = await self.result(hearer)
            self.require(hearer, found == list(range(CHIMES)), found)

    async def family(self, name: str) -> None:
        count = self._rng.randint(1, 5)
        await self.start(name, lambda: work.chaos_family(count))
        found = await self.result(name)
        self.require(name, found == sum(1 + number % 3 for number in range(count)), found)

    async def ping(self, name: str) -> None:
        count = self._rng.randint(1, 5)
        one, other = f"{name}-ping", f"{name}-pong"
        await self.start(other, lambda: work.chaos_pong(one, count))
        await self.start(one, lambda: work.chaos_ping(other, count))
        found = await self.result(one)
        self.require(one, found == [1_000 + number for number in range(count)], found)
        self.require(other, await self.result(other) == count, "another count")

    async def timers(self, name: str) -> None:
        naps = [self._rng.choice([0.0, 0.01, 0.5, 3.0, 10.0]) for _ in range(3)]
        await self.start(name, lambda: work.chaos_timers(naps))
        found = await self.result(name)
        self.require(name, found == [True] * 4, found)

    async def sagas(self, name: str) -> None:
        count, fails = self._rng.randint(1, 4), self._rng.random() < 0.5
        await self.start(name, lambda: work.chaos_saga(count, fails))
        found = await self.result(name)
        self.require(name, len(set(found)) == count + fails, found)

    async def loops(self, name: str) -> None:
        count = self._rng.randint(5, 25)
        await self.start(name, lambda: work.chaos_loop(count))
        found = await self.result(name)
        self.require(name, found == count, found)


#: How often each flow is drawn, and about how many runs it has.
_FLOWS: list[tuple[Callable[[Clients, str], Awaitable[None]], int, int]] = [
    (Clients.chain, 30, 1),
    (Clients.fan, 8, 1),
    (Clients.listen, 12, 1),
    (Clients.collect, 5, 1),
    (Clients.answer, 4, 1),
    (Clients.tickets, 3, 6),
    (Clients.family, 6, 6),
    (Clients.ping, 5, 2),
    (Clients.timers, 8, 1),
    (Clients.sagas, 8, 1),
    (Clients.loops, 6, 1),
]


def draw_flows(rng: random.Random, runs: int) -> list[tuple[Callable[[Clients, str], Awaitable[None]], str]]:
    """Flows of about so many runs together, with names; some chimes are always there."""
    found: list[tuple[Callable[[Clients, str], Awaitable[None]], str]] = [(Clients.chimes, "chimes-1")]
    count, weights = 8, [weight for _, weight, _ in _FLOWS]
    # One of each kind first.
    for number, (flow, _, size) in enumerate(_FLOWS):
        found.append((flow, f"{flow.__name__}-first-{number}"))
        count += size
    while count < runs:
        flow, _, size = rng.choices(_FLOWS, weights)[0]
        found.append((flow, f"{flow.__name__}-{len(found)}"))
        count += size
    return found


def _short(error: BaseException) -> str:
    text = str(error).split("schema=", 1)[-1]
    return " ".join(text.split()[1:9])
