"""DBOS, in the process that asks for the workflows. Variants: `sqlite` and `postgresql`.

Plain functions where one thing follows another, since they are faster than async ones there: DBOS runs them in threads
and talks to the database directly. Async ones where many things wait at once. A workflow that is waited for at once is
called, the ordinary way in its documentation; many are started with `start_workflow`, whose handles do not poll. On
SQLite, which has no notifications, messages are polled for: every ten milliseconds instead of every second.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from bench.wire import Gate, Job, Stopwatch, forever, milliseconds, paces, resident_bytes, serve

began: list[float] = []
late_ms: list[float] = []
gate: Gate
#: Workflows of a killed life that have come to their end.
ended = 0


@DBOS.step()
def increment(number: int) -> int:
    return number + 1


@DBOS.step()
def increment_noted(number: int) -> int:
    began.append(time.perf_counter())
    return number + 1


@DBOS.step()
def stop_or_pass(number: int) -> int:
    gate.arrive()
    if gate.closed:
        threading.Event().wait()
    return number + 1


@DBOS.workflow()
def empty_run() -> None:
    return None


@DBOS.workflow()
def count_to(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = increment(number)
    return number


@DBOS.workflow()
def count_noted(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = increment_noted(number)
    return number


@DBOS.workflow()
def count_then_stop(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = increment(number)
    return stop_or_pass(number)


@DBOS.workflow()
def one_step(number: int) -> int:
    return increment(number)


@DBOS.workflow()
def one_child(number: int) -> int:
    return one_step(number)


# -- many things at once -----------------------------------------------------------------------------------------------


@DBOS.step()
async def increment_async(number: int) -> int:
    return number + 1


@DBOS.step()
async def note_lateness(due: float) -> None:
    late_ms.append((time.time() - due) * 1000)


@DBOS.step()
async def pass_gate(number: int) -> int:
    gate.arrive()
    if gate.closed:
        await forever()
    return number + 1


@DBOS.workflow()
async def fan_out(width: int) -> int:
    return sum(await asyncio.gather(*(increment_async(number) for number in range(width))))


@DBOS.workflow()
async def wait_for_wake(number: int) -> int:
    return int(await DBOS.recv_async(timeout_seconds=600)) + number


@DBOS.workflow()
async def sleep_to(due: float) -> None:
    # DBOS records the moment at which the sleep ends, so that reading the clock here does no harm.
    await DBOS.sleep_async(max(0.0, due - time.time()))
    await note_lateness(due)


@DBOS.workflow()
async def stop_at_gate(before: int, after: int) -> int:
    global ended
    number = 0
    for _ in range(before):
        number = await increment_async(number)
    number = await pass_gate(number)
    for _ in range(after):
        number = await increment_async(number)
    ended += 1
    return number


def launch(job: Job) -> None:
    url = job.url if job.variant == "postgresql" else f"sqlite:///{os.path.join(job.directory, 'dbos.sqlite')}"
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
    }
    if job.variant == "sqlite":
        config["notification_listener_polling_interval_sec"] = 0.01
    DBOS(config=config)
    DBOS.launch()


def seq(job: Job) -> dict[str, Any]:
    launch(job)
    count_to(job.warm_steps)
    with Stopwatch() as watch:
        assert count_to(job.steps) == job.steps
    return {"count": job.steps, "seconds": watch.seconds}


def many(job: Job) -> dict[str, Any]:
    launch(job)
    for handle in [DBOS.start_workflow(count_to, job.steps) for _ in range(job.warm_runs)]:
        handle.get_result()
    with Stopwatch() as watch:
        handles = [DBOS.start_workflow(count_to, job.steps) for _ in range(job.runs)]
        assert [handle.get_result() for handle in handles] == [job.steps] * job.runs
    return {"count": job.runs * job.steps, "seconds": watch.seconds}


async def fanout(job: Job) -> dict[str, Any]:
    launch(job)
    await fan_out(job.warm_steps)
    with Stopwatch() as watch:
        assert await fan_out(job.steps) == job.steps * (job.steps + 1) // 2
    return {"count": job.steps, "seconds": watch.seconds}


def empty(job: Job) -> dict[str, Any]:
    launch(job)
    samples: list[float] = []
    for _ in range(job.runs):
        with milliseconds(samples):
            empty_run()
    return {"samples_ms": samples}


async def events(job: Job) -> dict[str, Any]:
    launch(job)
    samples: list[float] = []
    handles = await asyncio.gather(*(DBOS.start_workflow_async(wait_for_wake, number) for number in range(job.runs)))

    async def one(number: int) -> None:
        with milliseconds(samples):
            await DBOS.send_async(handles[number].get_workflow_id(), 1)
            assert await handles[number].get_result() == number + 1

    with Stopwatch() as watch:
        await asyncio.gather(*(one(number) for number in range(job.runs)))
    return {"count": job.runs, "seconds": watch.seconds, "samples_ms": samples}


async def timers(job: Job) -> dict[str, Any]:
    launch(job)
    await sleep_to(time.time())
    gap = job.counts["spread_ms"] / 1000 / job.runs
    for allowance in (1, 2, 4, 8):
        late_ms.clear()
        before = resident_bytes()
        first = time.time() + 0.5 + allowance * job.runs / 50
        due = [first + number * gap for number in range(job.runs)]
        handles = await asyncio.gather(*(DBOS.start_workflow_async(sleep_to, moment) for moment in due))
        held = resident_bytes() - before
        in_time = time.time() < first
        await asyncio.gather(*(handle.get_result() for handle in handles))
        if in_time:
            return {"samples_ms": late_ms, "bytes_each": held / job.runs}
    raise RuntimeError("the first timer was due before all workflows had been started")


def replay(job: Job) -> dict[str, Any]:
    global gate
    gate = Gate(job)
    opened = time.perf_counter()
    launch(job)  # brings back what was pending
    if job.life == 1:
        count_then_stop(job.steps)
    while gate.passed_at is None:
        time.sleep(0.001)
    return {"count": job.steps, "seconds": gate.passed_at - opened}


async def recover(job: Job) -> dict[str, Any]:
    global gate
    gate = Gate(job, arrivals=job.runs)
    before, after = job.steps // 2, job.steps - job.steps // 2 - 1
    opened = time.perf_counter()
    launch(job)
    if job.life == 1:

        async def one(number: int) -> None:
            with SetWorkflowID(f"recovered-{number}"):
                await (await DBOS.start_workflow_async(stop_at_gate, before, after)).get_result()

        await asyncio.gather(*(one(number) for number in range(job.runs)))
    while ended < job.runs:
        await asyncio.sleep(0.002)
    for number in range(job.runs):
        handle: Any = await DBOS.retrieve_workflow_async(f"recovered-{number}")
        assert await handle.get_result(polling_interval_sec=0.002) == job.steps
    return {"count": job.runs, "seconds": time.perf_counter() - opened}


def children(job: Job) -> dict[str, Any]:
    launch(job)
    with Stopwatch() as watch:
        handles = [DBOS.start_workflow(one_child, number) for number in range(job.runs)]
        assert [handle.get_result() for handle in handles] == [number + 1 for number in range(job.runs)]
    return {"count": job.runs, "seconds": watch.seconds}


def long(job: Job) -> dict[str, Any]:
    launch(job)
    assert count_noted(job.steps) == job.steps
    return paces(began, job.counts["window"])


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
}

if __name__ == "__main__":
    serve(WORKLOADS)
