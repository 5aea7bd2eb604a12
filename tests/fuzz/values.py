"""Hostile values through every public call: `main(count, seed)`.

Each call must work, and then bring the value back as it was, or raise an error of perdure, or a `TypeError` or
`ValueError` of Python's that says something. It must not hang, end the process, or let out what code of the value
raised; and afterwards the engine runs an ordinary workflow. Call number n of seed s is the first call of seed s + n.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import io
import logging
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz.calls import INSIDE, OUTSIDE, RUN_CODE, Lost, World, run_inside
from fuzz.hostile import Draws, Trap
from fuzz.workflows import ordinary
from perdure import Engine, PerdureError
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore

#: Calls on one engine. Then another one opens the store and reads everything that was written.
CALLS_PER_STORE = 100
#: No call takes this long on any machine; what does, hangs.
PATIENCE_SECONDS = 30.0
#: When not even the event loop goes on: the process says where it is, and ends.
STUCK_SECONDS = 180.0


class Broken(AssertionError):
    """What a fuzzer found."""


def problem_of(error: BaseException) -> str | None:
    """Why this may not come out of a public call; None if it may."""
    if isinstance(error, Lost | AssertionError):
        return f"{error}"
    if isinstance(error, TimeoutError):
        return None if str(error) == "" or "came within" in str(error) else "hangs"
    if isinstance(error, PerdureError):
        return None if _is_printable(error) else "a message that cannot be printed"
    if isinstance(error, TypeError | ValueError) and not isinstance(error, UnicodeError) and str(error).strip():
        return None
    return f"{_class_name(error)} came out"


def _is_printable(error: BaseException) -> bool:
    try:
        return bool(str(error).encode())
    except Exception:
        return False


class Fuzzer:
    """One series of calls."""

    def __init__(self, seed: int, is_watched: bool) -> None:
        self.seed = seed
        self.is_watched = is_watched
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []
        self._noises: list[str] = []

    async def series(self, store: Store, first: int, count: int) -> None:
        asyncio.get_running_loop().set_exception_handler(self._noise)
        async with Engine(store, sweep_interval=0.05) as engine:
            world = World(engine)
            await world.prepare()
            world.number = first * 10
            for index in range(first, first + count):
                await self._call(world, index)

    async def second_life(self, store: Store, what: str) -> None:
        """Another engine reads what is there."""
        asyncio.get_running_loop().set_exception_handler(self._noise)
        async with Engine(store, sweep_interval=0.05) as engine:
            try:
                await self._read_everything(engine)
                await self._ordinary(engine)
            except Exception as error:
                self.problems.append(f"{what}: {_class_name(error)} when it is read in a second life\n{_trace(error)}")

    async def _read_everything(self, engine: Engine) -> None:
        self.outcomes["replayed"] += len([checked async for checked in engine.admin.check()])
        after: str | None = None
        while page := await engine.list(limit=100, after=after):
            for view in page:
                await engine.admin.history(view.id)
                await engine.admin.why(view.id)
                await engine.admin.export_run(view.id)
            after = page[-1].id

    def _noise(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        told = "".join(traceback.format_exception(error)) if isinstance(error, Exception) else ""
        self._noises.append(f"{context.get('message')} {told}")

    async def _ordinary(self, engine: Engine) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await (await engine.start(ordinary(5))).result()
        if found != 7:
            raise Broken(f"an ordinary workflow returned {found!r} afterwards")

    async def _call(self, world: World, index: int) -> None:
        draws = Draws(random.Random(f"{self.seed + index}"))
        name = draws.rng.choice([*OUTSIDE, *INSIDE])
        if self.is_watched:
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        problem = detail = ""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await (OUTSIDE[name](world, draws) if name in OUTSIDE else run_inside(name, world, draws))
            self.outcomes["worked"] += 1
        except Exception as error:
            self.outcomes[_class_name(error)] += 1
            found = None if isinstance(error, Trap | RuntimeError) and name in RUN_CODE else problem_of(error)
            if found is not None:
                problem, detail = found, _trace(error)
        finally:
            draws.close()
        try:
            await self._ordinary(world.engine)
        except Exception as error:
            problem, detail = f"no ordinary workflow runs after it: {_class_name(error)}", _trace(error)
        if self._noises:
            problem, detail = problem or "something was left to the event loop", "\n".join((detail, *self._noises))
            self._noises.clear()
        if problem:
            self.problems.append(
                f"call {index} ({name}): {problem}. Again: python -m fuzz values 1 {self.seed + index}\n{detail}"
            )


def _class_name(error: BaseException) -> str:
    return str(type.__dict__["__name__"].__get__(type(error)))


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error, limit=-12))[-4_000:]
    except Exception as another:
        return f"its traceback cannot be shown: {_class_name(another)}"


def fuzz(count: int, seed: int, *, is_watched: bool = False, directory: Path | None = None) -> Fuzzer:
    """Make calls, on memory and on SQLite in turn."""
    fuzzer = Fuzzer(seed, is_watched)
    begun = said = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-fuzz-", dir=directory) as folder:
        for number, first in enumerate(range(0, count, CALLS_PER_STORE)):
            memory = MemoryStore()
            path = Path(folder) / f"{number}.db"
            size = min(CALLS_PER_STORE, count - first)
            what = f"calls {first} to {first + size - 1}"
            try:
                asyncio.run(fuzzer.series(memory if number % 2 else SQLiteStore(path), first, size))
                asyncio.run(fuzzer.second_life(memory if number % 2 else SQLiteStore(path), what))
            except Exception as error:
                fuzzer.problems.append(f"{what}: {_class_name(error)} ended the event loop\n{_trace(error)}")
            gc.collect()
            if is_watched and time.monotonic() - said > 10:
                said = time.monotonic()
                print(f"{first + size} calls, {len(fuzzer.problems)} problems, {said - begun:.0f} s", flush=True)
    if is_watched:
        faulthandler.cancel_dump_traceback_later()
    return fuzzer


def _quietly(unraisable: Any) -> None:
    if unraisable.exc_type not in (Trap, RecursionError):
        sys.__unraisablehook__(unraisable)


def main(count: int, seed: int) -> int:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    # Everything is logged, to nowhere: writing a line about a hostile value is part of what must not fail.
    logging.basicConfig(level=logging.DEBUG, stream=io.StringIO(), force=True)
    logging.raiseExceptions = False
    sys.unraisablehook = _quietly
    fuzzer = fuzz(count, seed, is_watched=True)
    for problem in fuzzer.problems[:20]:
        print(problem, end="\n\n")
    kinds = ", ".join(f"{kind} {number}" for kind, number in fuzzer.outcomes.most_common())
    print(f"{count} calls (seed {seed}), {len(fuzzer.problems)} problems. What came of them: {kinds}")
    return 1 if fuzzer.problems else 0
