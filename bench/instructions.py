"""How many bytecodes two kernels take: a measure of work that no busy machine can disturb. `make instructions`

    replay   rebuilding a run of 200 steps from its records, in the pure kernel
    live     the same run from `start` to its result on the memory store, engine and all

Counted are the bytecodes executed in files of perdure, by tracing, in a process of its own with a fixed hash seed. The
budgets are in instructions.json, by Python version; `tests/bench` compares. Why so: docs/decisions/0090.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

STEPS = 200
BUDGETS = Path(__file__).with_suffix(".json")
#: By how much a count may be above its budget: more than any two runs differ, less than any change worth a look.
TOLERANCE = 0.03
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


class Counter:
    """Counts the bytecodes that are executed in files below a directory, on this thread."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.gettrace()
        # Python 3.12 reports bytecodes only if some frame had asked for them when the tracing began.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _kind: str, _argument: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self._directory):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._execute

    def _execute(self, _frame: FrameType, kind: str, _argument: Any) -> Callable[..., Any]:
        if kind == "opcode":
            self.count += 1
        return self._execute


async def count_all() -> dict[str, int]:
    """Count both kernels in this process. Deterministic only in a fresh one: see `counted`."""
    import perdure
    from perdure import Engine, step, workflow
    from perdure.kernel.frontier import decode_frontier
    from perdure.kernel.journal import from_row
    from perdure.kernel.run import Run
    from perdure.store.memory import MemoryStore

    @step
    async def increment(number: int) -> int:
        return number + 1

    @workflow
    async def count_to(limit: int) -> int:
        number = 0
        for _ in range(limit):
            number = await increment(number)
        return number

    directory = os.path.dirname(perdure.__file__)
    live, replay = Counter(directory), Counter(directory)
    store = MemoryStore()
    # The sweep comes by the clock; it must not come while something is counted.
    async with Engine(store, sweep_interval=3_600) as engine:
        assert await (await engine.start(count_to(3), id="warm")).result() == 3
        with live.counting():
            assert await (await engine.start(count_to(STEPS), id="counted")).result() == STEPS
        row = await store.get("counted")
        assert row is not None
        (loaded,) = await store.load([row.key])
        with replay.counting():
            # Without the last record, the end: a run that has ended is never replayed.
            records = [from_row(one) for one in loaded.rows[:-1]]
            run = Run(count_to.spec, "counted", 1, latest=lambda name: count_to.spec)
            run.replay(records, decode_frontier(row.frontier) if row.frontier else None)
        run.close()
    return {"live": live.count, "replay": replay.count}


def counted() -> dict[str, int]:
    """All counts, from a fresh process."""
    command = [sys.executable, "-m", "bench.instructions", "--count"]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, cwd=BUDGETS.parents[1], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def budgets() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(BUDGETS.read_text()) if BUDGETS.exists() else {}
    return found


def main() -> None:
    if sys.argv[1:] == ["--count"]:
        print(json.dumps(asyncio.run(count_all())))
        return
    known = budgets()
    found = counted()
    for name, count in sorted(found.items()):
        before = known.get(VERSION, {}).get(name)
        change = f", {count / before - 1:+.1%} from its budget" if before else ""
        print(f"{name}: {count:,} bytecodes, {count / STEPS:.0f} a step{change}")
    if sys.argv[1:] == ["--renew"]:
        BUDGETS.write_text(json.dumps(dict(sorted((known | {VERSION: found}).items())), indent=2) + "\n")
        print(f"{BUDGETS.name} renewed for Python {VERSION}")


if __name__ == "__main__":
    main()
