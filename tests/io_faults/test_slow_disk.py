"""A disk that takes its time: everything comes later, and nothing else changes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from io_faults.disk import Disk
from perdure import Engine, sleep, step, workflow
from perdure.store.model import RunFilter
from perdure.store.sqlite import SQLiteStore
from support.lives import run_async

#: A good disk syncs in a fraction of a millisecond.
SLOW_SECONDS = 0.1

did: list[str] = []


@step
async def note(run: str, number: int) -> int:
    did.append(f"{run} {number}")
    return number


@workflow
async def steps_and_naps(run: str) -> int:
    total = 0
    for number in range(3):
        total += await note(run, number)
        await sleep(0.01)
    return total


def test_a_very_slow_disk_delays_and_doubles_nothing(tmp_path: Path) -> None:
    """FAULTS B24: every sync takes some hundred times as long as usual, with two engines on the file. The loop is not
    held up for all that time, no run changes hands, and every step runs once."""
    disk = Disk()

    def slow(kind: str, file: str) -> None:
        if kind == "sync":
            time.sleep(SLOW_SECONDS)

    async def main() -> float:
        longest = 0.0

        async def watch_the_loop() -> None:
            nonlocal longest
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.001)
                longest = max(longest, time.monotonic() - began)

        first: Any = SQLiteStore(tmp_path / "a.db", vfs=disk.vfs)
        second: Any = SQLiteStore(tmp_path / "a.db", vfs=disk.vfs)
        async with Engine(first, sweep_interval=0.05) as one, Engine(second, sweep_interval=0.05) as two:
            disk.watch = slow
            watching = asyncio.create_task(watch_the_loop())
            runs = [
                *[await one.start(steps_and_naps(f"one-{n}"), id=f"one-{n}") for n in range(3)],
                *[await two.start(steps_and_naps(f"two-{n}"), id=f"two-{n}") for n in range(3)],
            ]
            assert [await run.result(timeout=60) for run in runs] == [3] * 6
            watching.cancel()
            disk.watch = None
            rows = await first.load([row.key for row in await first.list_runs(RunFilter(), 10)])
            assert {loaded.run.epoch for loaded in rows} == {1}, "no run changed hands"
        return longest

    did.clear()
    longest = run_async(main(), patience=90)
    disk.unregister()
    assert longest < 20 * SLOW_SECONDS
    expected = [f"{name}-{n} {number}" for name in ("one", "two") for n in range(3) for number in range(3)]
    assert sorted(did) == sorted(expected)
