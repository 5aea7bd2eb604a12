"""What the killed processes of `test_real_kills.py` and `test_long_loops.py` run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from perdure import (
    Break,
    Engine,
    JoinFailed,
    Rollback,
    attempt,
    join,
    loop,
    race,
    saga,
    sleep,
    step,
    traverse,
    workflow,
)
from support.effects import Effects
from support.faulty_stores import killed_at_record


@step
async def act(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


@step
async def undo(output: str) -> str:
    path, _, line = output.partition("|")
    Effects(Path(path)).add(f"undo {line}")
    return line


@step(undo=undo)
async def book(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return f"{path}|{line}"


@step(max_attempts=1)
async def refuse(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    raise LookupError(line)


def upper(line: str) -> str:
    return line.upper()


@workflow
async def killed_race_and_join(path: str) -> list[Any]:
    """CONFORMANCE C1, C2, C3."""
    won = await race(work=act(path, "work"), timeout=sleep("1 hour"))
    found = await join(a=act(path, "a"), b=race(first="success", bad=refuse(path, "bad"), good=act(path, "good")))
    tried = await attempt(join(x=refuse(path, "x"), y=act(path, "y")))
    many = await traverse(["t1", "t2"], upper)
    await act(path, "last")
    return [*won, found["a"], found["b"].name, type(tried).__name__, *many]


@workflow
async def killed_loops(path: str) -> list[Any]:
    """CONFORMANCE C3, C4: a loop in a loop, then one in a branch."""

    async def outer(rows: list[str]) -> list[str] | Break[list[str]]:
        async def inner(number: int) -> int | Break[int]:
            await act(path, f"{len(rows)}.{number}")
            await sleep(0.001)
            return Break(number) if number == 2 else number + 1

        rows = [*rows, str(await loop(inner, 0, keep=0))]
        return Break(rows) if len(rows) == 3 else rows

    rows = await loop(outer, [], keep=1)
    await act(path, "between")

    async def tick(number: int) -> int | Break[int]:
        await act(path, f"tick {number}")
        return Break(number) if number == 2 else number + 1

    found = await join(ticks=loop(tick, 0, keep=0, commit_every=2), other=act(path, "other"))
    return [*rows, found["ticks"]]


@workflow
async def killed_saga(path: str) -> list[Any]:
    """CONFORMANCE C3, C5: branches of a failed join, an inner saga and a loop are undone, in reverse."""

    async def body(number: int) -> int | Break[None]:
        await book(path, f"leg {number}")
        return Break(None) if number == 2 else number + 1

    try:
        async with saga():
            await book(path, "flight")
            async with saga("inner"):
                await book(path, "seat")
            await loop(body, 0, keep=0)
            await join(hotel=book(path, "hotel"), car=refuse(path, "car"))
    except JoinFailed as failed:
        first = list(failed.errors)
    try:
        async with saga() as s:
            await s.do(book, path, "second")
            raise Rollback("enough")
    except Rollback:
        return first
    raise AssertionError("not rolled back")


PROGRAMS: dict[str, Any] = {
    "race_and_join": (killed_race_and_join, ["work", "work", "a", "good", "Err", "T1", "T2"]),
    "loops": (killed_loops, ["2", "2", "2", 2]),
    "saga": (killed_saga, ["car"]),
}


async def killed_after(database: str, effects: str, name: str, limit: str) -> None:
    invocation = PROGRAMS[name][0](effects)
    # One attempt at a time makes one record a commit, so that every record is a place to die at.
    store = killed_at_record(database, int(limit))
    async with Engine(store, sweep_interval=0.02, steps_max=1) as engine:
        run = await engine.start(invocation, id="run")
        await run.result()
        print("finished", flush=True)


# -- long loops ------------------------------------------------------------------------------------------------


@step
async def tick(path: str, number: int) -> int:
    return number + 1


@workflow
async def long_loop(path: str, count: int) -> int:
    async def body(number: int) -> int | Break[int]:
        number = await tick(path, number)
        return Break(number) if number == count else number

    return await loop(body, 0)


async def run_long_loop(database: str, count: str) -> None:
    """Says how long it took from opening the store until an iteration that had not been there is recorded."""
    began = time.perf_counter()
    async with Engine(database, sweep_interval=0.02) as engine:
        run = await engine.start(long_loop(database, int(count)), id="run")
        view = before = await run.status()
        while view.records + view.pruned <= before.records + before.pruned + 4 and not view.status.terminal:
            view = await run.status()
        print(f"moving {time.perf_counter() - began:.3f}", flush=True)
        print(f"result {await run.result()}", flush=True)
