"""A run that failed shows the user's lines where its result is asked for: the workflow's, then the step's."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest

from perdure import ChildFailed, RunFailed, join, step, workflow
from perdure.kernel.values.faults import encode_error
from support.lives import Lives, run_async

HERE = Path(__file__).name


def divide(number: int) -> float:
    return 1 / number  # the line that raises


@step(max_attempts=1)
async def failing(number: int) -> float:
    return divide(number)


@step(max_attempts=1)
def failing_in_a_thread(number: int) -> float:
    return divide(number)


@step(max_attempts=1, isolation="process")
def failing_elsewhere(number: int) -> float:
    return divide(number)


STEPS = {"async": failing, "thread": failing_in_a_thread, "process": failing_elsewhere}


@workflow
async def fails(kind: str) -> float:
    return await STEPS[kind](0)  # the workflow's line


@workflow
async def parent() -> float:
    return await fails("async")  # the parent's line


@workflow
async def fails_together() -> None:
    await join(a=failing(0), b=failing(0))  # the line of the join


def shown(lives: Lives, invocation: object) -> tuple[str, RunFailed]:
    """What Python prints for the error, asked for by an engine that did not run it and has no worker."""

    async def main() -> RunFailed:
        async with lives.engine() as engine:
            handle = await engine.start(invocation, id="run")  # type: ignore[arg-type]
            with pytest.raises(RunFailed):
                await handle.result(timeout=30)
        async with lives.engine(worker=False) as client:
            with pytest.raises(RunFailed) as caught:
                await client.result("run", timeout=30)
        return caught.value

    error = run_async(main())
    return "".join(traceback.format_exception(error)), error


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


@pytest.mark.parametrize("kind", sorted(STEPS))
def test_the_workflows_line_comes_first_then_the_steps_then_the_error(lives: Lives, kind: str) -> None:
    text, error = shown(lives, fails(kind))
    assert in_order(
        text,
        f'{HERE}", line ',
        "return await STEPS[kind](0)  # the workflow's line",
        "return divide(number)",
        "return 1 / number  # the line that raises",
        "ZeroDivisionError: division by zero",
        "RunFailed: run 'run' failed: ZeroDivisionError",
    )
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_a_failed_child_shows_the_lines_of_both_workflows(lives: Lives) -> None:
    text, error = shown(lives, parent())
    assert isinstance(error.__cause__, ChildFailed)
    assert in_order(text, "# the workflow's line", "# the line that raises", "ZeroDivisionError", "# the parent's line")


def test_members_of_a_group_show_their_lines(lives: Lives) -> None:
    text, _ = shown(lives, fails_together())
    assert "# the line of the join" in text
    assert text.count("# the line that raises") == 2


def test_an_error_that_is_recorded_again_has_its_lines_once(lives: Lives) -> None:
    """A step may wait for another run, and fail with it."""
    _, error = shown(lives, fails("async"))
    assert error.__cause__ is not None
    again = encode_error(error.__cause__).traceback
    assert again.count("in divide") == 1
    assert in_order(again, "in fails", "in failing", "in divide")


def script(tmp_path: Path, text: str, name: str = "shop.py") -> Path:
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return path


FAILING = """
    import os
    import perdure
    from perdure import step, workflow

    @step(max_attempts=1)
    async def charge(cents: int) -> int:
        return 100 // cents  # the step's line

    @workflow
    async def order() -> int:
        return await charge(0)  # the workflow's line
"""


def test_an_uncaught_error_of_a_script_shows_the_users_lines(tmp_path: Path) -> None:
    path = script(tmp_path, FAILING + "    perdure.run(order())\n")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert in_order(done.stderr, "charge(0)  # the workflow's line", "100 // cents  # the step's line", "ZeroDivision")


def test_a_failing_pytest_shows_the_users_lines(tmp_path: Path) -> None:
    """The long form and the summary."""
    path = script(tmp_path, FAILING + "    def test_order():\n        perdure.run(order())\n", "test_shop.py")
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert in_order(done.stdout, "charge(0)  # the workflow's line", "100 // cents  # the step's line")
    assert "FAILED test_shop.py::test_order - perdure.errors.RunFailed: run " in done.stdout


@pytest.mark.parametrize("changed", [True, False])
def test_a_file_that_changed_since_or_is_gone_does_no_harm(tmp_path: Path, changed: bool) -> None:
    """Lines of a changed file may be wrong, and the note says so; of a missing one only file and number are shown."""
    after = "os.utime(__file__, (4e9, 4e9))" if changed else "os.remove(__file__)"
    path = script(
        tmp_path,
        FAILING.replace("# the workflow's line", "").replace("return 100", f"{after}\n        return 100")
        + "    perdure.run(order())\n",
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert f'File "{path}", line ' in done.stderr
    assert ("Changed since the run failed" in done.stderr) is changed
    assert os.path.exists(path) is changed
