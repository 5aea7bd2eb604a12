"""Ratios against bare SQLite, in one run: `make bench`.

Timings are noisy, so nothing here is an assertion: each figure is measured next to the limit it is compared with,
on the same disk within the same minute, and the table shows the ratio beside the bar that the project set itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw
from rich.console import Console
from rich.table import Table

from perdure import Engine, sleep, step, workflow

STEPS = 1_000
RUNS = 1_000
STEPS_PER_RUN = 5
REPLAYED = 10_000
SLEEPERS = 20_000


@step
async def increment(number: int) -> int:
    return number + 1


@workflow
async def count_to(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await increment(number)
    return number


@workflow
async def count_then_sleep(limit: int) -> int:
    number = 0
    for _ in range(limit):
        number = await increment(number)
    await sleep("1 hour")
    return number


@workflow
async def asleep() -> None:
    await sleep("1 hour")


class Figure(NamedTuple):
    name: str
    measured: str
    ratio: str
    bar: str
    reached: bool | None


def bare_commits(path: Path, count: int = 1_000) -> float:
    """One-row commits per second of a plain apsw loop, WAL and FULL."""
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
    started = time.perf_counter()
    for _ in range(count):
        with connection:
            connection.execute("INSERT INTO t (data) VALUES (?)", (b"x" * 100,))
    seconds = time.perf_counter() - started
    connection.close()
    return count / seconds


async def timed(path: Path, act: Callable[[Engine], Awaitable[object]]) -> float:
    async with Engine(path) as engine:
        gc.collect()
        started = time.perf_counter()
        await act(engine)
        return time.perf_counter() - started


async def one_long_run(engine: Engine) -> None:
    assert await (await engine.start(count_to(STEPS))).result() == STEPS


async def many_runs(engine: Engine) -> None:
    async def one() -> None:
        assert await (await engine.start(count_to(STEPS_PER_RUN))).result() == STEPS_PER_RUN

    await asyncio.gather(*(one() for _ in range(RUNS)))


async def replay_seconds(path: Path) -> float:
    """Time to rebuild a run of 10,000 recorded steps from its journal, as a restarted worker does."""
    from perdure.kernel.journal import from_row
    from perdure.kernel.operation import decode_frontier
    from perdure.kernel.run import Run
    from perdure.store.sqlite import SQLiteStore

    async with Engine(path) as engine:
        await engine.start(count_then_sleep(REPLAYED), id="long")
        while (await engine.status("long")).status != "waiting":
            await asyncio.sleep(0.05)
    store = SQLiteStore(path)
    await store.open()
    row = await store.get("long")
    assert row is not None
    gc.collect()
    started = time.perf_counter()
    (loaded,) = await store.load([row.key])
    records = [from_row(one) for one in loaded.rows]
    run = Run(count_then_sleep.spec, "long", 1, latest=lambda name: count_then_sleep.spec)
    run.replay(records, decode_frontier(row.frontier) if row.frontier else None)
    seconds = time.perf_counter() - started
    run.close()
    await store.close()
    return seconds


_HOLD = """
import asyncio, resource, sys, time
sys.path.insert(0, {bench!r})
from run import SLEEPERS, asleep
from perdure import Engine

async def main():
    async with Engine({path!r}) as engine:
        before = rss()
        for start in range(0, SLEEPERS, 1000):
            await asyncio.gather(*(engine.start(asleep(), id=f"s-{{n}}") for n in range(start, start + 1000)))
        while len(await engine.list(status="waiting", limit=1)) == 0:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        print(before, rss(), flush=True)

def rss():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

asyncio.run(main())
"""


async def waiting_memory(path: Path) -> tuple[int, int, float]:
    """RSS in KB before and while holding 20,000 sleeping runs; seconds until a restart takes new work."""
    code = _HOLD.format(bench=str(Path(__file__).parent), path=str(path))
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, held = (int(part) for part in output.split())
    started = time.perf_counter()
    async with Engine(path) as engine:
        assert await (await engine.start(count_to(1))).result() == 1
        ready = time.perf_counter() - started
    return before, held, ready


def import_seconds() -> float:
    code = "import time; s = time.perf_counter(); import perdure; print(time.perf_counter() - s)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = partial(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return min(float(run().stdout) for _ in range(6))


async def measure(directory: Path) -> list[Figure]:
    bare = [bare_commits(directory / "bare-1.db")]
    sequential = STEPS / await timed(directory / "sequential.db", one_long_run)
    bare.append(bare_commits(directory / "bare-2.db"))
    many = RUNS * STEPS_PER_RUN / await timed(directory / "many.db", many_runs)
    bare.append(bare_commits(directory / "bare-3.db"))
    limit = sorted(bare)[1]
    replay = await replay_seconds(directory / "replay.db")
    before, held, ready = await waiting_memory(directory / "waiting.db")
    importing = import_seconds()
    return [
        Figure("bare apsw, one-row commits at FULL", f"{limit:,.0f}/s", "1.00", "", None),
        ratio(f"one run of {STEPS:,} steps", sequential, limit, 0.5),
        ratio(f"{RUNS:,} runs x {STEPS_PER_RUN} steps", many, limit, 6),
        below(f"replay of {REPLAYED:,} steps", replay, 0.5, "s", f" ({replay / REPLAYED * 1e6:.1f} us/step)"),
        below(f"{SLEEPERS:,} waiting runs, RSS", held / 1024, 200, "MB", f" (from {before / 1024:.0f})"),
        below("restart with them, ready for work", ready, 3, "s"),
        below("import perdure", importing * 1000, 100, "ms"),
    ]


def ratio(name: str, rate: float, limit: float, bar: float) -> Figure:
    return Figure(name, f"{rate:,.0f} steps/s", f"{rate / limit:.2f}", f">= {bar:g}", rate >= bar * limit)


def below(name: str, value: float, bar: float, unit: str, note: str = "") -> Figure:
    return Figure(name, f"{value:.3g} {unit}{note}", "", f"< {bar:g} {unit}", value < bar)


def show(figures: list[Figure]) -> None:
    table = Table(title="perdure beside bare SQLite", title_justify="left")
    for column in ("what", "measured", "ratio to bare", "bar", ""):
        table.add_column(column)
    for figure in figures:
        mark = "" if figure.reached is None else "reached" if figure.reached else "NOT reached"
        table.add_row(figure.name, figure.measured, figure.ratio, figure.bar, mark)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = asyncio.run(measure(Path(directory)))
    if arguments.json:
        print(json.dumps([figure._asdict() for figure in figures]))
    else:
        show(figures)


if __name__ == "__main__":
    main()
