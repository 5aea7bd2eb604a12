"""The code of a workflow is read when it is first used, once, and what is found is a warning at its line."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, event, receive, workflow
from perdure.engine import linting
from perdure.errors import DeterminismWarning
from support.lives import Lives, run_async


def asks_for_the_process() -> int:
    return os.getpid()  # the line of the warning


LINE = asks_for_the_process.__code__.co_firstlineno + 1


@event
@dataclass
class Go:
    pass


@workflow
async def calls_a_helper() -> int:
    return asks_for_the_process()


@workflow
async def waits_and_calls_a_helper() -> int:
    await receive(Go)
    return asks_for_the_process()


@workflow
async def nothing_wrong() -> int:
    return 1


@workflow
async def has_a_child() -> int:
    return await calls_a_helper()


@workflow
async def silenced() -> int:
    return os.getpid()  # perdure: ignore


@pytest.fixture(autouse=True)
def _nothing_read_yet() -> None:
    linting._read.clear()


def _warned(lives: Lives, flow: Any, times: int = 1, **settings: Any) -> list[warnings.WarningMessage]:
    async def main() -> None:
        async with lives.engine(**settings) as engine:
            for _ in range(times):
                await (await engine.start(flow())).result()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_async(main())
    return [one for one in caught if one.category is DeterminismWarning]


def test_it_is_warned_of_once_at_its_own_line(lives: Lives) -> None:
    """FAULTS D9: the file and line of the call, the helper it is in, and what to write."""
    (one,) = _warned(lives, calls_a_helper, times=3)
    assert (one.filename, one.lineno) == (__file__, LINE)
    assert str(one.message) == (
        "workflow 'calls_a_helper', through 'asks_for_the_process' calls os.getpid(): move it into a step"
    )
    assert _warned(lives, calls_a_helper) == [], "once per process"


def test_good_code_is_not_warned_of(lives: Lives) -> None:
    assert _warned(lives, nothing_wrong) == []


def test_a_child_is_read_too(lives: Lives) -> None:
    assert len(_warned(lives, has_a_child)) == 1


def test_it_can_be_switched_off(lives: Lives) -> None:
    assert _warned(lives, calls_a_helper, lint="off") == []


def test_one_line_can_be_excused(lives: Lives) -> None:
    """A comment on the line, for what is known to be harmless."""
    assert _warned(lives, silenced) == []


def test_where_warnings_are_errors_the_start_is_refused(lives: Lives) -> None:
    """Nothing has begun, so the caller can be told."""

    async def main() -> None:
        async with lives.engine() as engine:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeterminismWarning)
                with pytest.raises(DeterminismWarning, match=r"os\.getpid"):
                    await engine.start(calls_a_helper(), id="run")
            assert await engine.list() == []

    run_async(main())


def test_a_run_that_is_under_way_goes_on_all_the_same(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """A warning that is an error must not stop runs which were started long ago: it is logged."""

    async def main() -> int:
        async with lives.engine(lint="off") as engine:
            await engine.start(waits_and_calls_a_helper(), id="run")
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeterminismWarning)
            async with lives.engine() as engine:
                await engine.send("run", Go())
                return int(await engine.result("run", timeout=30))

    assert run_async(main()) == os.getpid()
    assert "calls os.getpid()" in caplog.text


def test_importing_and_decorating_reads_nothing(tmp_path: Path) -> None:
    """Programs that only import workflows, or only start them elsewhere, pay nothing for the lint."""
    app = tmp_path / "an_app.py"
    app.write_text("import os\nfrom perdure import workflow\n\n@workflow\nasync def bad():\n    return os.getpid()\n")
    code = "import sys, an_app; print('perdure.authoring.lint' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "False"


def test_an_engine_without_a_worker_reads_nothing() -> None:
    async def main() -> None:
        async with Engine(":memory:", worker=False) as engine:
            await engine.start(calls_a_helper(), id="run")

    with warnings.catch_warnings():
        warnings.simplefilter("error", DeterminismWarning)
        run_async(main())
