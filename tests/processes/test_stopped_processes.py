"""A worker's process is stopped (SIGSTOP) and goes on later, as when a machine sleeps: late, once, and not lost."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from perdure import Engine, sleep, step, workflow
from support.effects import Effects
from support.lives import run_async, until
from support.processes import Process


@step
async def woken(path: str, number: int) -> int:
    Effects(Path(path)).add(f"woken {number}")
    return number


@workflow
async def sleeps_a_little(path: str, number: int) -> int:
    await sleep(0.5)
    return await woken(path, number)


async def serve(database: str) -> None:
    async with Engine(database, sweep_interval=0.05):
        print("ready", flush=True)
        await asyncio.Event().wait()


def test_timers_that_came_due_while_the_process_was_stopped_fire_once(tmp_path: Path, effects: Effects) -> None:
    """FAULTS O3, C3, C5: nobody took the runs, because the process lives; when it goes on its turns are accepted."""
    database = tmp_path / "stopped.db"

    async def main() -> None:
        async with Engine(database, worker=False) as client:
            with Process("processes.test_stopped_processes:serve", str(database)) as worker:
                worker.expect("ready")
                runs = [
                    await client.start(sleeps_a_little(str(effects.path), number), id=f"run-{number}")
                    for number in range(10)
                ]

                async def asleep() -> bool:
                    return all(view.wake_at is not None for view in await client.list())

                await until(asleep)
                worker.stop_between_writes(database)
                due = max(view.wake_at for view in await client.list() if view.wake_at is not None)
                async with Engine(database, sweep_interval=0.02) as other:
                    assert other.worker is not None
                    await until(lambda: other.clock.now() / 1e6 > due.timestamp() + 0.3)
                    assert await other.store.reap(other.worker.id, other.clock.now()) == 0
                    assert effects.lines() == [], "a stopped worker keeps its runs"
                worker.signal(signal.SIGCONT)
                assert [await run.result(timeout=20) for run in runs] == list(range(10))
                for run in runs:
                    kinds = [entry.kind for entry in await client.admin.history(run.id)]
                    assert kinds == ["started", "timer_fired", "step_done", "completed"]

    run_async(main())
    assert effects.counts() == {f"woken {number}": 1 for number in range(10)}
