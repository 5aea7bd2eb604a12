"""People see their own code: tracebacks, `inspect`, line numbers, breakpoints and coverage are those of the source."""

from __future__ import annotations

import bdb
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from perdure import RunFailed, info, workflow
from perdure.testing import VirtualEngine
from support.lives import run_async

FILE = Path(__file__).name


def get(n: Any) -> Any:
    return n


def outer(factor: int) -> Any:
    @workflow(auto=True, name=f"scaled-{factor}")
    def scaled(n: int, *, more: int = factor) -> int:
        """A closure."""
        total = get(n) * factor
        return total + get(more)

    return scaled


@workflow(auto=True)
async def fails_late(n: int) -> int:
    first = get(n)
    seen = [
        get(first),
        first,
    ]
    if get(seen):
        raise LookupError("here")
    return 1


@workflow(auto=True)
def divides(n: int) -> float:
    zero = get(0)
    return (
        n
        / zero
    )  # fmt: skip


async def _outcome(invocation: Any) -> BaseException:
    async with VirtualEngine() as engine:
        with pytest.raises(RunFailed) as caught:
            await (await engine.start(invocation)).result()
    return caught.value


@pytest.mark.parametrize(
    ("flow", "text", "offset"),
    [(fails_late, 'raise LookupError("here")', 8), (divides, "/ zero", 4)],
    ids=["raise", "division"],
)
def test_a_traceback_shows_the_users_file_line_and_text(flow: Any, text: str, offset: int) -> None:
    """CONFORMANCE A4: as recorded, and as Python prints it."""
    function = flow.function
    code = flow.spec.function.__code__
    assert code.co_filename == function.__code__.co_filename == __file__
    error = run_async(_outcome(flow(1)))
    assert error.__cause__ is not None
    recorded = "".join(str(getattr(error.__cause__, "__perdure_traceback__", "")))
    lines = Path(__file__).read_text().splitlines()
    line = next(i for i, one in enumerate(lines, 1) if one.strip() == text)
    first = line - 1 if flow is divides else line  # the operation begins where its left side stands
    assert any(f'{FILE}", line {at}, in {function.__name__}' in recorded for at in (line, first)), recorded


def test_the_code_has_the_lines_of_the_source() -> None:
    """CONFORMANCE A4: coverage tools count the right lines."""
    for flow in (fails_late, divides):
        original = {line for _, _, line in flow.function.__code__.co_lines() if line}
        rewritten = {line for _, _, line in flow.spec.function.__code__.co_lines() if line}
        body = {line for line in original if line > flow.function.__code__.co_firstlineno + 1}
        assert body == {line for line in rewritten if line > flow.function.__code__.co_firstlineno + 1}


def test_inspect_finds_the_source_and_the_signature() -> None:
    """CONFORMANCE A4."""
    assert "first = get(n)" in inspect.getsource(fails_late.function)
    assert "first = get(n)" in inspect.getsource(fails_late)  # type: ignore[arg-type]
    assert list(inspect.signature(fails_late).parameters) == ["n"]
    made = fails_late.spec.function
    assert made.__qualname__ == "fails_late"
    assert "first = get(n)" in inspect.getsource(made)
    assert outer(3).function.__doc__ == "A closure."
    assert outer(4).spec.function.__code__.co_qualname == "outer.<locals>.scaled"


def test_closure_defaults_and_annotations_are_kept() -> None:
    flow = outer(5)
    made: Any = flow.spec.function
    assert made.__kwdefaults__ == {"more": 5}
    assert made.__annotations__ == flow.function.__annotations__

    async def main() -> list[int]:
        async with VirtualEngine() as engine:
            runs = [await engine.start(flow(2)), await engine.start(flow(2, more=1))]
            return [await run.result() for run in runs]

    assert run_async(main()) == [15, 11]


class _Debugger(bdb.Bdb):
    def __init__(self) -> None:
        super().__init__()
        self.stops: list[tuple[str, int, dict[str, Any]]] = []

    def user_line(self, frame: FrameType) -> None:
        if self.break_here(frame):
            self.stops.append((frame.f_code.co_name, frame.f_lineno, dict(frame.f_locals)))
        self.set_continue()


def test_a_debugger_stops_at_the_line_and_sees_the_variables() -> None:
    """CONFORMANCE A4: a breakpoint set by file and line."""
    line = fails_late.function.__code__.co_firstlineno + 3
    debugger = _Debugger()
    assert debugger.set_break(__file__, line) is None
    before = sys.gettrace()
    try:
        debugger.reset()
        sys.settrace(debugger.trace_dispatch)
        run_async(_outcome(fails_late(7)))
    finally:
        sys.settrace(before)
        debugger.clear_all_breaks()
    names = [(name, at) for name, at, _ in debugger.stops]
    assert ("fails_late", line) in names
    assert debugger.stops[0][2]["first"] == 7


def _lines_seen(run: Callable[[], Any], code_name: str) -> set[int]:
    seen: set[int] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name == code_name:
            if event == "line":
                seen.add(frame.f_lineno)
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return seen


def test_the_lines_that_run_are_those_of_the_source() -> None:
    """CONFORMANCE A4: what a coverage tool would see."""
    first = fails_late.function.__code__.co_firstlineno
    seen = _lines_seen(lambda: run_async(_outcome(fails_late(1))), "fails_late")
    assert {line - first for line in seen} >= {2, 3, 7, 8}
    assert not {line - first for line in seen} & {0, 1, 9}


@workflow(auto=True)
def where() -> list[str]:
    get(1)
    return [info().id, get("x")]


def test_a_record_names_the_line_that_asked() -> None:
    async def main() -> list[str]:
        async with VirtualEngine() as engine:
            await (await engine.start(where(), id="run")).result()
            return [entry.data["site"] for entry in await engine.history("run") if entry.kind == "step_done"]

    first = where.function.__code__.co_firstlineno
    assert run_async(main()) == [f"{FILE}:{first + 2}", f"{FILE}:{first + 3}"]


def test_python_prints_the_source_line() -> None:
    """CONFORMANCE A4: the frame itself leads to the text."""
    made = divides.spec.function
    coroutine = made(1)
    try:
        frame = coroutine.cr_frame
        summary = traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        assert "def divides" in (summary.line or "")
    finally:
        coroutine.close()
