"""How an adapter process talks to the driver. Only the standard library: it is imported in every virtual environment.

`python -m bench.adapters.NAME WORKLOAD {"directory": ..., "counts": {...}, ...}` prints one JSON object in a line:
`{"figures": {...}}`, or `{"refused": reason}` for what the system does not do. A workload that is killed in its first
life prints `{"ready": true}` when the moment has come, and waits for the kill; its second life has `"life": 2`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """The system does not do this workload. The message says why, and is shown."""


@dataclass(frozen=True)
class Job:
    """What the driver asks for. `url` is where the system's database or server is, if it needs one."""

    workload: str
    directory: str
    counts: Mapping[str, int]
    variant: str = ""
    url: str = ""
    life: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        return self.counts["runs"]

    @property
    def steps(self) -> int:
        return self.counts["steps"]

    @property
    def times(self) -> int:
        return self.counts.get("times", 1)

    # A rate is measured in a process that has done a tenth of the work before, whatever the system.

    @property
    def warm_runs(self) -> int:
        return max(1, self.runs // 10)

    @property
    def warm_steps(self) -> int:
        return max(1, self.steps // 10)


def serve(workloads: Mapping[str, Callable[[Job], Any]]) -> None:
    """The `main` of an adapter: do the one workload that was asked for, then leave at once.

    At once: what a system does in `atexit` handlers and joins of threads is no part of a measurement, and may hang.
    """
    # What a system prints goes to stderr: the driver reads only what is said here.
    global _answers
    _answers = os.dup(1)
    os.dup2(2, 1)
    job = Job(workload=sys.argv[1], **json.loads(sys.argv[2]))
    try:
        act = workloads.get(job.workload)
        if act is None:
            raise Refused("its adapter has no such workload")
        figures = act(job)
        if inspect.isawaitable(figures):
            figures = asyncio.run(_finished(figures))
        say(figures=figures)
    except Refused as reason:
        say(refused=str(reason))
    os._exit(0)


async def _finished(awaitable: Any) -> Any:
    return await awaitable


def say(**message: Any) -> None:
    # On the descriptor itself: systems replace sys.stdout, or leave half a line in its buffer.
    os.write(_answers, (json.dumps(message) + "\n").encode())


def ready() -> None:
    say(ready=True)


async def forever() -> None:
    await asyncio.Event().wait()


_answers = 1


# -- measuring ---------------------------------------------------------------------------------------------------------


class Stopwatch:
    """`with Stopwatch() as watch: ...`, then `watch.seconds`."""

    seconds: float = 0.0

    def __enter__(self) -> Stopwatch:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began


async def median_seconds(times: int, act: Callable[[], Awaitable[None]]) -> float:
    """What `act` takes, the garbage of the one before collected first."""
    seconds: list[float] = []
    for _ in range(times):
        gc.collect()
        with Stopwatch() as watch:
            await act()
        seconds.append(watch.seconds)
    return statistics.median(seconds)


@contextlib.contextmanager
def milliseconds(into: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    into.append((time.perf_counter() - began) * 1000)


def resident_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process, in bytes. Zero where there is no /proc."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return 0


def paces(times: list[float], window: int) -> dict[str, float]:
    """Microseconds of a step at the start and at the end, from the moments at which steps began."""
    first = (times[window] - times[0]) / window
    last = (times[-1] - times[-1 - window]) / window
    return {"first_us": first * 1e6, "last_us": last * 1e6, "seconds": times[-1] - times[0], "steps": len(times)}


class Gate:
    """Where the first life of a killed workload stops, and what the second one passes.

    Counts the arrivals; at the last of them the driver is told to kill. The second life notes when the first came.
    """

    def __init__(self, job: Job, arrivals: int = 1) -> None:
        self.closed = job.life == 1
        self._missing = arrivals
        self.passed_at: float | None = None

    def arrive(self) -> None:
        if self.closed:
            self._missing -= 1
            if self._missing == 0:
                ready()
        elif self.passed_at is None:
            self.passed_at = time.perf_counter()
