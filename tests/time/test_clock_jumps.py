"""Timers when the clock is wrong, set right, or nobody was there: late is fine, early and twice are not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from lifecycle.moved_clock import DAY, HOUR, MovedClock
from perdure import Engine, event, now, receive, sleep, step, workflow
from perdure.admin import HistoryEntry
from perdure.store.model import Status
from support.lives import Lives, run_async, until


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engine.clock._WAIT_SECONDS_MAX", 0.02)


@step
async def anything(number: int) -> int:
    return number


@workflow
async def sleeps_ten_hours() -> list[float]:
    times: list[float] = []
    for number in range(2):
        before = now()
        await sleep("10 hours")
        times.append((now() - before).total_seconds())
        await anything(number)
    return times


def fired(history: list[HistoryEntry]) -> list[HistoryEntry]:
    return [entry for entry in history if entry.kind == "timer_fired"]


async def reached(engine: Engine, records: int) -> None:
    async def enough() -> bool:
        view = await engine.status("run")
        return view.records >= records and view.status is Status.WAITING

    await until(enough)


def check_times(history: list[HistoryEntry]) -> None:
    """Records never go back in time, whatever the clock did."""
    times = [entry.at for entry in history]
    assert times == sorted(times)
    assert [entry.seq for entry in history] == list(range(1, len(history) + 1))


def test_timers_fire_late_after_downtime_once_and_never_early(lives: Lives) -> None:
    """CONFORMANCE T3: a month of downtime; each sleep fires once, the second counts from when the first did."""
    clock = MovedClock()

    async def main() -> list[HistoryEntry]:
        async with lives.engine(clock=clock) as engine:
            await engine.start(sleeps_ten_hours(), id="run")
            first = (await engine.status("run")).wake_at
            await lives.crash(engine)
        clock.move(30 * DAY)
        async with lives.engine(clock=clock) as engine:
            await reached(engine, 3)
            second = (await engine.status("run")).wake_at
            await lives.crash(engine)
        clock.move(30 * DAY)
        async with lives.engine(clock=clock) as engine:
            times = await engine.result("run", timeout=5)
            assert all(seconds >= 10 * HOUR for seconds in times)
            history = await engine.admin.history("run")
        assert first is not None
        assert second is not None
        assert second >= first
        for entry, deadline in zip(fired(history), (first, second), strict=True):
            assert entry.at >= deadline
        return history

    check_times(run_async(main()))


def test_clock_that_jumps_forward_fires_what_is_due_once(lives: Lives) -> None:
    """CONFORMANCE T3, FAULTS O1, B23: one hour changes nothing, a year fires the timer; it does not fire again."""
    clock = MovedClock()

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            handle = await engine.start(sleeps_ten_hours(), id="run")
            clock.move(HOUR)
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.1)
            assert not fired(await engine.admin.history("run"))
            clock.move(365 * DAY)
            await reached(engine, 3)
            assert len(fired(await engine.admin.history("run"))) == 1, "the second sleep starts after the first fired"
            clock.move(365 * DAY)
            await handle.result(timeout=5)
            history = await engine.admin.history("run")
            assert len(fired(history)) == 2
            check_times(history)

    run_async(main())


def test_clock_that_jumps_back_fires_nothing_early_or_again(lives: Lives) -> None:
    """CONFORMANCE T3, FAULTS O2, B23: the deadline stands; it comes an hour later by the corrected clock."""
    clock = MovedClock()

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            handle = await engine.start(sleeps_ten_hours(), id="run")
            first = (await handle.status()).wake_at
            clock.move(-HOUR)
            clock.move(10 * HOUR)  # ten hours passed, but one of them twice
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.1)
            assert (await handle.status()).wake_at == first
            clock.move(HOUR)
            await reached(engine, 3)
            clock.move(-5 * HOUR)  # back before the moment it fired
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.1)
            assert len(fired(await engine.admin.history("run"))) == 1
            clock.move(16 * HOUR)
            times = await handle.result(timeout=5)
            assert all(seconds >= 10 * HOUR for seconds in times)
            check_times(await engine.admin.history("run"))

    run_async(main())


@event
@dataclass
class GoOnClock:
    pass


@workflow
async def sleeps_a_little() -> str:
    await sleep("1 hour")
    await receive(GoOnClock)
    return "done"


lives_seen: list[int] = []


@step
async def hangs_in_its_first_life() -> str:
    lives_seen.append(1)
    if len(lives_seen) == 1:
        await asyncio.Event().wait()
    return "second life"


@workflow
async def stops_in_a_step() -> str:
    return await hangs_in_its_first_life()


@workflow
async def two_steps() -> int:
    return await anything(1) + await anything(2)


def test_run_that_ends_on_a_clock_set_back_has_no_negative_duration(lives: Lives) -> None:
    """FAULTS O2: created, updated and finished never run backwards within a run."""
    clock = MovedClock()

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            handle = await engine.start(sleeps_a_little(), id="run")
            clock.move(HOUR)
            await reached(engine, 2)
            clock.move(-30 * DAY)
            await engine.send("run", GoOnClock())
            await handle.result(timeout=5)
            view = await handle.status()
            assert view.finished_at is not None
            assert view.created_at <= view.updated_at
            assert view.created_at <= view.finished_at
            check_times(await engine.admin.history("run"))

    run_async(main())


def test_clock_set_back_does_not_keep_runs_from_being_taken(lives: Lives) -> None:
    """FAULTS O2: a pending run, and one released at a shutdown, are due at once, not when the clock catches up."""
    clock = MovedClock()

    async def main() -> None:
        async with lives.engine(worker=False, clock=clock) as client:
            await client.start(two_steps(), id="pending")
        async with lives.engine(clock=clock) as engine:
            assert await engine.result("pending", timeout=5) == 3
            lives_seen.clear()
            await engine.start(stops_in_a_step(), id="released")
            await until(lambda: bool(lives_seen))
            await engine.close(0)
        async with lives.engine(worker=False, clock=clock) as client:
            await client.start(two_steps(), id="pending too")
        clock.move(-HOUR)
        async with lives.engine(clock=clock) as engine:
            assert await engine.result("pending too", timeout=5) == 3
            assert await engine.result("released", timeout=5) == "second life"

    run_async(main())


def test_event_for_an_evicted_run_is_delivered_although_the_clock_was_set_back(lives: Lives) -> None:
    """FAULTS O2: the event makes the run due whatever time it is."""
    clock = MovedClock()

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            await engine.start(sleeps_a_little(), id="run")
            clock.move(HOUR)
            await reached(engine, 2)
        async with lives.engine(worker=False, clock=clock) as client:
            await client.send("run", GoOnClock())
        clock.move(-2 * HOUR)
        async with lives.engine(clock=clock) as engine:
            assert await engine.result("run", timeout=5) == "done"

    run_async(main())
