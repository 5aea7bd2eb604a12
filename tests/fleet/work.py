"""What the workers of these tests do, in the test's process and in processes of their own."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from perdure import Engine, event, receive, step, workflow
from perdure.store.postgres import PostgresStore
from support.effects import Effects


@event
@dataclass
class GoOn:
    pass


@event
@dataclass
class Told:
    number: int


@step
async def note(path: str, line: str) -> str:
    """Really done: a line in a file."""
    Effects(Path(path)).add(line)
    return line


@step
async def hold(path: str, line: str, seconds: float) -> str:
    """Keeps the event loop of its worker for itself."""
    Effects(Path(path)).add(line)
    time.sleep(seconds)
    return line


@step
async def until_told(path: str, line: str) -> str:
    """Takes until a file is there."""
    Effects(Path(path)).add(line)
    while not Effects(Path(f"{path}.go")).lines():
        await asyncio.sleep(0.01)
    return line


@workflow
async def two_notes(path: str, name: str) -> list[str]:
    first = await note(path, f"{name} 1")
    await receive(GoOn)
    return [first, await note(path, f"{name} 2")]


@workflow
async def slow_note(path: str, name: str) -> str:
    return await until_told(path, name)


@workflow
async def holding(path: str, name: str, seconds: float) -> str:
    return await hold(path, name, seconds)


@workflow
async def many_notes(path: str, name: str, count: int) -> int:
    for number in range(count):
        await note(path, f"{name} {number}")
    return count


@workflow
async def told_so_often(count: int) -> list[int]:
    """The numbers of the events that it was told, in the order in which they came."""
    return [(await receive(Told)).number for _ in range(count)]


def fleet_engine(url: str, lease: float = 1.5, name: str | None = None) -> Engine:
    """A worker with a lease that a test can wait for."""
    return Engine(PostgresStore(url), sweep_interval=0.1, lease=lease, name=name)


async def serve(url: str, name: str | None = None) -> None:
    """A worker process: says "ready", and works until it is killed."""
    async with fleet_engine(url, name=name) as engine:
        assert engine.worker is not None
        print("ready", flush=True)
        await asyncio.Event().wait()
