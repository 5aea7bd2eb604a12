"""What auto mode adds to code that only computes: two effects with 1,000 pure assignments between them, and without.

`python bench/auto.py [PAIRS]` runs the two workflows in turn on one SQLite file and compares medians. All that may
be added is the time that the assignments take in plain Python, which is shown too.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from perdure import Engine, workflow
from perdure.types import Workflow

ASSIGNMENTS = 1_000
#: One of each kind, again and again.
KINDS = (
    "total = total * 3 + {n}",
    "name = 'order-' + str({n})",
    "first, second = second, first + {n}",
    "items[{n} % 10] = total % 7",
    "text: str = f'{{name}}:{{first}}'",
    "largest = max(first, second, {n}) if first else len(items)",
    "items.append(items.pop())",
    "total %= 1_000_003",
)
#: The bar, as a part of the time of the two effects.
ADDED_MAX = 0.10


def effect(n: int) -> int:
    return n + 1


def source(assignments: int) -> str:
    """A function with that many assignments between two effects."""
    lines = [KINDS[n % len(KINDS)].format(n=n) for n in range(assignments)]
    body = "\n    ".join(["total = effect(1)", "first = second = 0", "items = list(range(10))", "name = ''", *lines])
    return f"def with_{assignments}():\n    {body}\n    return effect(total)\n"


def made(assignments: int, folder: Path) -> Workflow[..., Any]:
    text = source(assignments)
    file = folder / f"with_{assignments}.py"
    file.write_text(text)
    names: dict[str, Any] = {"__name__": file.stem, "effect": effect}
    exec(compile(text, str(file), "exec"), names)
    return workflow(auto=True)(names[file.stem])


async def measure(pairs: int, folder: Path) -> float:
    """The part that the assignments add. In turn, so that a slow moment of the disk is shared by both."""
    flows = [made(0, folder), made(ASSIGNMENTS, folder)]
    took: list[list[float]] = [[], []]
    async with Engine(folder / "auto.db") as engine:
        for number in range(pairs + 10):
            for flow, times in zip(flows, took, strict=True):
                began = time.perf_counter()
                await (await engine.start(flow(), id=f"{flow.name}-{number}")).result()
                if number >= 10:  # the first ones warm up
                    times.append(time.perf_counter() - began)
    plain = flows[1].function
    alone: list[float] = []
    for _ in range(pairs):
        began = time.perf_counter()
        plain()
        alone.append(time.perf_counter() - began)
    without, with_them = (statistics.median(times) for times in took)
    print(f"two effects              {without * 1e3:7.3f} ms  (median of {pairs})")
    print(f"... and {ASSIGNMENTS} assignments   {with_them * 1e3:7.3f} ms")
    print(f"the same in plain Python {statistics.median(alone) * 1e3:7.3f} ms  (nothing durable)")
    return with_them / without - 1


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as folder:
        added = asyncio.run(measure(pairs, Path(folder)))
    print(f"added                    {added * 100:7.1f} %   (bar: under {ADDED_MAX * 100:.0f} %)")
    sys.exit(0 if added < ADDED_MAX else 1)


if __name__ == "__main__":
    main()
