"""Random SIGKILLs of a worker under a mixed load lose nothing, repeat nothing recorded, and corrupt nothing."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from perdure import Engine
from perdure.types import Status
from processes.kill_load import STEPS_PER_RUN, Go, expected, killed_order
from support.effects import Effects
from support.lives import run_async
from support.processes import Process

#: Runs open at once: enough that every kill hits some in every phase, few enough that they get on.
OPEN_RUNS_MAX = 40


class Load:
    """The client: starts runs and sends their events, and remembers what was acknowledged."""

    def __init__(self, engine: Engine, path: str, rng: random.Random) -> None:
        self._engine = engine
        self._path = path
        self._rng = rng
        self.started: list[int] = []
        self.sent: list[int] = []

    async def go_on(self, stop: asyncio.Event) -> None:
        """Start and send until told to stop; then send what is still missing."""
        waiting: list[int] = []
        number = 0
        while not stop.is_set():
            if await self._open_runs() < OPEN_RUNS_MAX:
                await self._engine.start(killed_order(self._path, number), id=f"order-{number}")
                self.started.append(number)
                waiting.append(number)
                number += 1
            if len(waiting) > 5 and self._rng.random() < 0.7:
                await self._send(waiting.pop(self._rng.randrange(len(waiting))))
            await asyncio.sleep(self._rng.uniform(0.002, 0.02))
        for left in waiting:
            await self._send(left)

    async def _open_runs(self) -> int:
        counts = await self._engine.store.count_runs()
        return sum(count for status, count in counts.items() if not status.terminal)

    async def _send(self, number: int) -> None:
        await self._engine.send(f"order-{number}", Go(1000 + number))
        self.sent.append(number)


async def kill_again_and_again(database: str, kills: int, rng: random.Random) -> None:
    """One worker after another. Most die in the middle of work, some before they are ready."""
    for _ in range(kills):
        process = await asyncio.to_thread(Process, "processes.kill_load:work", database)
        try:
            if rng.random() < 0.85:
                assert await asyncio.to_thread(process.line) == "ready"
            await asyncio.sleep(rng.uniform(0.05, 0.4))
        finally:
            await asyncio.to_thread(process.__exit__, None, None, None)
        assert process.wait() == -signal.SIGKILL


class Execution(NamedTuple):
    nonce: str
    began_at: int
    ended: bool


def executions(effects: Effects) -> dict[tuple[str, str], list[Execution]]:
    """What really ran, by run and location."""
    begun: list[tuple[str, str, str, int]] = []
    ended: set[str] = set()
    for line in effects.lines():
        kind, run_id, location, nonce, _attempt, moment = line.split(" ")
        if kind == "end":
            ended.add(nonce)
        else:
            begun.append((run_id, location, nonce, int(moment)))
    found: dict[tuple[str, str], list[Execution]] = defaultdict(list)
    for run_id, location, nonce, moment in begun:
        found[run_id, location].append(Execution(nonce, moment, nonce in ended))
    return found


async def check_journals(engine: Engine, load: Load, effects: Effects) -> Counter[str]:
    """Every recorded outcome is one that really happened, and nothing ran again after it was recorded."""
    ran = executions(effects)
    numbers: Counter[str] = Counter(executions=sum(map(len, ran.values())))
    for number in load.started:
        for run_id in (f"order-{number}", f"order-{number}/killed_child"):
            history = await engine.admin.history(run_id)
            assert [entry.seq for entry in history] == list(range(1, len(history) + 1))
            received = [entry for entry in history if entry.kind == "event_received"]
            assert len(received) == (0 if "/" in run_id else 1)
            done: set[str] = set()
            for entry in history:
                if entry.kind not in ("step_done", "step_retry"):
                    continue
                recorded_at = int(entry.at.timestamp() * 1_000_000 + 0.5)
                attempts = ran[run_id, entry.location]
                if entry.kind == "step_done":
                    numbers["steps"] += 1
                    assert entry.location not in done, "recorded twice"
                    done.add(entry.location)
                    nonce = entry.data["value"]
                    assert any(one.nonce == nonce and one.ended for one in attempts), "recorded, but never ran"
                    again = [one for one in attempts if one.began_at > recorded_at + 1 and one.nonce != nonce]
                    assert not again, f"{run_id} {entry.location} ran again after it was recorded: {again}"
    return numbers


def survive(tmp_path: Path, kills: int, seed: int) -> Counter[str]:
    """One implementation, two sizes."""
    database = str(tmp_path / "killed.db")
    effects = Effects(tmp_path / "effects.txt")
    rng = random.Random(seed)

    async def main() -> Counter[str]:
        began = time.monotonic()
        async with Engine(database, worker=False) as engine:
            load = Load(engine, str(effects.path), rng)
            stop = asyncio.Event()
            loading = asyncio.create_task(load.go_on(stop))
            await kill_again_and_again(database, kills, rng)
            stop.set()
            await loading
            with Process("processes.kill_load:work", database):
                for number in load.started:
                    assert await engine.result(f"order-{number}", timeout=60) == expected(number)
            numbers = await check_journals(engine, load, effects)
            assert sorted(load.sent) == load.started
            counts = await engine.store.count_runs()
            # Every acknowledged start, each with one child, and nothing else.
            assert {status: n for status, n in counts.items() if n} == {Status.COMPLETED: 2 * len(load.started)}
            assert numbers["steps"] == STEPS_PER_RUN * len(load.started)
        numbers.update(kills=kills, runs=len(load.started), seconds=round(time.monotonic() - began))
        return numbers

    numbers = run_async(main(), patience=60 + 3 * kills)
    connection = apsw.Connection(database)
    assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
    connection.close()
    print(dict(numbers))
    return numbers


def test_thirty_random_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    """FAULTS A21: thirty kills at random moments, in the size for every day."""
    assert survive(tmp_path, kills=30, seed=30)["runs"] >= 30


@pytest.mark.long
def test_two_hundred_random_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    """FAULTS A21: two hundred kills at random moments."""
    assert survive(tmp_path, kills=200, seed=200)["runs"] >= 200
