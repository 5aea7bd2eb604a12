"""perdure, in the process that asks for the runs, on the stores of `perdure_stores.py`."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.adapters import perdure_work
from bench.adapters.perdure_server import costs_of
from bench.adapters.perdure_stores import engine_for, must_survive, store_for
from bench.wire import (
    Gate,
    Job,
    Stopwatch,
    forever,
    median_seconds,
    milliseconds,
    paces,
    resident_bytes,
    serve,
)
from perdure import Engine, event, receive, sleep_until, step, workflow

#: Runs that are started at once: enough to share commits, few enough that what they need for a moment does not matter.
BATCH = 2_000
SLEEPERS_BATCH = 500


@event
@dataclass
class Wake:
    number: int


#: Set once by the workload, read by steps: when they began, how late they were, where a killed life stops.
began: list[float] = []
late_ms: list[float] = []
gate: Gate


@step
async def increment(number: int) -> int:
    return number + 1


@step
async def increment_noted(number: int) -> int:
    began.append(time.perf_counter())
    return number + 1


@step
async def note_lateness(due: float) -> None:
    late_ms.append((time.time() - due) * 1000)


@step
async def pass_gate(number: int) -> int:
    gate.arrive()
    if gate.closed:
        await forever()
    return number + 1


@workflow
async def empty_run() -> None:
    return None


@workflow
async def count_to(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await increment(number)
    return number


@workflow
async def count_noted(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await increment_noted(number)
    return number


@workflow
async def fan_out(width: int) -> int:
    return sum(await asyncio.gather(*(increment(number) for number in range(width))))


@workflow
async def wait_for_wake(number: int) -> int:
    return (await receive(Wake)).number + number


@workflow
async def sleep_to(due: float) -> None:
    await sleep_until(datetime.fromtimestamp(due, UTC))
    await note_lateness(due)


@workflow
async def stop_at_gate(before: int, after: int) -> int:
    number = 0
    for _ in range(before):
        number = await increment(number)
    number = await pass_gate(number)
    for _ in range(after):
        number = await increment(number)
    return number


@workflow
async def one_child(number: int) -> int:
    return await one_step(number)


@workflow
async def one_step(number: int) -> int:
    return await increment(number)


# -- shared workloads --------------------------------------------------------------------------------------------------


async def seq(job: Job) -> dict[str, Any]:
    async with engine_for(job) as engine:

        async def act() -> None:
            assert await (await engine.start(count_to(job.steps))).result() == job.steps

        await (await engine.start(count_to(job.warm_steps))).result()
        return {"count": job.steps, "seconds": await median_seconds(job.times, act)}


async def many(job: Job) -> dict[str, Any]:
    async with engine_for(job) as engine:

        async def one() -> None:
            assert await (await engine.start(count_to(job.steps))).result() == job.steps

        async def act() -> None:
            await asyncio.gather(*(one() for _ in range(job.runs)))

        await asyncio.gather(*(one() for _ in range(job.warm_runs)))
        costs = costs_of(job)
        seconds = await median_seconds(job.times, act)
        costs.note(job.times * job.runs * job.steps)
    return {"count": job.runs * job.steps, "seconds": seconds, **costs.found()}


async def fanout(job: Job) -> dict[str, Any]:
    async with engine_for(job) as engine:

        async def act() -> None:
            total = await (await engine.start(fan_out(job.steps))).result()
            assert total == job.steps * (job.steps + 1) // 2

        await (await engine.start(fan_out(job.warm_steps))).result()
        return {"count": job.steps, "seconds": await median_seconds(job.times, act)}


async def empty(job: Job) -> dict[str, Any]:
    samples: list[float] = []
    async with engine_for(job) as engine:
        gc.collect()
        for _ in range(job.runs):
            with milliseconds(samples):
                await (await engine.start(empty_run())).result()
    return {"samples_ms": samples}


async def events(job: Job) -> dict[str, Any]:
    samples: list[float] = []
    async with engine_for(job) as engine:
        runs = await asyncio.gather(*(engine.start(wait_for_wake(number)) for number in range(job.runs)))

        async def one(number: int) -> None:
            with milliseconds(samples):
                await runs[number].send(Wake(1))
                assert await runs[number].result() == number + 1

        gc.collect()
        with Stopwatch() as watch:
            await asyncio.gather(*(one(number) for number in range(job.runs)))
    return {"count": job.runs, "seconds": watch.seconds, "samples_ms": samples}


async def timers(job: Job) -> dict[str, Any]:
    gap = job.counts["spread_ms"] / 1000 / job.runs
    async with engine_for(job) as engine:
        await _fill(engine, 0, max(1, job.runs // 10), batch=SLEEPERS_BATCH)  # what the first runs load is not counted
        before = _settled()
        await _start_sleepers(engine, job.runs, gap)
        held = _settled() - before
        while len(late_ms) < job.runs:
            await asyncio.sleep(0.02)
    return {"samples_ms": late_ms, "bytes_each": held / job.runs}


async def _start_sleepers(engine: Engine, count: int, gap: float) -> None:
    """Start runs that are due one after another, the first when all of them have been started.

    How long starting takes is guessed from a few that sleep for a day. If the first was due too early all the same,
    those runs are let go by and the next try gives more time.
    """
    trial = min(SLEEPERS_BATCH, count)
    tomorrow = time.time() + 86_400
    with Stopwatch() as watch:
        await asyncio.gather(*(engine.start(sleep_to(tomorrow)) for _ in range(trial)))
    for allowance in (2, 4, 8, 16):
        late_ms.clear()
        first = time.time() + 0.5 + allowance * watch.seconds * count / trial
        for start in range(0, count, SLEEPERS_BATCH):
            batch = range(start, min(start + SLEEPERS_BATCH, count))
            await asyncio.gather(*(engine.start(sleep_to(first + number * gap)) for number in batch))
        if time.time() < first:
            return
        while len(late_ms) < count:
            await asyncio.sleep(0.05)
    raise RuntimeError("this machine does not start runs fast enough to have them all asleep at once")


async def replay(job: Job) -> dict[str, Any]:
    global gate
    must_survive(job)
    gate = Gate(job)
    opened = time.perf_counter()
    async with engine_for(job) as engine:
        run = await engine.start(stop_at_gate(job.steps, 0), id="replayed") if job.life == 1 else engine.get("replayed")
        assert await run.result() == job.steps + 1
    assert gate.passed_at is not None
    return {"count": job.steps, "seconds": gate.passed_at - opened}


async def recover(job: Job) -> dict[str, Any]:
    global gate
    must_survive(job)
    gate = Gate(job, arrivals=job.runs)
    before, after = job.steps // 2, job.steps - job.steps // 2 - 1
    opened = time.perf_counter()
    async with engine_for(job) as engine:

        async def one(number: int) -> None:
            name = f"recovered-{number}"
            run = await engine.start(stop_at_gate(before, after), id=name) if job.life == 1 else engine.get(name)
            assert await run.result() == job.steps

        await asyncio.gather(*(one(number) for number in range(job.runs)))
        seconds = time.perf_counter() - opened
    return {"count": job.runs, "seconds": seconds}


async def children(job: Job) -> dict[str, Any]:
    async with engine_for(job) as engine:

        async def one(number: int) -> None:
            assert await (await engine.start(one_child(number))).result() == number + 1

        gc.collect()
        with Stopwatch() as watch:
            await asyncio.gather(*(one(number) for number in range(job.runs)))
    return {"count": job.runs, "seconds": watch.seconds}


async def long(job: Job) -> dict[str, Any]:
    async with engine_for(job) as engine:
        gc.collect()
        assert await (await engine.start(count_noted(job.steps))).result() == job.steps
    return paces(began, job.counts["window"])


# -- perdure alone -----------------------------------------------------------------------------------------------------


async def journal(job: Job) -> dict[str, Any]:
    """Rebuild a run from its journal as a restarted worker does: load the rows, decode them, run the code again."""
    from perdure.kernel.frontier import decode_frontier
    from perdure.kernel.journal import from_row
    from perdure.kernel.run import Run

    must_survive(job)
    async with engine_for(job) as engine:
        await engine.start(count_then_wait(job.steps), id="long")
        while (await engine.status("long")).status != "waiting":
            await asyncio.sleep(0.02)
    store = store_for(job)
    await store.open()
    row = await store.get("long")
    assert row is not None
    seconds: list[float] = []
    for _ in range(job.times):
        gc.collect()
        with Stopwatch() as watch:
            (loaded,) = await store.load([row.key])
            records = [from_row(one) for one in loaded.rows]
            run = Run(count_then_wait.spec, "long", 1, latest=lambda name: count_then_wait.spec)
            run.replay(records, decode_frontier(row.frontier) if row.frontier else None)
        run.close()
        seconds.append(watch.seconds)
    await store.close()
    return {"count": job.steps, "seconds": statistics.median(seconds)}


@workflow
async def count_then_wait(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await increment(number)
    return (await receive(Wake)).number + number


async def waiting(job: Job) -> dict[str, Any]:
    """Memory of a run while it waits: in its worker, and evicted to the store. Then a restart with all of them."""
    if job.options.get("part") is None:
        return _waiting_in_processes(job)
    evicted = job.options["part"] == "evicted"
    count = job.runs if evicted else job.counts["resident"]
    warm = max(1, count // 10)
    settings = {"residents_max": warm if evicted else count + warm + 1}
    if job.options["part"] == "ready":
        return await _ready(job)
    async with engine_for(job, **settings) as engine:
        # The first runs pay for pages of the database, caches and the allocator's arenas; only the others are counted.
        # In small batches: what many starts at once need for a moment stays with the process, and is not of the runs.
        await _fill(engine, 0, warm, batch=200)
        before = _settled()
        await _fill(engine, warm, warm + count, batch=200)
        held = _settled()
    return {"bytes_each": (held - before) / count, "resident_mb": held / 2**20}


def _waiting_in_processes(job: Job) -> dict[str, Any]:
    directories = {part: Path(job.directory) / part for part in ("resident", "evicted")}
    for directory in directories.values():
        directory.mkdir()
    resident = _part(job, "resident", directories["resident"])
    evicted = _part(job, "evicted", directories["evicted"])
    ready = _part(job, "ready", directories["evicted"]) if job.variant != "memory" else {"seconds": None}
    return {
        "resident_bytes": resident["bytes_each"],
        "evicted_bytes": evicted["bytes_each"],
        "evicted_mb": evicted["resident_mb"],
        "runs": job.runs,
        "ready_seconds": ready["seconds"],
    }


async def _ready(job: Job) -> dict[str, Any]:
    opened = time.perf_counter()
    async with engine_for(job) as engine:
        assert await (await engine.start(count_to(1))).result() == 1
        return {"seconds": time.perf_counter() - opened}


async def crowd(job: Job) -> dict[str, Any]:
    """The same steps and wake-ups beside few and beside many waiting runs, in turns; each in a process of its own."""
    if job.options.get("part") == "fill":
        return await fill(job, job.runs)
    if job.options.get("part") == "probe":
        return await probe(job)
    found: dict[str, list[dict[str, Any]]] = {"few": [], "many": []}
    for size in found:
        directory = Path(job.directory) / size
        directory.mkdir()
        _part(job, "fill", directory, runs=job.counts[size])
    for number in range(job.counts["rounds"]):
        # A B, B A, A B: a machine that gets slower or faster must not look like a difference.
        for size in ("few", "many") if number % 2 == 0 else ("many", "few"):
            directory = Path(job.directory) / size
            found[size].append(_part(job, "probe", directory, runs=job.counts[size], name=f"probe-{number}"))
    return {"few": found["few"], "many": found["many"]}


async def fill(job: Job, count: int) -> dict[str, Any]:
    async with engine_for(job) as engine:
        with Stopwatch() as watch:
            await _fill(engine, 0, count)
        return {"created_per_second": count / watch.seconds, "resident_mb": resident_bytes() / 2**20}


async def probe(job: Job) -> dict[str, Any]:
    """In a new process: ready for work, then some steps, then wake-ups spread over all the runs."""
    opened = time.perf_counter()
    async with engine_for(job) as engine:
        await (await engine.start(empty_run())).result()
        ready = time.perf_counter() - opened
        with Stopwatch() as stepping:
            await (await engine.start(count_to(job.steps))).result()
        # Each probe wakes others: those of its own name.
        mine = [number for number in range(job.runs) if number % job.counts["rounds"] == job.options["turn"]]
        chosen = random.Random(1).sample(mine, min(job.counts["woken"], len(mine)))

        async def one(number: int) -> None:
            await engine.send(f"waiting-{number}", Wake(1))
            assert await engine.get(f"waiting-{number}").result() == number + 1

        with Stopwatch() as waking:
            for start in range(0, len(chosen), 500):
                await asyncio.gather(*(one(number) for number in chosen[start : start + 500]))
    return {
        "ready_seconds": ready,
        "step_us": stepping.seconds / job.steps * 1e6,
        "woken_per_second": len(chosen) / waking.seconds if chosen else None,
        "resident_mb": resident_bytes() / 2**20,
    }


async def due(job: Job) -> dict[str, Any]:
    """All timers due at one moment: all of them in one process, and a quarter in others before and after it, because
    that takes so long that the machine may have become faster or slower meanwhile."""
    if job.options.get("part") is None:
        found = []
        for number, count in enumerate((job.runs // 4, job.runs, job.runs // 4)):
            directory = Path(job.directory) / str(number)
            directory.mkdir()
            found.append(_part(job, "due", directory, runs=count))
        return {"all": found[1], "quarters": [found[0], found[2]]}
    async with engine_for(job) as engine:
        await _start_sleepers(engine, job.runs, gap=0.0)
        gc.collect()
        before = resident_bytes()
        peak = before
        while len(late_ms) < job.runs:
            await asyncio.sleep(0.05)
            peak = max(peak, resident_bytes())
    return {"count": job.runs, "late_ms": max(late_ms), "before_mb": before / 2**20, "peak_mb": peak / 2**20}


def importing(job: Job) -> dict[str, Any]:
    code = "import time; began = time.perf_counter(); import perdure; print(time.perf_counter() - began)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return {
        "samples_ms": [
            float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout) * 1000
            for _ in range(job.times)
        ]
    }


async def _fill(engine: Engine, first: int, last: int, batch: int = BATCH) -> None:
    for start in range(first, last, batch):
        numbers = range(start, min(start + batch, last))
        await asyncio.gather(*(engine.start(wait_for_wake(number), id=f"waiting-{number}") for number in numbers))


def _settled() -> int:
    gc.collect()
    return resident_bytes()


def _part(job: Job, part: str, directory: Path, runs: int | None = None, name: str = "probe-0") -> dict[str, Any]:
    """One part of a workload in a process of its own."""
    counts = dict(job.counts) | ({} if runs is None else {"runs": runs})
    options = {"part": part, "turn": int(name.rpartition("-")[2])}
    wanted = {"directory": str(directory), "counts": counts, "variant": job.variant, "url": job.url, "options": options}
    command = [sys.executable, "-m", "bench.adapters.perdure", job.workload, json.dumps(wanted)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])["figures"]
    return found


#: In modules of their own, which not every checkout that `bench.compare` measures can import.
ELSEWHERE = {
    "growth": "perdure_growth",
    "plans": "perdure_growth",
    "snapshot": "perdure_growth",
    "fleet": "perdure_fleet",
    "push": "perdure_push",
}


async def elsewhere(job: Job) -> dict[str, Any]:
    module = importlib.import_module(f"bench.adapters.{ELSEWHERE[job.workload]}")
    found: dict[str, Any] = await module.WORKLOADS[job.workload](job)
    return found


WORKLOADS = {
    "seq": seq,
    "many": many,
    "fanout": fanout,
    "empty": empty,
    "events": events,
    "timers": timers,
    "replay": replay,
    "recover": recover,
    "children": children,
    "long": long,
    **perdure_work.WORKLOADS,
    "journal": journal,
    "waiting": waiting,
    "crowd": crowd,
    "due": due,
    "import": importing,
    **dict.fromkeys(ELSEWHERE, elsewhere),
}

if __name__ == "__main__":
    serve(WORKLOADS)
