"""Several processes on one SQLite file: they share the work, wake each other, and take over from the dead."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path

from events.kinds import Note
from perdure import Engine, step, workflow
from perdure.types import Status
from processes.dying import wait_for_note
from support.effects import Effects
from support.lives import run_async, until
from support.processes import Process


@step
async def say_who(path: str, text: str) -> int:
    Effects(Path(path)).add(text)
    # Held until another process works too: this worker has room for five runs only, so the rest is for that one.
    workers = Effects(Path(f"{path}.workers"))
    if str(os.getpid()) not in workers.lines():
        workers.add(str(os.getpid()))
    await until(lambda: len(set(workers.lines())) > 1)
    return os.getpid()


@workflow
async def shared_work(path: str, number: int) -> list[int]:
    return [await say_who(path, f"{number}-{turn}") for turn in range(3)]


@step
async def hang_in_the_first_worker(path: str) -> int:
    if not Path(f"{path}.killed").exists():
        print("hanging", flush=True)
        await asyncio.Event().wait()
    return os.getpid()


@workflow
async def needs_a_takeover(path: str) -> int:
    return await hang_in_the_first_worker(path)


async def serve(database: str, sweep_interval: str = "1.0", residents_max: str = "5000") -> None:
    async with Engine(database, sweep_interval=float(sweep_interval), residents_max=int(residents_max)):
        print("ready", flush=True)
        await asyncio.Event().wait()


SERVE = "processes.test_two_processes:serve"


def test_two_workers_share_the_work_and_no_step_runs_twice(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE W6: runs started by a third process; both workers take some, each step runs once."""
    database = tmp_path / "shared.db"

    async def main() -> set[int]:
        pids: set[int] = set()
        async with Engine(database, worker=False) as client:
            with (
                Process(SERVE, str(database), "0.05", "5") as first,
                Process(SERVE, str(database), "0.05", "5") as second,
            ):
                first.expect("ready")
                second.expect("ready")
                runs = []
                for number in range(150):
                    runs.append(await client.start(shared_work(str(effects.path), number), id=f"run-{number}"))
                for run in runs:
                    result = await run.result(timeout=30)
                    assert len(set(result)) == 1  # nothing was moved: nobody died
                    pids.update(result)
                assert pids <= {first.pid, second.pid}
        return pids

    pids = run_async(main(), patience=60)
    assert len(pids) == 2, "one worker did everything"
    assert set(effects.counts().values()) == {1}
    assert len(effects.lines()) == 450


def test_a_send_wakes_a_worker_in_another_process_in_well_under_a_second(tmp_path: Path) -> None:
    """CONFORMANCE W6: default settings, a client without worker; from send to the result seen by the client."""
    database = tmp_path / "woken.db"

    async def main() -> list[float]:
        seconds: list[float] = []
        async with Engine(database, worker=False) as client:
            with Process(SERVE, str(database)) as worker:
                worker.expect("ready")
                for number in range(10):
                    run = await client.start(wait_for_note(), id=f"run-{number}")

                    async def waits(run_id: str = run.id) -> bool:
                        return (await client.status(run_id)).status is Status.WAITING

                    await until(waits)
                    began = time.monotonic()
                    await client.send(run.id, Note("wake up"))
                    assert await run.result(timeout=10) == "wake up"
                    seconds.append(time.monotonic() - began)
        return seconds

    seconds = run_async(main())
    print(f"median {statistics.median(seconds) * 1000:.0f} ms, worst {max(seconds) * 1000:.0f} ms")
    assert max(seconds) < 1.0


def test_a_running_worker_takes_over_from_one_that_was_killed(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE W6, R2: the second worker is there already; within a few sweeps it has every run."""
    database = tmp_path / "taken.db"

    async def main() -> float:
        async with Engine(database, worker=False) as client:
            with Process(SERVE, str(database), "0.1") as first:
                first.expect("ready")
                runs = [await client.start(needs_a_takeover(str(effects.path)), id=f"run-{n}") for n in range(10)]
                for _ in runs:
                    first.expect("hanging")
                with Process(SERVE, str(database), "0.1") as second:
                    second.expect("ready")
                    for run in runs:
                        assert (await run.status()).status is Status.RUNNING
                    Path(f"{effects.path}.killed").touch()
                    first.kill()
                    began = time.monotonic()
                    for run in runs:
                        assert await run.result(timeout=20) == second.pid
                    return time.monotonic() - began

    seconds = run_async(main())
    print(f"taken over within {seconds * 1000:.0f} ms")
    assert seconds < 3.0


def test_a_restart_after_a_kill_recovers_at_once(tmp_path: Path, effects: Effects) -> None:
    """Liveness is an OS lock, so the next process does not wait for a lease to run out."""
    database = tmp_path / "restarted.db"

    async def main() -> float:
        async with Engine(database, worker=False) as client:
            with Process(SERVE, str(database)) as first:
                first.expect("ready")
                run = await client.start(needs_a_takeover(str(effects.path)), id="run")
                first.expect("hanging")
            Path(f"{effects.path}.killed").touch()
            with Process(SERVE, str(database)) as second:
                second.expect("ready")
                began = time.monotonic()
                assert await run.result(timeout=20) == second.pid
                return time.monotonic() - began

    assert run_async(main()) < 1.0
