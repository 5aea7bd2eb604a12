"""The count of attempts and the deadline of a backoff survive the death of the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lifecycle.moved_clock import HOUR, MovedClock
from perdure import Engine, RunFailed, current_step, step, workflow
from perdure.store.model import Status
from support.effects import Effects
from support.faulty_stores import DisturbedStore
from support.lives import Lives, run_async, until
from support.processes import Process


def test_attempts_and_backoff_survive_a_kill(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE S2: SIGKILL in each backoff; the next process goes on with the next attempt, not before its time."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}
    run_id = "retried_over_kills"

    async def next_at(failed: int) -> int:
        async with Engine(path, worker=False) as engine:

            async def recorded() -> bool:
                return (await engine.status(run_id)).records == 1 + failed

            await until(recorded)
            return int((await engine.admin.history(run_id))[-1].data["next_at"])

    deadlines = []
    for attempt in (1, 2):
        with Process("steps.crash_children:live", path, run_id, env=env) as process:
            assert {process.line(), process.line()} == {"open", f"attempt {attempt}"}
            deadlines.append(run_async(next_at(attempt)))
            process.kill()
    with Process("steps.crash_children:live", path, run_id, env=env) as process:
        assert {process.line(), process.line()} == {"open", "attempt 3"}
        process.expect(f"{run_id} 3")
        assert process.wait() == 0
    assert [line.split()[0] for line in effects.lines()] == ["1", "2", "3"]
    assert len({line.split()[1] for line in effects.lines()}) == 1, "one idempotency key for all attempts"

    async def ends_of_attempts() -> list[int]:
        async with Engine(path, worker=False) as engine:
            entries = await engine.admin.history(run_id)
            return [entry.record.at for entry in entries if entry.record and entry.kind.startswith("step_")]

    ended = run_async(ends_of_attempts())
    assert ended[1] >= deadlines[0]
    assert ended[2] >= deadlines[1]


attempts: list[int] = []


@step(max_attempts=3, initial_delay=3600, max_delay=3600, jitter=0)
async def hourly() -> str:
    attempts.append(current_step().attempt)
    raise ValueError(f"attempt {current_step().attempt}")


@workflow
async def retried_hourly() -> str:
    return await hourly()


def test_crash_in_every_backoff_neither_adds_nor_loses_an_attempt(lives: Lives) -> None:
    """CONFORMANCE S2: three attempts in all, over several lives; a life that comes too early waits."""
    attempts.clear()
    clock = MovedClock()

    async def one_life(records: int) -> Any:
        async with lives.engine(clock=clock) as engine:
            await engine.start(retried_hourly(), id="run")

            async def in_backoff() -> bool:
                view = await engine.status("run")
                return view.status is Status.WAITING and view.records == records

            await until(in_backoff)
            wake_at = (await engine.status("run")).wake_at
            await lives.crash(engine)
        return wake_at

    async def main() -> None:
        wake_at = await one_life(2)
        assert HOUR - 60 < (wake_at - clock.datetime()).total_seconds() <= HOUR
        clock.move(HOUR / 2)  # too early
        async with lives.engine(clock=clock) as engine:
            handle = await engine.start(retried_hourly(), id="run")
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.1)
            assert (await handle.status()).wake_at == wake_at, "the deadline of a backoff stands"
            await lives.crash(engine)
        assert attempts == [1]
        clock.move(HOUR)
        await one_life(3)
        clock.move(HOUR)
        async with lives.engine(clock=clock) as engine:
            with pytest.raises(RunFailed) as caught:
                await engine.result("run", timeout=10)
            assert str(caught.value.__cause__) == "attempt 3"

    run_async(main())
    assert attempts == [1, 2, 3]


@step(max_attempts=2, initial_delay=0.2, jitter=0)
async def tried_twice() -> str:
    attempts.append(current_step().attempt)
    if current_step().attempt == 1:
        raise ValueError
    return "done"


@workflow
async def over_a_clock_set_back() -> str:
    return await tried_twice()


def test_clock_set_back_at_the_end_of_a_backoff_does_not_lose_the_step(lives: Lives) -> None:
    """FAULTS O2: the clock goes back between the decision to try again and the attempt."""
    attempts.clear()
    clock = MovedClock()

    async def main() -> str:
        store = DisturbedStore(lives.store())
        # The first commit stores the failed attempt, the second the end of its backoff.
        store.after("commit", lambda _: clock.move(-0.5), at=2, times=1)
        async with Engine(store, clock=clock, sweep_interval=0.02) as engine:
            handle = await engine.start(over_a_clock_set_back(), id="run")
            return await handle.result(timeout=5)

    assert run_async(main()) == "done"
    assert attempts == [1, 2]
