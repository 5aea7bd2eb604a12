"""People see their own code: tracebacks, `inspect`, line numbers, breakpoints and coverage are those of the source."""

from __future__ import annotations

import bdb
import inspect
import io
import logging
import pdb
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from auto import corpus_corners
from auto.comparing import durably, plainly
from auto.corpus import PLAIN, WORKFLOWS, done
from perdure import RunFailed, info, workflow
from perdure.cli.errors import error_text
from perdure.testing import VirtualEngine, crash_everywhere
from support.lives import run_async

assert corpus_corners  # its functions are part of the corpus
FILE = Path(__file__).name
logger = logging.getLogger(__name__)


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


async def _shown(invocation: Any) -> str:
    """What `perdure show` prints about the failure."""
    async with VirtualEngine() as engine:
        with pytest.raises(RunFailed):
            await (await engine.start(invocation, id="run")).result()
        return error_text((await engine.admin.history("run"))[-1].data["error"])


@pytest.mark.parametrize(
    ("flow", "text"),
    [(fails_late, 'raise LookupError("here")'), (divides, "/ zero")],
    ids=["raise", "division"],
)
def test_a_traceback_shows_the_users_file_line_and_text(flow: Any, text: str) -> None:
    """CONFORMANCE A4: where it is recorded, and where it is shown."""
    function = flow.function
    code = flow.spec.function.__code__
    assert code.co_filename == function.__code__.co_filename == __file__
    lines = Path(__file__).read_text().splitlines()
    line = next(i for i, one in enumerate(lines, 1) if one.strip() == text)
    first = line - 1 if flow is divides else line  # the operation begins where its left side stands
    shown = run_async(_shown(flow(1)))
    frames = [f'{FILE}", line {at}, in {function.__name__}\n        {lines[at - 1].strip()}' for at in (line, first)]
    assert any(frame in shown for frame in frames), shown


def test_the_code_has_the_lines_of_the_source() -> None:
    """CONFORMANCE A4: coverage tools count the right lines."""
    for flow in (fails_late, divides):
        original = {line for _, _, line in flow.function.__code__.co_lines() if line}
        rewritten = {line for _, _, line in flow.spec.function.__code__.co_lines() if line}
        body = {line for line in original if line > flow.function.__code__.co_firstlineno + 1}
        assert body == {line for line in rewritten if line > flow.function.__code__.co_firstlineno + 1}


def test_inspect_finds_the_source_and_the_signature() -> None:
    """Tools see the function that was written, not the one that was made of it. CONFORMANCE A4."""
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


class _Stepping(bdb.Bdb):
    """Stops at a line, then goes on from line to line of that function, over what it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []

    def user_line(self, frame: FrameType) -> None:
        if self.lines or self.break_here(frame):
            self.lines.append(frame.f_lineno)
            self.set_next(frame)
        else:
            self.set_continue()


@workflow(auto=True)
def steps_along(n: int) -> int:
    first = get(n)
    second = get(first) + 1
    rows = [get(one) for one in (1, 2)]
    if get(second) > 1:
        third = get(len(rows))
    return third


def test_next_goes_to_the_next_line_of_the_workflow() -> None:
    """CONFORMANCE A4: over recorded calls, although the workflow waits for them."""
    start = steps_along.function.__code__.co_firstlineno
    debugger = _Stepping()
    assert debugger.set_break(__file__, start + 2) is None
    before = sys.gettrace()
    try:
        debugger.reset()
        sys.settrace(debugger.trace_dispatch)
        run_async(_finished(steps_along(1)))
    finally:
        sys.settrace(before)
        debugger.clear_all_breaks()
    assert [line - start for line in debugger.lines[:6]] == [2, 3, 4, 5, 6, 7]


def test_pdb_shows_the_line_and_evaluates_the_variables() -> None:
    """CONFORMANCE A4: the debugger that people use, with commands from a script."""
    line = steps_along.function.__code__.co_firstlineno + 5
    said = io.StringIO()
    commands = io.StringIO(
        f"break {__file__}:{line}\ncontinue\nprint([first, second, rows])\nwhere\nclear 1\ncontinue\n"
    )
    debugger = pdb.Pdb(stdin=commands, stdout=said, nosigint=True, readrc=False)
    before = sys.gettrace()
    try:
        debugger.runcall(run_async, _finished(steps_along(1)))
    finally:
        sys.settrace(before)
        debugger.clear_all_breaks()
    assert "[1, 2, [1, 2]]" in said.getvalue()
    assert f"{FILE}({line})steps_along()\n-> if get(second) > 1:" in said.getvalue()


@workflow(auto=True)
def stops_by_itself() -> int:
    number = get(3)
    breakpoint()
    return number


def test_breakpoint_stops_in_the_workflows_own_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A debugger shows the variables of the workflow. CONFORMANCE A4."""
    seen: list[tuple[str, int, Any]] = []

    def hook(*_: Any) -> None:
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_lineno, frame.f_locals["number"]))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    assert run_async(_finished(stops_by_itself())) == 3
    assert seen[0] == ("stops_by_itself", stops_by_itself.function.__code__.co_firstlineno + 3, 3)


async def _finished(invocation: Any) -> Any:
    async with VirtualEngine() as engine:
        return await (await engine.start(invocation)).result()


def _lines_seen(run: Callable[[], Any], code: CodeType, lines: range) -> set[int]:
    """The lines of a function that are executed, in whatever thread: what a coverage tool counts."""
    seen: set[int] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != code.co_filename:
            return None
        if event == "line" and frame.f_lineno in lines:
            seen.add(frame.f_lineno)
        return trace

    before, before_in_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)  # type: ignore[arg-type]
    return seen


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_the_lines_that_run_are_those_that_run_in_plain_python(name: str) -> None:
    """CONFORMANCE A4: coverage counts the same lines, for every function of the corpus."""
    function, args = PLAIN[name]
    text, start = inspect.getsourcelines(function)
    lines = range(start + 1, start + len(text))
    expected = _lines_seen(lambda: plainly(function, args, done), function.__code__, lines)
    found = _lines_seen(lambda: durably(WORKFLOWS[name], args, done), function.__code__, lines)
    assert found == expected
    assert expected


@workflow(auto=True)
def where() -> list[str]:
    get(1)
    return [info().id, get("x")]


def test_a_record_names_the_line_that_asked() -> None:
    async def main() -> list[str]:
        async with VirtualEngine() as engine:
            await (await engine.start(where(), id="run")).result()
            return [entry.data["site"] for entry in await engine.admin.history("run") if entry.kind == "step_done"]

    first = where.function.__code__.co_firstlineno
    assert run_async(main()) == [f"{FILE}:{first + 2}", f"{FILE}:{first + 3}"]


@workflow(auto=True, max_attempts=1)
def describes_its_failure() -> list[Any]:
    try:
        get(1)
        raise LookupError("here")
    except LookupError as error:
        kind, value, _ = sys.exc_info()
        logger.exception("it failed with %s", error)
        return [traceback.format_exc(), kind is LookupError and value is error, traceback.format_exception(error)]


def test_a_workflow_can_describe_the_failure_it_handles(caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE A4: `traceback`, `sys.exc_info` and `logger.exception` see the exception that is being handled."""
    printed, is_same, parts = crash_everywhere(describes_its_failure(), hash_seeds=()).result
    line = describes_its_failure.function.__code__.co_firstlineno + 4
    expected = f'File "{__file__}", line {line}, in describes_its_failure\n    raise LookupError("here")'
    assert expected in printed
    assert expected in "".join(parts)
    assert is_same
    caplog.clear()
    run_async(_finished(describes_its_failure()))
    (record,) = [one for one in caplog.records if one.name == logger.name]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


def test_a_line_of_a_log_is_written_once_and_needs_no_commit(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[str]:
        async with VirtualEngine(always_replay=True) as engine:
            await (await engine.start(describes_its_failure(), id="run")).result()
            return [entry.kind for entry in await engine.admin.history("run")]

    kinds = run_async(main())
    assert [one.name for one in caplog.records].count(logger.name) == 1
    assert kinds == ["started", "step_done", "recorded", "recorded", "recorded", "completed"]


def fails_inside() -> None:
    raise OSError("the disk is full")


@workflow(auto=True, max_attempts=1)
def fails_in_what_it_calls() -> None:
    get(1)
    fails_inside()


def test_the_traceback_of_a_recorded_call_leads_to_the_function_and_to_the_workflow() -> None:
    """CONFORMANCE A4: both ends are there: where it was called, and where it failed."""
    shown = run_async(_shown(fails_in_what_it_calls()))
    line = fails_in_what_it_calls.function.__code__.co_firstlineno + 3
    assert f'{FILE}", line {line}, in fails_in_what_it_calls\n        fails_inside()' in shown
    assert 'in fails_inside\n        raise OSError("the disk is full")' in shown
