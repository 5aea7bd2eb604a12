"""Absurd on PostgreSQL: async workers and a client in one process.

A worker holds one connection, on which everything it does takes its turn, so there are several of them. They poll for
tasks every 10 ms (250 by default). Results have to be polled for as well: every 5 ms, where the SDK's own helper begins
with 50. A task may not wait for a task of its own queue, so children have a queue of theirs.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.wire import Gate, Job, Stopwatch, forever, milliseconds, paces, resident_bytes, serve

WORKERS = 8
POLL_SECONDS = 0.01
RESULT_POLL_SECONDS = 0.005
CLAIM_SECONDS_DEFAULT = 120
#: For workloads that are killed: what is claimed by a dead process is free again after this. Long enough that no claim
#: ends while the first of many tasks waits for the last to come as far.
CLAIM_SECONDS = {"replay": 2, "recover": 5}
CHILDREN = "children"

began: list[float] = []
late_ms: list[float] = []


class System:
    """The client and its workers."""

    def __init__(self, job: Job, gate: Gate | None = None) -> None:
        self._job = job
        self._gate = gate
        self._kept: list[Any] = []
        self.client = AsyncAbsurd(job.url)
        self.children = AsyncAbsurd(job.url, queue_name=CHILDREN)

    async def open(self, workers: int = WORKERS, concurrency: int = 64) -> System:
        if self._job.life == 1:
            await self.create()
        self.start_workers(workers, concurrency)
        return self

    async def create(self) -> None:
        # What `absurdctl init` applies.
        with psycopg.connect(self._job.url, autocommit=True) as connection:
            connection.execute(BUNDLED_SCHEMA_SQL)
        await self.client.create_queue()
        await self.children.create_queue()

    def start_workers(self, workers: int, concurrency: int) -> None:
        queues = ["default"] * workers + ([CHILDREN] * workers if self._job.workload == "children" else [])
        for number, queue in enumerate(queues):
            worker = AsyncAbsurd(self._job.url, queue_name=queue)
            self._register(worker)
            serving = worker.start_worker(
                worker_id=f"worker-{number}-{self._job.life}",
                claim_timeout=CLAIM_SECONDS.get(self._job.workload, CLAIM_SECONDS_DEFAULT),
                concurrency=concurrency,
                poll_interval=POLL_SECONDS,
            )
            self._kept.append(asyncio.create_task(serving))

    def _register(self, worker: AsyncAbsurd) -> None:
        gate, children = self._gate, self.children

        @worker.register_task(name="empty_run")
        async def empty_run(_given: Any, _context: Any) -> None:
            return None

        @worker.register_task(name="count_to")
        async def count_to(limit: int, context: Any) -> int:
            number = 0
            for _ in range(limit):
                number = await context.step("increment", _increment(number))
            return number

        @worker.register_task(name="count_noted")
        async def count_noted(limit: int, context: Any) -> int:
            number = 0
            for _ in range(limit):
                number = await context.step("increment", _increment(number, noted=True))
            return number

        @worker.register_task(name="fan_out")
        async def fan_out(width: int, context: Any) -> int:
            steps = (context.step("increment", _increment(number)) for number in range(width))
            return sum(await asyncio.gather(*steps))

        @worker.register_task(name="wait_for_wake")
        async def wait_for_wake(number: int, context: Any) -> int:
            return int(await context.await_event(f"wake-{number}")) + number

        @worker.register_task(name="sleep_to")
        async def sleep_to(due: float, context: Any) -> None:
            await context.sleep_until("sleep", datetime.fromtimestamp(due, UTC))

            async def note() -> None:
                late_ms.append((time.time() - due) * 1000)

            await context.step("note", note)

        @worker.register_task(name="stop_at_gate")
        async def stop_at_gate(given: list[int], context: Any) -> int:
            before, after = given
            number = 0
            for _ in range(before):
                number = await context.step("increment", _increment(number))

            async def pass_gate() -> int:
                assert gate is not None
                gate.arrive()
                if gate.closed:
                    await forever()
                return number + 1

            number = await context.step("gate", pass_gate)
            for _ in range(after):
                number = await context.step("increment", _increment(number))
            return number

        @worker.register_task(name="one_child")
        async def one_child(number: int, context: Any) -> Any:
            async def begin() -> str:
                return str((await children.spawn("one_step", number, queue=CHILDREN))["task_id"])

            child = await context.step("begin", begin)
            return (await context.await_task_result(child, queue_name=CHILDREN)).result

        @worker.register_task(name="one_step")
        async def one_step(number: int, context: Any) -> int:
            return int(await context.step("increment", _increment(number)))

    async def spawn(self, name: str, given: Any) -> str:
        return str((await self.client.spawn(name, given, queue="default"))["task_id"])

    async def finish(self, task: str) -> Any:
        while True:
            found = await self.client.fetch_task_result(task, "default")
            if found is not None and found.state == "completed":
                return found.result
            if found is not None and found.state in ("failed", "cancelled"):
                raise RuntimeError(f"{found.state}: {found.failure}")
            await asyncio.sleep(RESULT_POLL_SECONDS)

    async def finish_all(self, tasks: list[str]) -> list[Any]:
        # One after another: the poll for the first waits for all, and the rest are done by then.
        return [await self.finish(task) for task in tasks]


def _increment(number: int, noted: bool = False) -> Any:
    async def increment() -> int:
        if noted:
            began.append(time.perf_counter())
        return number + 1

    return increment


async def seq(job: Job) -> dict[str, Any]:
    system = await System(job).open(workers=1)
    await system.finish(await system.spawn("count_to", job.warm_steps))
    with Stopwatch() as watch:
        assert await system.finish(await system.spawn("count_to", job.steps)) == job.steps
    return {"count": job.steps, "seconds": watch.seconds}


async def many(job: Job) -> dict[str, Any]:
    system = await System(job).open()
    await system.finish_all([await system.spawn("count_to", job.steps) for _ in range(job.warm_runs)])
    with Stopwatch() as watch:
        tasks = [await system.spawn("count_to", job.steps) for _ in range(job.runs)]
        assert await system.finish_all(tasks) == [job.steps] * job.runs
    return {"count": job.runs * job.steps, "seconds": watch.seconds}


async def fanout(job: Job) -> dict[str, Any]:
    system = await System(job).open(workers=1)
    await system.finish(await system.spawn("fan_out", job.warm_steps))
    with Stopwatch() as watch:
        assert await system.finish(await system.spawn("fan_out", job.steps)) == job.steps * (job.steps + 1) // 2
    return {"count": job.steps, "seconds": watch.seconds}


async def empty(job: Job) -> dict[str, Any]:
    system = await System(job).open(workers=1)
    samples: list[float] = []
    for _ in range(job.runs):
        with milliseconds(samples):
            await system.finish(await system.spawn("empty_run", None))
    return {"samples_ms": samples}


async def events(job: Job) -> dict[str, Any]:
    system = await System(job).open()
    samples: list[float] = []
    tasks = [await system.spawn("wait_for_wake", number) for number in range(job.runs)]
    for task in tasks:
        while True:
            found = await system.client.fetch_task_result(task, "default")
            if found is not None and found.state == "sleeping":
                break
            await asyncio.sleep(RESULT_POLL_SECONDS)

    async def one(number: int) -> None:
        with milliseconds(samples):
            await system.client.emit_event(f"wake-{number}", 1, "default")
            assert await system.finish(tasks[number]) == number + 1

    with Stopwatch() as watch:
        await asyncio.gather(*(one(number) for number in range(job.runs)))
    return {"count": job.runs, "seconds": watch.seconds, "samples_ms": samples}


async def timers(job: Job) -> dict[str, Any]:
    system = await System(job).open()
    gap = job.counts["spread_ms"] / 1000 / job.runs
    for allowance in (1, 2, 4, 8):
        late_ms.clear()
        before = resident_bytes()
        first = time.time() + 0.5 + allowance * job.runs / 200
        tasks = [await system.spawn("sleep_to", first + number * gap) for number in range(job.runs)]
        held = resident_bytes() - before
        in_time = time.time() < first
        await system.finish_all(tasks)
        if in_time:
            return {"samples_ms": late_ms, "bytes_each": held / job.runs}
    raise RuntimeError("the first timer was due before all tasks had been started")


async def replay(job: Job) -> dict[str, Any]:
    gate = Gate(job)
    opened = time.perf_counter()
    system = await System(job, gate).open(workers=1)
    if job.life == 1:
        await system.spawn("stop_at_gate", [job.steps, 0])
    while gate.passed_at is None:
        await asyncio.sleep(0.001)
    return {"count": job.steps, "seconds": gate.passed_at - opened}


async def recover(job: Job) -> dict[str, Any]:
    gate = Gate(job, arrivals=job.runs)
    opened = time.perf_counter()
    system = System(job, gate)
    file = Path(job.directory) / "tasks"
    # A worker claims some tasks and is unresponsive until all of them have ended: each gets its share of what is there.
    share = -(-job.runs // WORKERS)
    if job.life == 1:
        await system.create()
        given = [job.steps // 2, job.steps - job.steps // 2 - 1]
        file.write_text("\n".join([await system.spawn("stop_at_gate", given) for _ in range(job.runs)]))
        system.start_workers(WORKERS, share)
        await forever()
    system.start_workers(WORKERS, share)
    assert await system.finish_all(file.read_text().split()) == [job.steps] * job.runs
    return {"count": job.runs, "seconds": time.perf_counter() - opened}


async def children(job: Job) -> dict[str, Any]:
    system = await System(job).open()
    with Stopwatch() as watch:
        tasks = [await system.spawn("one_child", number) for number in range(job.runs)]
        assert await system.finish_all(tasks) == [number + 1 for number in range(job.runs)]
    return {"count": job.runs, "seconds": watch.seconds}


async def long(job: Job) -> dict[str, Any]:
    system = await System(job).open(workers=1)
    assert await system.finish(await system.spawn("count_noted", job.steps)) == job.steps
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
