"""What the guard costs a step: `python -m bench.guard`.

Two whole runs differ by more than the guard costs, so its parts are measured and put together, in one process within
the same seconds: how many audit events a step of the `many` workload (1,000 runs of 5 trivial steps, SQLite) causes,
what one of them costs with the hook, and how often the watchdog is told that turns begin. All of it against the
processor time that the loop's thread takes for a step. The lint is paid once for each workflow and is shown apart.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.adapters.perdure import count_to
from perdure import Engine
from perdure.authoring.registry import registry
from perdure.engine import guarding, linting
from perdure.engine.watchdog import Watchdog
from perdure.kernel.eventloop.hosting import TurnMonitor

BAR_PERCENT = 3.0
ROUNDS = 7
RUNS, STEPS_PER_RUN = 1_000, 5
_STEPS = RUNS * STEPS_PER_RUN


class Cost(NamedTuple):
    step_microseconds: float
    events_per_step: float
    event_nanoseconds: float
    beats_per_step: float
    beat_nanoseconds: float
    lint_milliseconds: float

    @property
    def percent(self) -> float:
        guard = self.events_per_step * self.event_nanoseconds + self.beats_per_step * self.beat_nanoseconds
        # What was measured includes the guard; the bar is about what it adds.
        return guard / (self.step_microseconds * 1_000 - guard) * 100


def nanoseconds(call: Callable[[], object], number: int = 20_000) -> float:
    return min(timeit.repeat(call, number=number, repeat=30)) / number * 1e9


def count_events(counts: dict[str, int]) -> None:
    """Audit hooks cannot be removed, so this one is the last thing to be measured."""

    def count(event: str, _arguments: Any) -> None:
        counts["events"] += 1

    sys.addaudithook(count)


async def _one(engine: Engine) -> None:
    assert await (await engine.start(count_to(STEPS_PER_RUN))).result() == STEPS_PER_RUN


async def workload(directory: Path, name: str) -> float:
    """Processor seconds of this thread, for all of it."""
    async with Engine(directory / f"{name}.db") as engine:
        gc.collect()
        begun = time.thread_time()
        await asyncio.gather(*(_one(engine) for _ in range(RUNS)))
        return time.thread_time() - begun


def event_seconds(number: int = 200_000) -> float:
    """Processor seconds that one audited call takes now, under whatever load there is."""
    look = sys._getframe
    begun = time.thread_time()
    for _ in range(number):
        look()
    return (time.thread_time() - begun) / number


async def measure(directory: Path) -> Cost:
    bare = event_seconds()
    begun = time.thread_time()
    linting.Linter(registry, active=True).read(count_to.name, count_to.version)
    lint = time.thread_time() - begun

    guarding.install_guard()
    idle = Watchdog(TurnMonitor(), 1, 30)
    idle.idle = False  # as while a worker is busy: nobody has to be woken
    beat = nanoseconds(idle.beat)
    # One after the other, so that what slows this machine down slows both.
    rounds = [(await workload(directory, f"timed-{number}"), event_seconds() - bare) for number in range(ROUNDS)]
    seconds, event = sorted(rounds, key=lambda pair: pair[1] / pair[0])[ROUNDS // 2]

    beats = 0
    usual = Watchdog.beat

    def counted(self: Watchdog) -> None:
        nonlocal beats
        beats += 1
        usual(self)

    Watchdog.beat = counted  # type: ignore[method-assign]
    counts = {"events": 0}
    count_events(counts)
    before = counts["events"]
    await workload(directory, "counted")
    events = counts["events"] - before
    return Cost(seconds / _STEPS * 1e6, events / _STEPS, event * 1e9, beats / _STEPS, beat, lint * 1e3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cost = asyncio.run(measure(Path(directory)))
    if arguments.json:
        print(json.dumps({**cost._asdict(), "percent": cost.percent}))
    else:
        print(f"a step takes                 {cost.step_microseconds:8.1f} us of the loop's thread")
        print(f"  audit events               {cost.events_per_step:8.2f} at {cost.event_nanoseconds:.0f} ns each")
        print(f"  beats of the watchdog      {cost.beats_per_step:8.4f} at {cost.beat_nanoseconds:.0f} ns each")
        print(f"the guard adds               {cost.percent:8.2f} % (bar: {BAR_PERCENT:g} %)")
        print(f"the lint takes               {cost.lint_milliseconds:8.1f} ms for a first workflow, once in a process")
    return 0 if cost.percent < BAR_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
