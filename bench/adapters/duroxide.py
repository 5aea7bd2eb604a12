"""Duroxide on SQLite: its runtime and its client in one process.

Its dispatchers look for work every `dispatcher_poll_interval_ms` (100 by default; 1 here) and hand out work under locks
that a dead process leaves behind until they time out (30 s by default; 1 s here, the shortest it takes).
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from duroxide import Client, Runtime, RuntimeOptions, SqliteProvider

from bench.wire import Gate, Job, Stopwatch, milliseconds, paces, resident_bytes, serve

#: Threads of the client that start and await orchestrations; more do not make SQLite write faster.
THREADS = 32
PATIENCE_MS = 200_000

began: list[float] = []
late_ms: list[float] = []
noting = threading.Lock()


def opened(job: Job, gate: Gate | None = None, workers: int = 4) -> Client:
    path = os.path.join(job.directory, "duroxide.db")
    if not os.path.exists(path):
        open(path, "xb").close()
    provider = SqliteProvider.open(f"sqlite:{path}")
    options = RuntimeOptions(
        orchestration_concurrency=2,
        worker_concurrency=workers,
        dispatcher_poll_interval_ms=1,
        worker_lock_timeout_ms=1_000,
        log_level="error",
    )
    runtime = Runtime(provider, options)

    @runtime.register_activity("increment")
    def increment(_context: Any, number: int) -> int:
        return number + 1

    @runtime.register_activity("increment_noted")
    def increment_noted(_context: Any, number: int) -> int:
        began.append(time.perf_counter())
        return number + 1

    @runtime.register_activity("note_lateness")
    def note_lateness(_context: Any, due: float) -> None:
        late_ms.append((time.time() - due) * 1000)

    @runtime.register_activity("pass_gate")
    def pass_gate(_context: Any, number: int) -> int:
        assert gate is not None
        with noting:
            gate.arrive()
        if gate.closed:
            threading.Event().wait()
        return number + 1

    @runtime.register_orchestration("empty_run")
    def empty_run(_context: Any, _input: Any) -> Any:
        return None
        yield

    @runtime.register_orchestration("count_to")
    def count_to(context: Any, what: list[Any]) -> Any:
        name, limit = what
        number = 0
        for _ in range(limit):
            number = yield context.schedule_activity(name, number)
        return number

    @runtime.register_orchestration("fan_out")
    def fan_out(context: Any, width: int) -> Any:
        found = yield context.all_typed([context.schedule_activity("increment", number) for number in range(width)])
        return sum(found)

    @runtime.register_orchestration("wait_for_wake")
    def wait_for_wake(context: Any, number: int) -> Any:
        woken = yield context.wait_for_event("wake")
        return woken + number

    @runtime.register_orchestration("sleep_to")
    def sleep_to(context: Any, what: list[float]) -> Any:
        due, delay_ms = what
        yield context.schedule_timer(int(delay_ms))
        yield context.schedule_activity("note_lateness", due)

    @runtime.register_orchestration("stop_at_gate")
    def stop_at_gate(context: Any, what: list[int]) -> Any:
        before, after = what
        number = 0
        for _ in range(before):
            number = yield context.schedule_activity("increment", number)
        number = yield context.schedule_activity("pass_gate", number)
        for _ in range(after):
            number = yield context.schedule_activity("increment", number)
        return number

    @runtime.register_orchestration("one_step")
    def one_step(context: Any, number: int) -> Any:
        return (yield context.schedule_activity("increment", number))

    @runtime.register_orchestration("one_child")
    def one_child(context: Any, number: int) -> Any:
        return (yield context.schedule_sub_orchestration("one_step", number))

    runtime.start()
    _kept.append(runtime)
    return Client(provider)


#: The runtime ends with the last reference to it.
_kept: list[Any] = []


def finish(client: Client, name: str) -> Any:
    done = client.wait_for_orchestration(name, PATIENCE_MS)
    if done.status != "Completed":
        raise RuntimeError(f"{name}: {done.status}: {done.error}")
    return done.output


def run(client: Client, name: str, kind: str, given: Any) -> Any:
    client.start_orchestration(name, kind, given)
    return finish(client, name)


def seq(job: Job) -> dict[str, Any]:
    client = opened(job)
    run(client, "warm", "count_to", ["increment", job.warm_steps])
    with Stopwatch() as watch:
        assert run(client, "seq", "count_to", ["increment", job.steps]) == job.steps
    return {"count": job.steps, "seconds": watch.seconds}


def many(job: Job) -> dict[str, Any]:
    client = opened(job)
    for number in range(job.warm_runs):
        client.start_orchestration(f"warm-{number}", "count_to", ["increment", job.steps])
    for number in range(job.warm_runs):
        finish(client, f"warm-{number}")
    with ThreadPoolExecutor(THREADS) as pool, Stopwatch() as watch:
        for number in range(job.runs):
            pool.submit(client.start_orchestration, f"many-{number}", "count_to", ["increment", job.steps])
        for number in range(job.runs):
            assert finish(client, f"many-{number}") == job.steps
    return {"count": job.runs * job.steps, "seconds": watch.seconds}


def fanout(job: Job) -> dict[str, Any]:
    client = opened(job)
    run(client, "warm", "fan_out", job.warm_steps)
    with Stopwatch() as watch:
        assert run(client, "fanout", "fan_out", job.steps) == job.steps * (job.steps + 1) // 2
    return {"count": job.steps, "seconds": watch.seconds}


def empty(job: Job) -> dict[str, Any]:
    client = opened(job)
    samples: list[float] = []
    for number in range(job.runs):
        with milliseconds(samples):
            run(client, f"empty-{number}", "empty_run", None)
    return {"samples_ms": samples}


def events(job: Job) -> dict[str, Any]:
    client = opened(job)
    samples: list[float] = []
    for number in range(job.runs):
        client.start_orchestration(f"waiting-{number}", "wait_for_wake", number)
    _until_taken_up(client, job.runs)

    def one(number: int) -> None:
        with milliseconds(samples):
            client.raise_event(f"waiting-{number}", "wake", 1)
            assert finish(client, f"waiting-{number}") == number + 1

    with ThreadPoolExecutor(job.runs) as pool, Stopwatch() as watch:
        for done in [pool.submit(one, number) for number in range(job.runs)]:
            done.result()
    return {"count": job.runs, "seconds": watch.seconds, "samples_ms": samples}


def _until_taken_up(client: Client, count: int) -> None:
    """Events are lost on an orchestration that has not begun to wait, so all of them must have begun."""
    while len(client.list_instances_by_status("Running")) < count:
        time.sleep(0.01)


def timers(job: Job) -> dict[str, Any]:
    client = opened(job)
    gap = job.counts["spread_ms"] / 1000 / job.runs
    for allowance in (1, 2, 4, 8):
        late_ms.clear()
        before = resident_bytes()
        first = time.time() + 0.5 + allowance * job.runs / 50
        names = [f"timers-{allowance}-{number}" for number in range(job.runs)]
        for number, name in enumerate(names):
            due = first + number * gap
            client.start_orchestration(name, "sleep_to", [due, (due - time.time()) * 1000])
        _until_taken_up(client, job.runs)
        held = resident_bytes() - before
        in_time = time.time() < first
        for name in names:
            finish(client, name)
        if in_time:
            return {"samples_ms": late_ms, "bytes_each": held / job.runs}
    raise RuntimeError("the first timer was due before all orchestrations had been started")


def replay(job: Job) -> dict[str, Any]:
    gate = Gate(job)
    at = time.perf_counter()
    client = opened(job, gate)
    if job.life == 1:
        client.start_orchestration("replayed", "stop_at_gate", [job.steps, 0])
    assert finish(client, "replayed") == job.steps + 1
    assert gate.passed_at is not None
    return {"count": job.steps, "seconds": gate.passed_at - at}


def recover(job: Job) -> dict[str, Any]:
    gate = Gate(job, arrivals=job.runs)
    at = time.perf_counter()
    client = opened(job, gate, workers=job.runs + 4)
    if job.life == 1:
        given = [job.steps // 2, job.steps - job.steps // 2 - 1]
        for number in range(job.runs):
            client.start_orchestration(f"recovered-{number}", "stop_at_gate", given)
    for number in range(job.runs):
        assert finish(client, f"recovered-{number}") == job.steps
    return {"count": job.runs, "seconds": time.perf_counter() - at}


def children(job: Job) -> dict[str, Any]:
    client = opened(job)
    with ThreadPoolExecutor(THREADS) as pool, Stopwatch() as watch:
        for number in range(job.runs):
            pool.submit(client.start_orchestration, f"parent-{number}", "one_child", number)
        for number in range(job.runs):
            assert finish(client, f"parent-{number}") == number + 1
    return {"count": job.runs, "seconds": watch.seconds}


def long(job: Job) -> dict[str, Any]:
    client = opened(job)
    assert run(client, "long", "count_to", ["increment_noted", job.steps]) == job.steps
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
