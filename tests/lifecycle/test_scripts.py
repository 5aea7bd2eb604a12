"""`perdure.run`: scripts, and scripts that are run again after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import RunFailed, step, workflow
from perdure.errors import RunConflict
from support.effects import Effects
from support.processes import Process


@step
async def doubled(number: int) -> int:
    return 2 * number


@workflow
async def doubles(number: int) -> int:
    return await doubled(number)


@workflow
async def fails_in_a_script() -> None:
    raise LookupError("nothing there")


def test_script_runs_a_workflow_to_its_end(tmp_path: Path) -> None:
    """In memory, on a file, on a path object; the same id twice is the same run."""
    assert perdure.run(doubles(2)) == 4
    path = tmp_path / "script.db"
    assert perdure.run(doubles(3), store=path, id="run") == 6
    assert perdure.run(doubles(3), store=str(path), id="run") == 6
    with pytest.raises(RunConflict):
        perdure.run(doubles(4), store=path, id="run")


def test_failure_of_the_run_is_raised(tmp_path: Path) -> None:
    """With the workflow's own error as the cause."""
    with pytest.raises(RunFailed) as caught:
        perdure.run(fails_in_a_script(), store=tmp_path / "script.db")
    assert isinstance(caught.value.__cause__, LookupError)


def test_script_killed_in_the_middle_goes_on_when_run_again(tmp_path: Path, effects: Effects) -> None:
    """FAULTS A8: recorded steps do not run again; the one that was cut off does."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}
    with Process("lifecycle.script_children:script", path, env=env) as process:
        assert process.line() == ""
        assert process.wait() == -9
    with Process("lifecycle.script_children:script", path, env={**env, "FINISH": "1"}) as process:
        process.expect("10")
        assert process.wait() == 0
    assert effects.lines() == ["step 0", "step 1", "step 2", "step 3", "step 3", "step 4"]
