"""Workflows that use every concurrency tool of asyncio and write down the order in which things happened.

`trace(name)` runs one of them by hand, answering what it waits for in a fixed shuffled order, and returns the lines.
`digests()` is for processes with other hash seeds: one digest per workflow.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable
from typing import Any

import anyio

from kernel.kernel_kit import Drive
from perdure import sleep, step, workflow
from perdure.kernel.journal import to_row
from perdure.kernel.operations.step import StepOperation
from perdure.kernel.operations.timer import TimerOperation
from perdure.kernel.outcomes import Complete
from perdure.kernel.run import Run
from perdure.types import Invocation
from plain_python import early

#: Names that were imported before perdure was, as those of a module above it.
Future, Task = early.Future, early.Task

LINES: list[str] = []
WIDTH = 12


def say(line: object) -> None:
    LINES.append(str(line))


@step
async def piece(number: int) -> int:
    raise AssertionError("answered by hand")


async def worker(number: int) -> int:
    try:
        say(f"begin {number}")
        first = await piece(number)
        say(f"middle {number}")
        await asyncio.sleep(0.001 * (number % 3))
        return first + await piece(number + 100)
    except asyncio.CancelledError:
        say(f"cancelled {number}")
        raise
    finally:
        say(f"end {number}")


@workflow
async def order_of_gather() -> list[int]:
    return list(await asyncio.gather(*(worker(n) for n in range(WIDTH))))


@workflow
async def order_of_a_group() -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(worker(n)) for n in range(WIDTH)]
    return sum(task.result() for task in tasks)


@workflow
async def order_of_a_failing_group() -> None:
    async def bad() -> None:
        await piece(-1)
        raise ValueError("bad")

    try:
        async with asyncio.TaskGroup() as group:
            for n in range(40):
                group.create_task(worker(n))
            group.create_task(bad())
    except* ValueError as group_of_errors:
        say(len(group_of_errors.exceptions))


async def _wait(mode: str) -> None:
    async def flawed(number: int) -> int:
        value = await worker(number)
        if number % 5 == 4:
            raise ValueError(number)
        return value

    pending = {asyncio.create_task(flawed(n)) for n in range(WIDTH)}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=mode)
        say([repr(task.exception() or task.result()) for task in done])
        say([task.get_coro().__name__ for task in pending])


@workflow
async def order_of_wait_first() -> None:
    await _wait(asyncio.FIRST_COMPLETED)


@workflow
async def order_of_wait_exception() -> None:
    await _wait(asyncio.FIRST_EXCEPTION)


@workflow
async def order_of_wait_all() -> None:
    await _wait(asyncio.ALL_COMPLETED)


@workflow
async def order_of_wait_cancelled() -> None:
    tasks = {asyncio.create_task(worker(n)) for n in range(40)}
    _, pending = await asyncio.wait(tasks, timeout=0.0005)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)


@workflow
async def order_of_waiting_for_gathers() -> None:
    gathers = {asyncio.gather(worker(n), worker(n + 50)) for n in range(WIDTH)}
    done, _ = await asyncio.wait(gathers)
    say([gathered.result() for gathered in done])


@workflow
async def order_of_as_completed() -> None:
    for one in asyncio.as_completed([worker(n) for n in range(WIDTH)]):
        say(await one)


@workflow
async def order_of_as_completed_with_timeout() -> None:
    try:
        for one in asyncio.as_completed({worker(n) for n in range(1)} | set(), timeout=0.0001):
            say(await one)
    except TimeoutError:
        say("timeout")
    for n, one in enumerate(asyncio.as_completed([worker(n) for n in range(40)])):
        say(await one)
        if n == 3:
            break


@workflow
async def order_of_timeouts() -> None:
    async def limited(number: int) -> None:
        try:
            async with asyncio.timeout(0.002 * number):
                say(await worker(number))
        except TimeoutError:
            say(f"too late {number}")

    await asyncio.gather(*(limited(n) for n in range(1, WIDTH)))


@workflow
async def order_of_wait_for() -> None:
    async def limited(number: int) -> None:
        try:
            say(await asyncio.wait_for(worker(number), 0.002 * number))
        except TimeoutError:
            say(f"too late {number}")

    await asyncio.gather(*(limited(n) for n in range(1, WIDTH)))


@workflow
async def order_of_shield() -> None:
    inner = asyncio.create_task(worker(1))
    outer = asyncio.create_task(_shielding(inner))
    await piece(5)
    outer.cancel()
    say(await asyncio.gather(outer, return_exceptions=True))
    say(await inner)


async def _shielding(inner: asyncio.Task[int]) -> int:
    return await asyncio.shield(inner)


@workflow
async def order_of_a_queue() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

    async def produce(number: int) -> None:
        for _ in range(3):
            await queue.put(await piece(number))

    async def consume(name: str) -> None:
        for _ in range(6):
            say(f"{name} got {await queue.get()}")
            queue.task_done()

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(produce(number))
        for name in "ab":
            group.create_task(consume(name))
    await queue.join()


@workflow
async def order_of_locks() -> None:
    lock, gate, few, condition = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2), asyncio.Condition()
    arrived: list[int] = []

    async def visitor(number: int) -> None:
        await piece(number)
        async with few:
            say(f"in {number}")
            async with lock:
                arrived.append(number)
                await sleep(0.001)
        async with condition:
            condition.notify_all()
        await gate.wait()
        say(f"out {number}")

    async def doorman() -> None:
        async with condition:
            await condition.wait_for(lambda: len(arrived) >= 8)
        gate.set()

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(visitor(number))
        group.create_task(doorman())
    barrier = asyncio.Barrier(3)

    async def meet(number: int) -> None:
        await piece(number)
        say(f"{number} is {await barrier.wait()}")

    await asyncio.gather(*(meet(n) for n in range(3)))


@workflow
async def order_of_all_tasks() -> None:
    tasks = [asyncio.create_task(worker(n)) for n in range(WIDTH)]
    await asyncio.sleep(0)
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    await asyncio.wait(tasks)


@workflow
async def order_of_all_tasks_beside_futures() -> None:
    """Numbers with gaps: where they fall in a set depends on the others in it."""
    tasks = []
    for number in range(WIDTH):
        for _ in range(number * 5):
            hash(asyncio.get_running_loop().create_future())
        tasks.append(asyncio.create_task(worker(number), name=f"task {number}"))
    say([task.get_name() for task in asyncio.all_tasks()])
    await asyncio.gather(*tasks)


async def _settle(futures: list[asyncio.Future[int]]) -> None:
    for number, future in enumerate(futures):
        await piece(number)
        future.set_result(number)


@workflow
async def order_of_futures_made_directly() -> None:
    futures = [asyncio.Future[int]() if n % 2 else asyncio.Future() for n in range(WIDTH)]
    named: list[asyncio.Future[int]] = [Future() for _ in range(WIDTH)]
    setter = asyncio.create_task(_settle(futures + named))
    done, _ = await asyncio.wait({*futures, *named})
    say([future.result() for future in done])
    say([future.result() for future in set(futures) | set(named)])
    await setter


class NamedTask(asyncio.Task[int]):
    """A library's own kind of task."""


class NamedFuture(asyncio.Future[int]):
    pass


@workflow
async def order_of_tasks_made_directly() -> None:
    tasks = [kind(worker(n)) for n in range(WIDTH) for kind in (asyncio.Task, Task, NamedTask)]
    done, _ = await asyncio.wait(set(tasks))
    say([task.result() for task in done])
    say([kind.__name__ for task in tasks[:3] for kind in (asyncio.Task, asyncio.Future) if isinstance(task, kind)])


@workflow
async def order_of_futures_of_a_subclass() -> None:
    futures: list[asyncio.Future[int]] = [NamedFuture() for _ in range(WIDTH)]
    setter = asyncio.create_task(_settle(futures))
    done, _ = await asyncio.wait(set(futures))
    say([future.result() for future in done])
    await setter


@workflow
async def order_of_futures_of_old_imports() -> None:
    """A library that had the classes by name before perdure was imported."""
    futures = [early.make_future() for _ in range(WIDTH)]
    setter = asyncio.create_task(_settle(futures))
    pending: Any = futures
    while pending:
        done, pending = await asyncio.wait([*pending], return_when=asyncio.FIRST_COMPLETED)
        say([future.result() for future in done])
    await setter
    tasks = [early.make_task(worker(n)) for n in range(WIDTH)]
    done, _ = await asyncio.wait(tasks)
    say([task.result() for task in done])


@workflow
async def order_of_a_mixed_wait() -> None:
    gathers = [asyncio.gather(worker(n), worker(n + 50)) for n in range(3)]
    shields = [asyncio.shield(worker(n)) for n in range(3)]
    waiting = {*gathers, *shields, asyncio.ensure_future(worker(7)), asyncio.ensure_future(_Awaitable())}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        say([future.result() for future in done])


@workflow
async def order_of_cancelled_scopes() -> None:
    """anyio keeps the scopes inside of a scope in a set, too."""

    async def scoped(number: int) -> None:
        with anyio.CancelScope():
            await worker(number)

    # Places in memory become free in an order of their own, so that the next scopes are not where the last one ends.
    places: list[object] = [anyio.CancelScope() for _ in range(WIDTH * 3)]
    for number in range(len(places)):
        places[number * 7 % len(places)] = None
    async with anyio.create_task_group() as group:
        for number in range(WIDTH):
            group.start_soon(scoped, number)
        await piece(-1)
        group.cancel_scope.cancel()


class _Awaitable:
    def __await__(self) -> Any:
        return worker(8).__await__()


WORKFLOWS: dict[str, Callable[[], Invocation[Any]]] = {
    name: value for name, value in list(globals().items()) if name.startswith("order_of_")
}


def _answer(drive: Drive, rng: random.Random) -> None:
    operations = list(drive.run.pending)
    timers = [o for o in operations if isinstance(o, TimerOperation)]
    first = min(timers, key=lambda timer: (timer.at, timer.number), default=None)
    steps = [o for o in operations if isinstance(o, StepOperation)]
    if first is not None and (not steps or first.at <= drive.now or rng.random() < 0.2):
        drive.fire(first.location)
    else:
        chosen = rng.choice(steps)
        drive.finish(chosen.location, chosen.args[0])


def record(name: str) -> tuple[Drive, list[str]]:
    """Run one workflow to its end; its journal and its lines. Two that fail alike would compare equal, so it must not
    fail: each of them handles the errors that it makes."""
    LINES.clear()
    rng = random.Random(name)
    drive = Drive(WORKFLOWS[name](), seed=99)
    while drive.run.outcome is None:
        _answer(drive, rng)
    assert isinstance(drive.run.outcome, Complete), drive.run.outcome
    return drive, list(LINES)


def replay(drive: Drive) -> tuple[Run, list[str]]:
    LINES.clear()
    run, _ = drive.rebuilt()
    return run, list(LINES)


def digests() -> None:
    for name in sorted(WORKFLOWS):
        drive, lines = record(name)
        rows = [repr(to_row(one)) for one in drive.records]
        drive.close()
        print(name, hashlib.sha256("\n".join(lines + rows).encode()).hexdigest(), flush=True)
