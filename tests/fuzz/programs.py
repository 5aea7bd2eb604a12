"""Random programs over all of asyncio, through hosts that cancel everything, loops that end, crashes and collections.

`main(count, seed)` runs so many programs, on memory and on SQLite. Each lives through some disasters until a last, calm
life brings it to its end. Then its outcome must be the one that plain Python has (`asyncio_programs`), and its journal
must replay to the same outcome, trace and all: here, and in other processes with other hash seeds. A part of them is
also rebuilt from the journal after every single record (`kernel.programs`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fuzz.asyncio_programs import Node, expected, fuzz_program, grow
from kernel import programs as kernel_programs
from kernel.programs import Refused, rebuild_always
from perdure import Engine, limits
from perdure.admin.transfer import export_run, read, row_of_record
from perdure.authoring.registry import registry
from perdure.kernel.journal import Completed, from_row
from perdure.kernel.outcomes import Complete
from perdure.kernel.run import Run
from perdure.testing.histories import History
from support.lives import Lives
from support.processes import Process

BATCH = 25
DEPTH = 3
DISASTERS_MAX = 3
#: A program that has not ended by then never will: they take milliseconds.
PATIENCE_SECONDS = 60.0
#: One of so many is also rebuilt after every record.
REBUILT = 5
#: Journals for one other process.
ELSEWHERE = 200
HASH_SEEDS = ("1", "4711")


class Wrong(AssertionError):
    """A program did what it must not; says which, so that it can be repeated."""


async def perform(name: str, fails: bool) -> str:
    """What a step does: it takes some time or none, or collects garbage, and fails if it is to."""
    chance = random.random()
    if chance < 0.3:
        await asyncio.sleep(chance / 100)
    elif chance < 0.35:
        gc.collect()
    if fails:
        raise Refused(name)
    return f"{name}!"


@contextlib.contextmanager
def _performing() -> Iterator[None]:
    before = kernel_programs.perform, limits.CANCELLED_BY_OTHERS_SECONDS
    kernel_programs.perform = perform
    limits.CANCELLED_BY_OTHERS_SECONDS = 0.01  # type: ignore[misc]
    try:
        yield
    finally:
        kernel_programs.perform, limits.CANCELLED_BY_OTHERS_SECONDS = before  # type: ignore[misc]


# -- lives -----------------------------------------------------------------------------------------------------


async def _begin(engine: Engine, programs: dict[str, Node]) -> list[Any]:
    return [await engine.start(fuzz_program(node), id=run_id) for run_id, node in programs.items()]


def _cancel_everything() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def _disaster(lives: Lives, engine: Engine, programs: dict[str, Node], kind: str, seconds: float) -> None:
    """One life, up to its disaster. With "end" the engine is left as it is, and the loop ends around it."""
    await engine.open()
    await _begin(engine, programs)
    await asyncio.sleep(seconds)
    match kind:
        case "cancel":
            _cancel_everything()
            await asyncio.sleep(seconds)
        case "cancel and close":
            _cancel_everything()
            await engine.close(grace=0)
        case "close":
            await engine.close(grace=0)
        case "collect":
            gc.collect()
            await asyncio.sleep(seconds)
    if kind in ("cancel", "collect", "crash"):
        await lives.crash(engine)


def _forget(lives: Lives, engine: Engine) -> None:
    """The process of an engine whose loop has ended is gone, as far as the store can see."""
    worker = engine.worker
    assert worker is not None
    if lives.kind == "memory":
        lives._memory.kill_worker(worker.id)
    else:
        asyncio.run(engine.store.close())


async def _calm(engine: Engine, programs: dict[str, Node]) -> dict[str, History]:
    """The last life: every program comes to its end."""
    async with engine:
        handles = await _begin(engine, programs)
        for handle in handles:
            try:
                await handle.result(timeout=PATIENCE_SECONDS)
            except Exception as error:
                reason = await engine.admin.why(handle.id)
                raise Wrong(f"{handle.id} {programs[handle.id]} ends with {error!r}: {reason}") from error
        return {run_id: read(await export_run(engine.store, run_id), run_id) for run_id in programs}


_DISASTERS = ("cancel", "cancel and close", "close", "collect", "crash", "end", "end")


def _live(lives: Lives, programs: dict[str, Node], rng: random.Random) -> dict[str, History]:
    for _ in range(rng.randint(0, DISASTERS_MAX)):
        kind, seconds = rng.choice(_DISASTERS), rng.choice([0, 0.001, 0.005, 0.02])
        engine = lives.engine()
        asyncio.run(_disaster(lives, engine, programs, kind, seconds))
        if kind == "end":
            _forget(lives, engine)
    return asyncio.run(_calm(lives.engine(), programs))


# -- looking at the outcome --------------------------------------------------------------------------------------


def problem_of(history: History) -> str | None:
    """Replays the journal of a run that has completed: what differs, or None."""
    journal = history.journals[-1]
    records = [from_row(row_of_record(one)) for one in journal.records]
    spec = registry.workflow(history.workflow, "1")
    assert spec is not None
    run = Run(spec, history.id, journal.number, latest=registry.latest, arguments_check="park")
    try:
        run.replay(records, None)
        outcome, last = run.outcome, records[-1].body
        if not isinstance(outcome, Complete) or not isinstance(last, Completed):
            return f"{history.id} replays to {outcome}, recorded is {last}"
        if bytes(outcome.value) != bytes(last.value):
            return f"{history.id} {_difference(bytes(outcome.value), bytes(last.value))}"
        return None
    except Exception as error:
        return f"{history.id} does not replay: {type(error).__name__}: {error}"
    finally:
        run.close()


def _difference(replayed: bytes, recorded: bytes) -> str:
    now, then = (msgspec.json.decode(value) for value in (replayed, recorded))
    if now["value"] != then["value"]:
        return f"replays to {now['value']}, recorded is {then['value']}"
    traces = zip(now["trace"], then["trace"], strict=False)
    at = next((index for index, (one, other) in enumerate(traces) if one != other), -5)
    return f"replays in another order: {now['trace'][at - 4 : at + 4]}, recorded is {then['trace'][at - 4 : at + 4]}"


def value_in(history: History) -> Any:
    last: Any = from_row(row_of_record(history.journals[-1].records[-1])).body
    if not isinstance(last, Completed):
        return f"not completed: {last}"
    spec = registry.workflow(history.workflow, "1")
    assert spec is not None
    return spec.result.decode(last.value, "the result of a program")["value"]


def check(history: History, node: Node) -> None:
    value, model = value_in(history), expected(node)
    if value != model:
        raise Wrong(f"{history.id} {node} returned {value}, and on an ordinary loop {model}")
    problem = problem_of(history)
    if problem is not None:
        raise Wrong(f"{node}: {problem}")


# -- other processes ---------------------------------------------------------------------------------------------


def elsewhere(path: str) -> None:
    """In another process: one line with what differs, or none."""
    histories = msgspec.json.decode(Path(path).read_bytes(), type=list[History])
    found = [problem for history in histories if (problem := problem_of(history)) is not None]
    print(found[0] if found else f"{len(histories)} alike", flush=True)


class Elsewhere:
    """Processes with other hash seeds, which replay while the next programs run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._histories: list[History] = []
        self._running: list[tuple[Process, str]] = []

    def add(self, histories: list[History]) -> None:
        self._histories += histories
        if len(self._histories) >= ELSEWHERE:
            self.send()

    def send(self) -> None:
        self.wait()
        if self._histories:
            self._number += 1
            path = self._folder / f"journals-{self._number}.json"
            path.write_bytes(msgspec.json.encode(self._histories))
            answer = f"{len(self._histories)} alike"
            self._histories = []
            self._running = [
                (Process("fuzz.programs:elsewhere", str(path), env={"PYTHONHASHSEED": seed}), answer)
                for seed in HASH_SEEDS
            ]

    def wait(self) -> None:
        running, self._running = self._running, []
        for process, answer in running:
            with process:
                line = process.line(patience=600)
            if line != answer:
                raise Wrong(f"in another process: {line or 'it ended without an answer'}")


# -- all of it -------------------------------------------------------------------------------------------------


def batch(seed: int, count: int, folder: Path) -> list[History]:
    """So many programs on one store, through the same disasters."""
    rng = random.Random(seed)
    lives = Lives("sqlite" if seed % 2 else "memory", folder).fresh()
    programs = {f"program-{seed}-{number}": grow(rng, DEPTH) for number in range(count)}
    try:
        histories = _live(lives, programs, rng)
        for run_id, history in histories.items():
            check(history, programs[run_id])
        for number, (run_id, node) in enumerate(programs.items()):
            if number % REBUILT == 0 and not any(kind in repr(node) for kind in ("'child'", "'note'")):
                rebuild_always(random.Random(run_id), fuzz_program(node), seed)
    except BaseException as error:
        error.add_note(f"To repeat it: python -m fuzz programs {count} {seed}")
        raise
    return list(histories.values())


def main(count: int, seed: int) -> int:
    """Run `count` programs; 0 if none of them went wrong."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _performing():
        others = Elsewhere(Path(folder))
        done = 0
        while done < count:
            size = min(BATCH, count - done)
            others.add(batch(seed, size, Path(folder) / str(seed)))
            done, seed = done + size, seed + 1
            if sys.stderr.isatty() or done % (BATCH * 20) == 0:
                print(f"{done:,} programs, {time.monotonic() - begun:.0f} s", flush=True)
        others.send()
        others.wait()
    print(f"{done:,} programs: no hang, no crash, no difference ({time.monotonic() - begun:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
