"""What the killed processes of `test_kill.py` run. Each function is one life; lines on stdout are its signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import Engine, event, receive, sleep, step, workflow
from perdure.store.base import CommitResult, Created, Creation, Existing, Turn
from perdure.store.sqlite import SQLiteStore
from support.effects import Effects


@event
@dataclass
class Go:
    pass


_life = {"number": 1}


@step
async def note(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


@step
async def last(path: str) -> str:
    """Never comes back in the first life, so that the kill finds it running."""
    Effects(Path(path)).add("last")
    if _life["number"] == 1:
        print("in the last step", flush=True)
        await asyncio.get_running_loop().create_future()
    return "last"


@workflow
async def tail(path: str) -> list[str]:
    done = [await note(path, "one"), await note(path, "two")]
    await receive(Go)
    await sleep(0.001)
    done.append(await note(path, "three"))
    done += await asyncio.gather(note(path, "four"), note(path, "five"))
    done.append(await last(path))
    return done


async def first_life(database: str, effects: str) -> None:
    async with Engine(database, sweep_interval=0.02) as engine:
        run = await engine.start(tail(effects), id="run")
        await engine.send("run", Go())
        await run.result()


async def second_life(database: str) -> None:
    _life["number"] = 2
    async with Engine(database, sweep_interval=0.02) as engine:
        print(*(await engine.result("run")), flush=True)


# -- killed after each record ---------------------------------------------------------------------------------


@step
async def add(path: str, number: int, more: int) -> int:
    Effects(Path(path)).add(f"add {number} {more}")
    return number + more


async def several(path: str, start: int) -> int:
    total = start
    for more in (10, 100):
        total = await add(path, total, more)
    return total


@workflow
async def killed_gather(path: str) -> list[int]:
    return list(await asyncio.gather(*(several(path, start) for start in range(3))))


@workflow
async def killed_group(path: str) -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(several(path, start)) for start in range(3)]
    return [task.result() for task in tasks]


class SelfKillingStore(SQLiteStore):
    """SIGKILLs its own process as soon as `limit` records are durable."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(path)
        self._left = limit

    def _written(self, rows: int) -> None:
        self._left -= rows
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def create_all(self, creations: Sequence[Creation]) -> Any:
        return self._create_all(creations)

    async def _create_all(self, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
        created = await super().create_all(creations)
        self._written(sum(1 + (len(turn.entries) if turn is not None else 0) for _, turn in creations))
        return created

    def commit(self, turns: Sequence[Turn]) -> Any:
        return self._commit(turns)

    async def _commit(self, turns: Sequence[Turn]) -> Sequence[CommitResult]:
        results = await super().commit(turns)
        self._written(sum(len(turn.entries) for turn in turns))
        return results


async def killed_after(database: str, effects: str, name: str, limit: str) -> None:
    invocation = {"killed_gather": killed_gather, "killed_group": killed_group}[name](effects)
    # One attempt at a time makes one record a commit, so that every record is a place to die at.
    async with Engine(SelfKillingStore(database, int(limit)), sweep_interval=0.02, steps_max=1) as engine:
        run = await engine.start(invocation, id="run")
        await run.result()
        print("finished", flush=True)
