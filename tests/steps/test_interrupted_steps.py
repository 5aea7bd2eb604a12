"""KeyboardInterrupt, SystemExit and MemoryError inside a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import current_step, step, workflow
from support.effects import Effects
from support.lives import Lives, run_async
from support.processes import Process


@pytest.mark.parametrize("how", ["exit", "keyboard", "thread"])
def test_interrupt_in_a_step_ends_the_process_and_the_step_runs_again_later(
    tmp_path: Path, effects: Effects, how: str
) -> None:
    """FAULTS D24: the process ends, the run is not failed, and the next process retries the step."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}
    with Process("steps.crash_children:interrupted_script", path, how, env=env) as process:
        assert process.line() == "", "it printed no result"
        assert process.wait() != 0
    with Process("steps.crash_children:interrupted_script", path, how, env={**env, "FINISH": "1"}) as process:
        process.expect("finished")
        assert process.wait() == 0
    assert len(effects.lines()) == 2


@step(initial_delay=0.001)
async def runs_out_of_memory() -> int:
    if current_step().attempt < 3:
        raise MemoryError
    return current_step().attempt


@workflow
async def short_of_memory() -> int:
    return await runs_out_of_memory()


def test_memory_error_in_a_step_is_an_ordinary_failed_attempt(lives: Lives) -> None:
    """FAULTS D26: recorded whole, and tried again."""

    async def main() -> tuple[int, list[str]]:
        async with lives.engine() as engine:
            handle = await engine.start(short_of_memory())
            result = await handle.result()
            return result, [entry.kind for entry in await engine.history(handle.id)]

    assert run_async(main()) == (3, ["started", "step_retry", "step_retry", "step_done", "completed"])
