"""perdure on PostgreSQL beside its own past: many finished runs, plans that were made early, a snapshot that stays.

Each compares two schemas of one server by turns, or the same work before and after. `python -m bench.growth` runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.adapters.perdure_past import Past, due
from bench.adapters.perdure_stores import engine_for, is_postgresql, schema_of, store_for
from bench.wire import Job, Refused, Stopwatch
from perdure import Engine, event, receive, step, workflow
from perdure.limits import NEVER
from perdure.store.model import WorkerInfo

TEMPLATE = "template"
#: A claim takes so many runs.
CLAIMED = 200
#: How often an empty claim is measured.
LOOKS = 300

#: When steps began.
began: list[float] = []


@event
@dataclass
class Grown:
    number: int


@step
async def increment_once(number: int) -> int:
    began.append(time.perf_counter())
    return number + 1


@workflow
async def count_up(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await increment_once(number)
    return number


@workflow
async def wait_to_grow(number: int) -> int:
    return (await receive(Grown)).number + number


@workflow
async def grow_child(number: int) -> int:
    return await count_up(number)


# -- what is measured --------------------------------------------------------------------------------------------------


async def steps_of_many(engine: Engine, runs: int) -> float:
    """Seconds of a step of `many`."""

    async def one() -> None:
        await (await engine.start(count_up(5))).result()

    began.clear()
    gc.collect()
    with Stopwatch() as watch:
        await asyncio.gather(*(one() for _ in range(runs)))
    return watch.seconds / runs / 5


async def events_of_many(engine: Engine, runs: int) -> float:
    """Seconds of an event, from `send` to the end of a run that waited for it."""
    waiting = await asyncio.gather(*(engine.start(wait_to_grow(number)) for number in range(runs)))

    async def one(number: int) -> None:
        await waiting[number].send(Grown(1))
        await waiting[number].result()

    gc.collect()
    with Stopwatch() as watch:
        await asyncio.gather(*(one(number) for number in range(runs)))
    return watch.seconds / runs


async def children_of_many(engine: Engine, runs: int) -> float:
    """Seconds of a run that awaits a child with one step."""

    async def one() -> None:
        await (await engine.start(grow_child(1))).result()

    gc.collect()
    with Stopwatch() as watch:
        await asyncio.gather(*(one() for _ in range(runs)))
    return watch.seconds / runs


#: What is done with an engine, each for this part of the runs that are asked for.
WORK = {"steps": (steps_of_many, 1), "events": (events_of_many, 2), "children": (children_of_many, 2)}
Found = dict[str, dict[str, list[float]]]


async def _work(engine: Engine, runs: int) -> dict[str, float]:
    return {name: await act(engine, max(1, runs // part)) for name, (act, part) in WORK.items()}


async def _work_by_turns(job: Job, engines: dict[str, Engine], found: Found) -> None:
    for number in range(job.counts["rounds"]):
        for size in _turns(number):
            for name, seconds in (await _work(engines[size], job.runs)).items():
                found[name][size].append(seconds)


def _nothing_found() -> Found:
    return {name: {"few": [], "many": []} for name in (*WORK, "claims")}


class Claimer:
    """A store with a worker that only claims."""

    def __init__(self, job: Job) -> None:
        self.store = store_for(job)
        self.id = "claimer"

    async def open(self) -> Claimer:
        await self.store.open()
        await self.store.register_worker(WorkerInfo(self.id, self.id, "bench", os.getpid(), now()))
        return self

    async def claim(self) -> int:
        return len(await self.store.claim(self.id, now(), CLAIMED))

    async def claim_all(self) -> tuple[int, float]:
        """How many runs were due, and the seconds that claiming each took."""
        found, seconds = 0, 0.0
        while True:
            with Stopwatch() as watch:
                some = await self.claim()
            if not some:
                return found, seconds / max(1, found)
            found, seconds = found + some, seconds + watch.seconds

    async def empty_milliseconds(self) -> float:
        """The median of a claim that finds nothing."""
        samples = []
        for _ in range(LOOKS):
            with Stopwatch() as watch:
                assert await self.claim() == 0
            samples.append(watch.seconds * 1000)
        return statistics.median(samples)


def now() -> int:
    return time.time_ns() // 1_000


# -- the workloads -----------------------------------------------------------------------------------------------------


async def growth(job: Job) -> dict[str, Any]:
    """`many`, events, children and claims beside no other run and beside many finished ones, by turns."""
    few, many = _two(job)
    await _fill_with_finished(many, job.counts["finished"])
    await _make_template(few)
    found = _nothing_found()
    async with engine_for(few) as beside_few, engine_for(many) as beside_many:
        engines = {"few": beside_few, "many": beside_many}
        for engine in engines.values():
            await _work(engine, job.warm_runs)
        await _work_by_turns(job, engines, found)
    await _claims_by_turns(job, {"few": few, "many": many}, found["claims"])
    return found


async def plans(job: Job) -> dict[str, Any]:
    """The same beside runs that came after the statements were planned, of which the server does not know."""
    jobs = dict(zip(("few", "many"), _two(job), strict=True))
    found = _nothing_found()
    async with contextlib.AsyncExitStack() as stack:
        for each in jobs.values():
            await _make_template(each)
            with _past(each) as past:
                past.never_analyze()
        claimers = {name: await stack.enter_async_context(_claimer(each)) for name, each in jobs.items()}
        for name, each in jobs.items():
            await _claim_due(each, claimers[name], CLAIMED)
        engines = {name: await stack.enter_async_context(engine_for(each)) for name, each in jobs.items()}
        for engine in engines.values():
            await _work(engine, job.warm_runs)
        await _add_runs(engines["many"], jobs["many"], job.counts["stored"])
        await _work_by_turns(job, engines, found)
        for engine in engines.values():  # or they would claim, too
            await engine.close()
        await _claims_by_turns(job, jobs, found["claims"], claimers)
    return found


async def snapshot(job: Job) -> dict[str, Any]:
    """Claims, and turns of one run, while another session keeps an old snapshot, so that no dead row can be removed."""
    if not is_postgresql(job):
        raise Refused("only PostgreSQL keeps old versions of rows for readers like that")
    await _make_template(job)
    found: dict[str, Any] = {}
    with _past(job) as past, _past(job) as reader:
        async with _claimer(job) as claimer:
            found["empty_before_ms"] = await claimer.empty_milliseconds()
            reader.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.connection.execute("SELECT count(*) FROM runs")
            past.copy(TEMPLATE, job.counts["claims"], "due", due())
            claimed, each = await claimer.claim_all()
            assert claimed == job.counts["claims"]
            found |= {"claims": claimed, "claim_us": each * 1e6}
            found["empty_ms"] = await claimer.empty_milliseconds()
            past.copy(TEMPLATE, 20 * LOOKS, "late", due())
            found["claim_after_us"] = (await claimer.claim_all())[1] * 1e6
            for prefix in ("due", "late"):  # or the next worker would run them when the lease is over
                past.delete(prefix)
        async with engine_for(job) as engine:
            began.clear()
            gc.collect()
            assert await (await engine.start(count_up(job.steps))).result() == job.steps
            found |= _medians(began, job.counts["window"])
        reader.connection.execute("ROLLBACK")
    return found


# -- preparing ---------------------------------------------------------------------------------------------------------


def _two(job: Job) -> tuple[Job, Job]:
    if not is_postgresql(job):
        raise Refused("on SQLite the workload crowd shows it")
    jobs = [replace(job, directory=str(Path(job.directory) / name)) for name in ("few", "many")]
    return jobs[0], jobs[1]


def _turns(number: int) -> tuple[str, str]:
    # A B, B A: a machine that gets slower or faster must not look like a difference.
    return ("few", "many") if number % 2 == 0 else ("many", "few")


@contextlib.contextmanager
def _past(job: Job) -> Any:
    past = Past(job.url, schema_of(job))
    try:
        yield past
    finally:
        past.close()


@contextlib.asynccontextmanager
async def _claimer(job: Job) -> AsyncIterator[Claimer]:
    claimer = Claimer(job)
    try:
        yield await claimer.open()
    finally:
        await claimer.store.close()


async def _make_template(job: Job) -> None:
    async with engine_for(job) as engine:
        await (await engine.start(count_up(5), id=TEMPLATE)).result()


async def _fill_with_finished(job: Job, count: int) -> None:
    await _make_template(job)
    with _past(job) as past:
        past.copy(TEMPLATE, count, "finished")
        past.analyze()


async def _add_runs(engine: Engine, job: Job, count: int) -> None:
    """Half of them finished, half waiting for an event, as if they had been evicted."""
    run = await engine.start(wait_to_grow(0), id="waiting-template")
    while (await run.status()).status != "waiting":
        await asyncio.sleep(0.01)
    with _past(job) as past:
        past.copy(TEMPLATE, count // 2, "finished")
        past.copy("waiting-template", count - count // 2, "waiting", {"owner": None, "ready_at": NEVER})


async def _claims_by_turns(
    job: Job, jobs: dict[str, Job], found: dict[str, list[float]], claimers: dict[str, Claimer] | None = None
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if claimers is None:
            claimers = {name: await stack.enter_async_context(_claimer(each)) for name, each in jobs.items()}
        for number in range(job.counts["rounds"] + 1):
            for name in _turns(number):
                each = await _claim_due(jobs[name], claimers[name], job.counts["claims"])
                if number:  # the first warms up
                    found[name].append(each)


async def _claim_due(job: Job, claimer: Claimer, count: int) -> float:
    """Seconds that claiming each of so many runs takes, that nobody has begun."""
    with _past(job) as past:
        past.copy(TEMPLATE, count, "due", due())
        claimed, each = await claimer.claim_all()
        assert claimed == count, f"{claimed} of {count} claimed"
        past.delete("due")
    return each


def _medians(moments: list[float], window: int) -> dict[str, float]:
    """Milliseconds between the beginnings of two steps, at the start and at the end: a commit each."""
    gaps = [(later - earlier) * 1000 for earlier, later in itertools.pairwise(moments)]
    return {"turn_first_ms": statistics.median(gaps[:window]), "turn_ms": statistics.median(gaps[-window:])}


WORKLOADS: dict[str, Callable[[Job], Awaitable[Any]]] = {"growth": growth, "plans": plans, "snapshot": snapshot}
