"""One straight walk: how a step's result gets from the user's function to the disk and back (ARCHITECTURE.md)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

import perdure
from perdure import Engine, step, workflow
from perdure.engine import fast_path
from support.lives import run_async

PACKAGE = Path(perdure.__path__[0])
ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
#: What the house promises; it was 16 once.
CROSSINGS_MAX = 8


class Call(NamedTuple):
    caller: str
    package: str
    function: str


class Trace:
    """Calls of functions of perdure, between two results of a step."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._results = 0
        self.calls: list[Call] = []

    def result(self) -> None:
        self._results += 1
        if self._results == self._first:
            sys.setprofile(self._note)
        elif self._results == self._first + 1:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        package = _package(frame.f_code)
        if event == "call" and package is not None:
            callers = (found for found in _packages(frame.f_back) if found is not None)
            file = Path(frame.f_code.co_filename).relative_to(PACKAGE)
            self.calls.append(Call(next(callers, package), package, f"{file}:{frame.f_code.co_name}"))

    def crossings(self) -> list[str]:
        return [call.function for call in self.calls if call.caller != call.package]


def _package(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).parts[0] if path.is_relative_to(PACKAGE) and path.parent != PACKAGE else None


def _packages(frame: FrameType | None) -> Iterator[str | None]:
    while frame is not None:
        yield _package(frame.f_code)
        frame = frame.f_back


trace = Trace(10)


@step
async def walked(number: int) -> int:
    trace.result()
    return number + 1


@workflow
async def walks() -> int:
    number = 0
    for _ in range(20):
        number = await walked(number)
    return number


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """One step on the general path, on SQLite."""
    monkeypatch.setattr(fast_path, "IN_USE", False)
    global trace
    trace = Trace(30)

    async def main() -> None:
        # Without a sweep that may fall between the two results: no interval, no hints, and the first sweep is over when
        # the second run begins, which is the one that is traced.
        async with Engine(tmp_path / "walk.db", sweep_interval=3_600) as engine:
            assert engine.parts is not None
            assert engine.parts.unwatch is not None
            engine.parts.unwatch()
            for _ in range(2):
                assert await (await engine.start(walks())).result(timeout=20) == 20

    run_async(main())
    return trace


def test_a_result_crosses_between_packages_a_few_times(walk: Trace) -> None:
    """From the return of a step's function to the start of the next one, its commit included."""
    crossings = walk.crossings()
    assert len(crossings) <= CROSSINGS_MAX, crossings
    assert "kernel/advance.py:advance" in crossings
    assert any(call.startswith("store/sqlite/") for call in crossings)


def test_a_turn_is_made_in_one_place_and_released_in_one(walk: Trace) -> None:
    functions = [call.function for call in walk.calls]
    assert functions.count("engine/turns.py:take") == 1
    assert functions.count("engine/worker/committing.py:release") == 1


def test_the_picture_shows_each_crossing(walk: Trace) -> None:
    """ARCHITECTURE.md draws the walk with the functions by which it crosses."""
    drawn = re.findall(r"`([a-z_/]+\.py):(\w+)`", ARCHITECTURE.read_text())
    assert set(walk.crossings()) <= {f"{file}:{function}" for file, function in drawn}
