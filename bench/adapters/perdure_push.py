"""How soon another process hears: events sent here to runs of a worker there; and what telling others costs.

Both processes are on one machine, whose monotonic clock they share. Time counts from the call of `send` to the first
step of the run that the event woke.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.adapters.perdure_processes import Beside, serve_beside
from bench.adapters.perdure_stores import is_postgresql, url_of
from bench.wire import Job, Refused, Stopwatch
from perdure import Engine, event, receive, step, workflow

#: Pauses between two events: long enough for each to be told by itself, with no rhythm of their own.
PAUSE_SECONDS_MAX = 0.03
#: Runs under way at once where commits are counted.
AT_ONCE = 16

#: When a run was woken in this process, by its number.
woken: dict[int, float] = {}
_seen = asyncio.Event()


@event
@dataclass
class Call:
    at: float


@step
async def note_waking(number: int) -> float:
    woken[number] = time.perf_counter()
    _seen.set()
    return woken[number]


@workflow
async def wait_for_call(number: int) -> float:
    await receive(Call)
    return await note_waking(number)


@workflow
async def nothing() -> None:
    return None


# -- the process that measures -----------------------------------------------------------------------------------------


async def push(job: Job) -> dict[str, Any]:
    if not is_postgresql(job):
        raise Refused("processes that share a SQLite file look at it every 50 ms")
    listeners = [await Beside("bench.adapters.perdure_push").start() for _ in range(job.counts["listeners"])]
    found = {
        "pushed_ms": await _waking(_part(job, "pushed"), listeners[0], job.counts["events"], one_by_one=True),
        "polled_ms": await _waking(_part(job, "polled"), listeners[0], job.counts["polled"], one_by_one=False),
        **await _commits(job, listeners),
    }
    for each in listeners:
        await each.stop()
    return found


def _part(job: Job, name: str) -> Job:
    directory = Path(job.directory) / name
    directory.mkdir()
    return replace(job, directory=str(directory), options={"push": "off" if name in ("polled", "silent") else "auto"})


def _engine_of(job: Job, **settings: Any) -> Engine:
    return Engine(url_of(job, push=job.options["push"]), **settings)


async def _waking(job: Job, worker: Beside, count: int, *, one_by_one: bool) -> list[float]:
    """Milliseconds from `send` to waking, of each event."""
    sent: dict[int, float] = {}
    async with _engine_of(job, worker=False) as client:
        await asyncio.gather(*(client.start(wait_for_call(number), id=f"run-{number}") for number in range(count)))
        assert await worker.ask(job, "open") == "open"
        await _until_waiting(client, count)
        pauses = random.Random(1)
        for number in range(count):
            await asyncio.sleep(pauses.uniform(0, PAUSE_SECONDS_MAX if one_by_one else 10 * PAUSE_SECONDS_MAX))
            sent[number] = time.perf_counter()
            await client.send(f"run-{number}", Call(0.0))
            if one_by_one:
                await worker.ask(job, "wait", count=number + 1)
        moments = await worker.ask(job, "wait", count=count)
        await worker.ask(job, "close")
    return [(moments[str(number)] - sent[number]) * 1000 for number in range(count)]


async def _until_waiting(client: Engine, count: int) -> None:
    while (await client.store.count_runs()).get("waiting", 0) < count:  # type: ignore[call-overload]
        await asyncio.sleep(0.02)


async def _commits(job: Job, listeners: list[Beside]) -> dict[str, Any]:
    """Runs that end per second, while others are told and while they are not. The others are there in both cases."""
    told, silent = _part(job, "told"), _part(job, "silent")
    found: dict[str, list[float]] = {"told": [], "silent": []}
    async with _engine_of(told) as first, _engine_of(silent) as second:
        engines = {"told": first, "silent": second}
        for engine in engines.values():
            await _rate(engine, job.warm_runs)
        for each in listeners:
            for part in (told, silent):
                assert await each.ask(part, "open") == "open"
        for number in range(job.counts["rounds"]):
            for name in ("told", "silent") if number % 2 == 0 else ("silent", "told"):
                found[name].append(await _rate(engines[name], job.runs))
        for each in listeners:
            await each.ask(told, "close")
    return found


async def _rate(engine: Engine, runs: int) -> float:
    left = iter(range(runs))

    async def some() -> None:
        for _ in left:
            await (await engine.start(nothing())).result()

    with Stopwatch() as watch:
        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return runs / watch.seconds


# -- the other process -------------------------------------------------------------------------------------------------

_engines: list[Engine] = []


async def open_worker(job: Job) -> str:
    woken.clear()
    _engines.append(await _engine_of(job).open())
    return "open"


async def wait(_job: Job, count: int) -> dict[int, float]:
    while len(woken) < count:
        _seen.clear()
        await _seen.wait()
    return woken if count == len(woken) else {}


async def close_worker(_job: Job) -> str:
    while _engines:
        await _engines.pop().close()
    return "closed"


WORKLOADS: dict[str, Callable[[Job], Any]] = {"push": push}

if __name__ == "__main__":
    assert sys.argv[1] == "--beside"
    acts = {"open": open_worker, "wait": wait, "close": close_worker}
    asyncio.run(serve_beside(acts))
