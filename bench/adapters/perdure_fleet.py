"""Several worker processes on one store: what a second one brings, and how fair they share.

Runs are created first, by a client that does not work on any. Then the workers, which have imported everything, open
their engines at once, and the time is taken until the last run has ended.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.adapters.perdure_processes import Beside, serve_beside
from bench.adapters.perdure_stores import engine_for
from bench.wire import Job, Refused, Stopwatch
from perdure import Engine, step, workflow

#: What a step that works takes of a processor.
BUSY_SECONDS = 0.0005
#: So many runs are created at once.
BATCH = 1_000
#: How often the client looks whether all have ended.
LOOK_SECONDS = 0.02

#: The runs that this process began.
begun: set[int] = set()


@step
async def note_run(run: int) -> int:
    begun.add(run)
    return 0


@step
async def work(number: int) -> int:
    until = time.thread_time() + BUSY_SECONDS
    while time.thread_time() < until:
        pass
    return number + 1


@step
async def increment_here(number: int) -> int:
    return number + 1


@workflow
async def busy(run: int, steps: int) -> int:
    number = await note_run(run)
    for _ in range(steps):
        number = await work(number)
    return number


@workflow
async def trivial(run: int, steps: int) -> int:
    number = await note_run(run)
    for _ in range(steps):
        number = await increment_here(number)
    return number


# -- the process that measures -----------------------------------------------------------------------------------------


async def fleet(job: Job) -> dict[str, Any]:
    """One worker and two by turns, with steps that work and with steps that do not; then four that share."""
    if job.variant == "memory":
        raise Refused("nothing in memory is shared by processes")
    others = [await Beside("bench.adapters.perdure_fleet").start() for _ in range(4)]
    found: dict[str, Any] = {name: {"one": [], "two": []} for name in ("busy", "trivial")}
    for number in range(job.counts["rounds"]):
        for name, parts in found.items():
            for workers in ("one", "two") if number % 2 == 0 else ("two", "one"):
                part = _part(job, f"{name}-{workers}-{number}")
                chosen = others[: 1 if workers == "one" else 2]
                seconds, _ = await _run(part, name, job.counts[name], chosen)
                parts[workers].append(job.counts[name] * (job.steps + 1) / seconds)
    found["shares"] = []
    for number in range(job.counts["rounds"]):
        _, shares = await _run(_part(job, f"shared-{number}"), "busy", job.runs, others)
        found["shares"].append(shares)
    for each in others:
        await each.stop()
    return found


def _part(job: Job, name: str) -> Job:
    directory = Path(job.directory) / name
    directory.mkdir()
    return replace(job, directory=str(directory))


async def _run(job: Job, name: str, runs: int, workers: Sequence[Beside]) -> tuple[float, list[int]]:
    """Seconds from the moment at which the workers are told to begin, and how many runs each of them began."""
    call = {"busy": busy, "trivial": trivial}[name]
    async with engine_for(job, worker=False) as client:
        for first in range(0, runs, BATCH):
            numbers = range(first, min(first + BATCH, runs))
            await asyncio.gather(*(client.start(call(number, job.steps), id=f"run-{number}") for number in numbers))
        with Stopwatch() as watch:
            for worker in workers:
                worker.tell(job, "open")
            await _all_ended(client, runs)
        for worker in workers:
            assert await worker.heard() == "open"
        shares = [await worker.ask(job, "close") for worker in workers]
    assert sum(shares) == runs, f"{shares} of {runs} runs were begun"
    return watch.seconds, shares


async def _all_ended(client: Engine, runs: int) -> None:
    while True:
        counts = await client.store.count_runs()
        open_ones = sum(count for status, count in counts.items() if not status.terminal)
        if open_ones == 0:
            assert counts == {"completed": runs}, counts
            return
        await asyncio.sleep(LOOK_SECONDS)


# -- a worker ----------------------------------------------------------------------------------------------------------

_engine: Engine | None = None


async def open_worker(job: Job) -> str:
    global _engine
    begun.clear()
    _engine = await engine_for(job).open()
    return "open"


async def close_worker(_job: Job) -> int:
    assert _engine is not None
    await _engine.close()
    return len(begun)


WORKLOADS = {"fleet": fleet}

if __name__ == "__main__":
    assert sys.argv[1] == "--beside"
    asyncio.run(serve_beside({"open": open_worker, "close": close_worker}))
