"""The processes of isolated steps: how many there are, what they are used for, and that none outlives its worker."""

from __future__ import annotations

import asyncio
import glob
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import Engine, limits
from perdure.engine.attempts.isolated_jobs import Job, Surroundings, frame, read_frame
from perdure.engine.attempts.processes import StepProcesses
from perdure.engine.settings import load_settings
from steps.isolated_steps import (
    isolated_pids,
    isolated_pids_side_by_side,
    isolated_reports,
    isolated_spin,
    isolated_surroundings,
)
from support.lives import Lives, run_async, until
from support.processes import TESTS, Process


def alive(pid: int) -> bool:
    """Not a zombie either: of another process, that is one whose parent has not looked yet."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def pid_in(marker: Path) -> int | None:
    text = marker.read_text() if marker.exists() else ""
    return int(text) if text else None


def pids_of(release: Path) -> list[int]:
    return [int(found.rpartition(".")[2]) for found in glob.glob(f"{release}.*")]


def test_process_is_used_for_one_attempt_after_another(lives: Lives) -> None:
    """Starting one takes longer than most steps."""

    async def main() -> list[int]:
        async with lives.engine() as engine:
            return await (await engine.start(isolated_pids(["pid"] * 4))).result(timeout=20)

    pids = run_async(main())
    assert len(set(pids)) == 1
    assert os.getpid() not in pids
    assert not alive(pids[0]), "an engine that is closed leaves none behind"


def test_no_more_processes_than_allowed(lives: Lives, tmp_path: Path) -> None:
    """By default as many as there are cores; the rest waits, and is said to."""
    releases = [tmp_path / str(number) for number in range(4)]

    async def main() -> tuple[int, str, list[int]]:
        async with lives.engine(step_processes=2) as engine:
            handle = await engine.start(isolated_pids_side_by_side([str(release) for release in releases]), id="run")
            await until(lambda: sum(len(pids_of(release)) for release in releases) == 2)
            at_once = sum(len(pids_of(release)) for release in releases)
            attempts = next(iter(engine.worker.residents)).attempts  # type: ignore[union-attr]
            places = sorted(attempt.waits_for for attempt in attempts.values())
            for release in releases:
                release.touch()
            return at_once, ",".join(places), await handle.result(timeout=20)

    at_once, places, pids = run_async(main())
    assert at_once == 2
    assert places == ",,step_processes,step_processes"
    assert len(set(pids)) == 2
    assert load_settings({}, {}).step_processes is None
    assert StepProcesses(None).size == len(os.sched_getaffinity(0))


def test_process_that_died_without_work_is_replaced(lives: Lives) -> None:
    """No attempt is lost to a process that somebody ended between two."""

    async def main() -> tuple[int, int]:
        async with lives.engine() as engine:
            (first,) = await (await engine.start(isolated_pids(["pid"]))).result(timeout=20)
            os.kill(first, signal.SIGKILL)
            await until(lambda: not alive(first))
            (second,) = await (await engine.start(isolated_pids(["pid"]))).result(timeout=20)
            return first, second

    first, second = run_async(main())
    assert first != second


def test_process_that_dies_with_a_job_it_has_not_begun(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was dying when it got the job, and only looked alive: the attempt begins in another one, once."""

    async def main() -> tuple[int, int, list[str]]:
        async with lives.engine() as engine:
            (first,) = await (await engine.start(isolated_pids(["pid"]))).result(timeout=20)
            os.kill(first, signal.SIGKILL)
            await until(lambda: not alive(first))
            monkeypatch.setattr("subprocess.Popen.poll", lambda process: None)
            (second,) = await (await engine.start(isolated_pids(["pid"]), id="run")).result(timeout=20)
            monkeypatch.undo()
            return first, second, [entry.kind for entry in await engine.admin.history("run")]

    first, second, kinds = run_async(main())
    assert first != second
    assert kinds == ["started", "step_done", "completed"]


def test_process_with_threads_left_behind_is_not_used_again(lives: Lives) -> None:
    """What a step leaves running does not run beside the next one."""

    async def main() -> list[int]:
        async with lives.engine() as engine:
            return await (await engine.start(isolated_pids(["thread", "pid", "pid"]))).result(timeout=20)

    left, *others = run_async(main())
    assert left not in others
    assert len(set(others)) == 1
    assert not alive(left)


def test_process_without_work_is_ended(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while; the next step gets a new one."""
    monkeypatch.setattr(limits, "STEP_PROCESS_IDLE_SECONDS", 0.05)

    async def main() -> tuple[int, int]:
        async with lives.engine() as engine:
            (first,) = await (await engine.start(isolated_pids(["pid"]))).result(timeout=20)
            await until(lambda: not alive(first))
            (second,) = await (await engine.start(isolated_pids(["pid"]))).result(timeout=20)
            return first, second

    first, second = run_async(main())
    assert first != second


def test_step_sees_the_directory_and_the_environment_of_its_worker(
    lives: Lives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the worker has when the attempt begins, also in a process that was there before."""

    async def main() -> tuple[tuple[str, str], tuple[str, str]]:
        async with lives.engine() as engine:
            before = await (await engine.start(isolated_surroundings("PERDURE_TEST"))).result(timeout=20)
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("PERDURE_TEST", "set")
            return before, await (await engine.start(isolated_surroundings("PERDURE_TEST"))).result(timeout=20)

    directory = os.getcwd()
    assert run_async(main()) == ((directory, ""), (str(tmp_path), "set"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_for_the_whole_group_is_no_outcome(lives: Lives, tmp_path: Path, number: int) -> None:
    """Ctrl-C and service managers reach the process too: it ends with its worker, which may wait for the step."""
    release = tmp_path / "release"

    async def main() -> tuple[list[int], list[int]]:
        async with lives.engine() as engine:
            handle = await engine.start(isolated_pids_side_by_side([str(release)]))
            await until(lambda: bool(pids_of(release)))
            struck = pids_of(release)
            os.kill(struck[0], number)
            release.touch()
            return struck, await handle.result(timeout=20)

    struck, pids = run_async(main())
    assert pids == struck


def test_timeout_of_an_isolated_step_counts_from_the_start_of_its_code(lives: Lives) -> None:
    """Neither starting a process nor importing the step's module is part of it."""
    sys.modules.pop("steps.slow_to_import", None)
    from steps.slow_to_import import slowly_imported

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(slowly_imported())).result(timeout=20)

    assert run_async(main()) == "quick"


def test_attempt_that_a_stranger_cancels_takes_its_process_with_it(
    lives: Lives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is recorded of it, and the same attempt begins again in another process."""
    monkeypatch.setattr(limits, "CANCELLED_BY_OTHERS_SECONDS", 0.05)
    release = tmp_path / "release"

    async def main() -> tuple[list[int], list[str]]:
        async with lives.engine() as engine:
            handle = await engine.start(isolated_pids_side_by_side([str(release)]), id="run")
            await until(lambda: len(pids_of(release)) == 1)
            (first,) = pids_of(release)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await until(lambda: len(pids_of(release)) == 2)
            assert not alive(first)
            release.touch()
            return await handle.result(timeout=20), [entry.kind for entry in await engine.admin.history("run")]

    pids, kinds = run_async(main())
    assert pids[0] in pids_of(release)
    assert kinds == ["started", "step_done", "completed"]


def test_task_that_is_cancelled_while_its_process_starts_begins_again(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has begun yet, and nothing hangs."""
    monkeypatch.setattr(limits, "CANCELLED_BY_OTHERS_SECONDS", 0.05)

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handle = await engine.start(isolated_reports(), id="run")
            await until(lambda: engine.worker.attempts.running == 1)  # type: ignore[union-attr]
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await handle.result(timeout=20)
            return [entry.kind for entry in await engine.admin.history("run")]

    assert run_async(main()) == ["started", "step_done", "step_done", "completed"]


async def spin(path: str, marker: str) -> None:
    async with Engine(path) as engine:
        await (await engine.start(isolated_spin(marker, 60.0))).result()


def test_killed_worker_takes_its_processes_with_it(tmp_path: Path) -> None:
    """FAULTS D: beside the second attempt, in the next worker, the first one would still be going on."""
    marker = tmp_path / "pid"
    with Process("steps.test_step_processes:spin", str(tmp_path / "test.db"), str(marker)) as process:
        run_async(until(lambda: pid_in(marker) is not None))
        pid = pid_in(marker)
        assert pid is not None
        process.kill()
        run_async(until(lambda: not alive(pid)), 5.0)


def job(qualname: str, arguments: object) -> bytes:
    path = [str(TESTS), *sys.path]
    text = json.dumps(
        {"module": "steps.isolated_steps", "qualname": qualname, "main_file": None, "path": path,
         "arguments": arguments, "run_id": "r", "location": "l", "attempt": 1, "origin": "o"}
    )  # fmt: skip
    assert set(json.loads(text)) == set(Job.__struct_fields__)
    return frame(b"null") + frame(text.encode())


def test_process_ends_with_its_pipe_where_the_system_does_not_help(tmp_path: Path) -> None:
    """Not on Linux: it watches the pipe through which its jobs come, also in the middle of one."""
    assert Surroundings.__struct_fields__ == ("directory", "environment")
    code = "import sys; sys.platform = 'elsewhere'; from perdure.engine.attempts.isolation import main; main()"
    marker = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert read_frame(process.stdout) == b""  # it is there  # type: ignore[arg-type]
        process.stdin.write(job("spins", {"marker": str(marker)}))
        process.stdin.flush()
        assert read_frame(process.stdout) == b""  # the code begins  # type: ignore[arg-type]
        run_async(until(lambda: pid_in(marker) == process.pid))
        process.stdin.close()
        assert process.wait(10) == 1


NOTEBOOK = """
import perdure
from perdure import step, workflow

@step(isolation="process")
def ask() -> int:
    return 1

@workflow
async def script() -> str:
    return str(await ask())

print(perdure.run(script()))
"""


def test_step_of_a_notebook_says_what_to_do(tmp_path: Path) -> None:
    """Another process cannot import what was typed in; refused where it is written."""
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, timeout=30, check=False)
    assert "BadDefinition: step 'ask' cannot have isolation='process': it is defined in a notebook" in done.stderr
    assert "Put it into a module" in done.stderr
