"""What the killed processes of `test_kills.py` run. Each function is one life; lines on stdout are its signals."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure import Engine, step, workflow
from perdure.store.sqlite import SQLiteStore
from support.effects import Effects
from support.faulty_stores import DisturbedStore, die


def _is_fixed(path: str) -> bool:
    return Path(path).with_suffix(".fixed").exists()


@step
async def note(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


@step(max_attempts=2, initial_delay=0.001)
async def fragile(path: str) -> str:
    """Fails until somebody fixes it; then hangs, so that the kill finds it running, until it is freed."""
    Effects(Path(path)).add("fragile")
    if not _is_fixed(path):
        raise ConnectionError("broken")
    print("in fragile", flush=True)
    while not Path(path).with_suffix(".free").exists():
        await asyncio.sleep(0.005)
    return "fragile"


@step(max_attempts=9, initial_delay=3600, max_delay=3600)
async def stubborn(path: str) -> str:
    return await fragile(path)


@workflow
async def fails_until_fixed(path: str) -> list[str]:
    return [await note(path, "before"), await fragile(path), await note(path, "after")]


@workflow
async def persists(path: str) -> list[str]:
    return [await note(path, "before"), await stubborn(path), await note(path, "after")]


async def work(database: str) -> None:
    """A worker, until it is killed."""
    async with Engine(database, sweep_interval=0.02):
        print("working", flush=True)
        await asyncio.get_running_loop().create_future()


async def prune_and_die(database: str) -> None:
    """Killed in the middle of a prune: after three deletions are durable."""
    store = DisturbedStore(SQLiteStore(database))
    store.after("delete", die, at=3)
    async with Engine(store, worker=False) as engine:
        await engine.admin.prune(0)
