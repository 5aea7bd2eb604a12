"""`isolation="process"`: code in a process of its own, which a timeout or a cancel really ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import RunCancelled, RunFailed, StepTimeout
from steps.isolated_steps import isolated_death, isolated_failure, isolated_reports, isolated_spin
from support.lives import Lives, run_async, until


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_in(marker: Path) -> int | None:
    text = marker.read_text() if marker.exists() else ""
    return int(text) if text else None


def test_isolated_steps_run_in_processes_of_their_own(lives: Lives) -> None:
    """CONFORMANCE S4: sync and async; `current_step()` works there; prints do not spoil the answer."""

    async def main() -> None:
        async with lives.engine() as engine:
            first, second = await (await engine.start(isolated_reports())).result()
            assert os.getpid() not in (first.pid, second.pid)
            assert first.attempt == second.attempt == 1
            assert len({first.key, second.key}) == 2

    run_async(main())


def test_error_of_an_isolated_step_keeps_its_class(lives: Lives) -> None:
    """CONFORMANCE S4: `except` matches as if the step had run here."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(isolated_failure())).result()

    assert run_async(main()) == "Unwell so so"


def test_process_that_dies_is_a_failed_attempt(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE S4: a crash of the isolated code does not touch the worker; the step is tried again."""

    async def main() -> tuple[str, list[str]]:
        async with lives.engine() as engine:
            handle = await engine.start(isolated_death(str(tmp_path / "marker")))
            result = await handle.result()
            history = await engine.admin.history(handle.id)
            return result, [e.data["error"]["message"] for e in history if e.kind == "step_retry"]

    result, errors = run_async(main())
    assert result == "second"
    assert "exit status 7" in errors[0]


def test_timeout_kills_the_process(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE S4: code that ignores everything is gone after its timeout."""
    marker = tmp_path / "pid"

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(isolated_spin(str(marker), 2.0))
            with pytest.raises(RunFailed) as caught:
                await handle.result()
            assert isinstance(caught.value.__cause__, StepTimeout)

    run_async(main())
    pid = pid_in(marker)
    assert pid is not None, "the step had begun before its timeout"
    assert not alive(pid)


def test_cancel_kills_the_process(lives: Lives, tmp_path: Path) -> None:
    """An isolated step ends with its process, whatever its code does. CONFORMANCE S4 and S7."""
    marker = tmp_path / "pid"

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(isolated_spin(str(marker), 60.0))
            await until(lambda: pid_in(marker) is not None)
            assert await handle.cancel("enough")
            with pytest.raises(RunCancelled):
                await handle.result()
            pid = pid_in(marker)
            assert pid is not None
            await until(lambda: not alive(pid))

    run_async(main())


def test_closing_the_engine_leaves_no_process_behind(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE S4: the grace is over, the engine goes, and so does the process."""
    marker = tmp_path / "pid"

    async def main() -> int:
        async with lives.engine(shutdown_grace=0.01) as engine:
            await engine.start(isolated_spin(str(marker), 60.0))
            await until(lambda: pid_in(marker) is not None)
        pid = pid_in(marker)
        assert pid is not None
        return pid

    assert not alive(run_async(main()))


SCRIPT = """
import dataclasses
import os
import sys
import perdure
from perdure import step, workflow

@dataclasses.dataclass
class Answer:
    pid: int
    text: str

class Odd(Exception):
    pass

@step(isolation="process")
def ask(text: str) -> Answer:
    return Answer(os.getpid(), text.upper())

@step(isolation="process", max_attempts=1)
def fail() -> None:
    raise Odd("odd")

@workflow
async def script() -> str:
    answer = await ask("yes")
    assert isinstance(answer, Answer)
    assert answer.pid != os.getpid()
    try:
        await fail()
    except Odd as error:
        return f"{answer.text} {error}"
    return answer.text

if __name__ == "__main__":
    print(perdure.run(script()))
"""


def test_isolated_steps_of_a_script_work(tmp_path: Path) -> None:
    """CONFORMANCE S4: a step defined in `__main__` is found by the other process; its classes are the script's own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "YES odd\n", done.stderr
