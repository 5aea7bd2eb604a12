"""What the killed processes of `test_kill.py` run. Each function is one life; lines on stdout are its signals."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from perdure import Engine, event, receive, sleep, step, workflow
from support.effects import Effects
from support.faulty_stores import killed_at_record


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


async def killed_after(database: str, effects: str, name: str, limit: str) -> None:
    invocation = {"killed_gather": killed_gather, "killed_group": killed_group}[name](effects)
    # One attempt at a time makes one record a commit, so that every record is a place to die at.
    store = killed_at_record(database, int(limit))
    async with Engine(store, sweep_interval=0.02, steps_max=1) as engine:
        run = await engine.start(invocation, id="run")
        await run.result()
        print("finished", flush=True)
