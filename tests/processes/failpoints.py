"""Processes that die at a failpoint. What they do, `processes.dying` says."""

from __future__ import annotations

from contextlib import ExitStack

from events.kinds import Note
from perdure import Engine
from perdure.testing.failpoints import armed
from processes.dying import die, long_walk, wait_for_note

#: What a store that goes by leases waits for after a worker has died.
LEASE_SECONDS = 1.5


async def walk(database: str, effects: str, point: str, hit: str) -> None:
    """Everything a worker does, from the start of a run to its end."""
    with armed(point, die, hit=int(hit)):
        async with Engine(database, sweep_interval=0.02, lease=LEASE_SECONDS) as engine:
            await engine.start(long_walk(effects), id="run")
            await engine.send("run", Note("note"), key="note")
            await engine.result("run")
    print("finished", flush=True)


async def take_over(database: str, point: str, hit: str) -> None:
    """Only a worker: whatever it runs, it has claimed."""
    with armed(point, die, hit=int(hit)):
        async with Engine(database, sweep_interval=0.02, lease=LEASE_SECONDS) as engine:
            await engine.result("run")
    print("finished", flush=True)


async def ask(database: str, what: str, point: str) -> None:
    """A client, and nothing else."""
    with ExitStack() as stack:
        async with Engine(database, worker=False) as engine:
            stack.enter_context(armed(point, die))
            if what == "send":
                await engine.send("run", Note("note"), key="note")
            elif what == "cancel":
                await engine.cancel("run", "asked by a dying client")
            else:
                await engine.admin.prune(0)
            print("answered", flush=True)


async def open_store(database: str, point: str, hit: str) -> None:
    with armed(point, die, hit=int(hit)):
        async with Engine(database, worker=False):
            print("opened", flush=True)


__all__ = ["ask", "open_store", "take_over", "wait_for_note", "walk"]
