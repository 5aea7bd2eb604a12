"""Waiting runs on one SQLite file: memory, wake-ups, restart. `python bench/scale.py [COUNT ...]`

For each count: that many runs wait for an event, a thousand of them are woken, the process is restarted. The wake-ups
must not be slowed by the runs that go on waiting, so the rates for a small and a large count are compared in one run.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import Engine, event, receive, workflow

WOKEN = 1_000
BATCH = 2_000


@event
@dataclass
class Wake:
    number: int


@workflow
async def waiting(number: int) -> int:
    woken = await receive(Wake)
    return woken.number + number


def rss_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


async def fill(path: str, count: int) -> dict[str, Any]:
    async with Engine(path) as engine:
        began = time.perf_counter()
        for start in range(0, count, BATCH):
            batch = range(start, min(start + BATCH, count))
            await asyncio.gather(*(engine.start(waiting(n), id=f"r{n}") for n in batch))
        return {"created/s": round(count / (time.perf_counter() - began)), "filled MB": round(rss_mb())}


async def wake(path: str, count: int) -> dict[str, Any]:
    """In a new process: ready for work, then a thousand wake-ups spread over all runs, half a thousand at a time."""
    began = time.perf_counter()
    async with Engine(path) as engine:
        await (await engine.start(waiting(-1), id="probe")).send(Wake(1))
        assert await engine.result("probe") == 0
        ready = time.perf_counter() - began
        chosen = random.Random(1).sample(range(count), WOKEN)

        async def one(number: int) -> None:
            await engine.send(f"r{number}", Wake(1))
            assert await engine.get(f"r{number}").result() == number + 1

        began = time.perf_counter()
        for start in range(0, WOKEN, WOKEN // 2):
            await asyncio.gather(*(one(n) for n in chosen[start : start + WOKEN // 2]))
        seconds = time.perf_counter() - began
        return {"ready s": round(ready, 2), "woken/s": round(WOKEN / seconds), "RSS MB": round(rss_mb())}


def in_a_process(act: str, path: Path, count: int) -> dict[str, Any]:
    command = [sys.executable, __file__, act, str(path), str(count)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] in ("fill", "wake"):
        act = {"fill": fill, "wake": wake}[sys.argv[1]]
        print(json.dumps(asyncio.run(act(sys.argv[2], int(sys.argv[3])))))
        return
    counts = [int(text) for text in sys.argv[1:]] or [2_000, 200_000]
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        for count in counts:
            path = Path(directory) / f"{count}.db"
            facts = in_a_process("fill", path, count)
            facts |= in_a_process("wake", path, count)
            rates.append(facts["woken/s"])
            print(f"{count:>9,} waiting:", ", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    print(f"rate of the last to the first: {rates[-1] / rates[0]:.2f}")


if __name__ == "__main__":
    main()
