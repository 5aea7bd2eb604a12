"""`sys.exit` or Ctrl-C in workflow code ends the process, never the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.lives import Lives, run_async
from support.processes import Process


@pytest.mark.parametrize("leaves", ["exit", "interrupt"])
def test_a_run_goes_on_after_its_code_ended_the_process(tmp_path: Path, leaves: str) -> None:
    """FAULTS D23: the process shuts down in order, the run is not failed, and the next process finishes it."""
    database = tmp_path / "test.db"
    with Process("kernel.leaving:life", str(database), leaves) as process:
        process.expect("step")
        assert process.line() == ""
        assert process.wait() != 0

    async def status() -> str:
        async with Lives("sqlite", tmp_path).engine(worker=False) as engine:
            return (await engine.status("run")).status

    assert run_async(status()) not in ("failed", "cancelled", "completed", "parked")
    with Process("kernel.leaving:life", str(database), "no") as process:
        lines = [process.line(), process.line()]
        assert "result 1" in lines
        assert process.wait() == 0
