"""Sleeps: of nothing, of a century, one after another, beside each other, in loops and branches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from lifecycle.moved_clock import DAY, HOUR, MovedClock
from perdure import Engine, event, now, receive, sleep, sleep_until, workflow
from perdure.store.model import Status
from support.lives import Lives, run_async, until

LONG = {"30 days": 30 * DAY, "100 years": 100 * 365 * DAY}


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's timers look at the clock at least this often; the test moves the clock under them."""
    monkeypatch.setattr("perdure.engine.clock._WAIT_SECONDS_MAX", 0.02)


@workflow
async def sleeps_for(seconds: float) -> str:
    await sleep(seconds)
    return "slept"


@workflow
async def sleeps_for_nothing() -> int:
    await sleep(0)
    await sleep_until(datetime(1999, 1, 1, tzinfo=UTC))
    await sleep_until(now())
    await sleep("0 seconds")
    return 0


def test_sleeps_of_nothing_and_in_the_past_return_at_once_and_leave_no_record(lives: Lives) -> None:
    """CONFORMANCE T1: zero and the past."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handle = await engine.start(sleeps_for_nothing())
            assert await handle.result() == 0
            return [entry.kind for entry in await engine.admin.history(handle.id)]

    assert run_async(main()) == ["started", "completed"]


@pytest.mark.parametrize("name", list(LONG))
def test_long_sleep_is_visible_and_fires_when_its_time_has_come(lives: Lives, name: str) -> None:
    """CONFORMANCE T1: what it waits for can be seen from outside; a moved clock ends it, not an hour before."""
    clock = MovedClock()
    seconds = LONG[name]

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            handle = await engine.start(sleeps_for(seconds), id="run")
            view = await handle.status()
            assert view.status is Status.WAITING
            assert view.wake_at is not None
            assert (view.wake_at - view.created_at).total_seconds() == pytest.approx(seconds)
            (wait,) = view.waiting
            assert (wait.kind, wait.location, wait.until) == ("timer", "sleep", view.wake_at)
            assert "test_sleeps.py" in wait.site
            clock.move(seconds - HOUR)
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.1)
            clock.move(HOUR)
            assert await handle.result(timeout=5) == "slept"
            (fired,) = [entry for entry in await engine.admin.history("run") if entry.kind == "timer_fired"]
            assert fired.at >= view.wake_at

    run_async(main())


def test_sleep_until_the_end_of_the_calendar_can_be_looked_at(lives: Lives) -> None:
    """FAULTS F8: far future is fine, also for readers of the run."""

    async def main() -> None:
        async with lives.engine() as engine:
            for number, zone in enumerate((UTC, timezone(timedelta(hours=-12)))):
                handle = await engine.start(sleeps_till(datetime.max.replace(tzinfo=zone)), id=f"run-{number}")
                view = await handle.status()
                assert view.status is Status.WAITING
                assert await handle.cancel()

    run_async(main())


@workflow
async def sleeps_till(when: datetime) -> None:
    await sleep_until(when)


@workflow
async def sleeps_in_sequence() -> list[float]:
    start = now()
    times: list[float] = []
    for seconds in (0.02, 0.03, 0.01):
        await sleep(seconds)
        times.append((now() - start).total_seconds())
    return times


@workflow
async def sleeps_in_parallel() -> list[str]:
    order: list[str] = []

    async def one(name: str, seconds: float) -> None:
        await sleep(seconds)
        order.append(name)

    await asyncio.gather(one("late", 0.09), one("early", 0.01), one("middle", 0.05))
    return order


@workflow
async def sleeps_nested() -> list[str]:
    order: list[str] = []

    async def branch(name: str, step_seconds: float) -> None:
        for number in range(2):
            if number == 0:
                await sleep(step_seconds)
            async with asyncio.timeout(10):
                await asyncio.gather(sleep(step_seconds), asyncio.sleep(step_seconds / 2))
            order.append(f"{name}{number}")

    async with asyncio.TaskGroup() as group:
        group.create_task(branch("a", 0.01))
        group.create_task(branch("b", 0.06))
    return order


def test_sequential_sleeps_add_up(lives: Lives) -> None:
    """CONFORMANCE T1: none of them is early."""

    async def main() -> list[float]:
        async with lives.engine() as engine:
            return await (await engine.start(sleeps_in_sequence())).result()

    first, second, third = run_async(main())
    assert first >= 0.02
    assert second >= first + 0.03
    assert third >= second + 0.01


def test_parallel_sleeps_are_parallel_and_the_earliest_wakes_first(lives: Lives) -> None:
    """CONFORMANCE T1: over a crash at every record too."""
    assert run_async(lives.crash_at_every_record(sleeps_in_parallel)) == ["early", "middle", "late"]


def test_earliest_of_several_deadlines_is_the_one_that_is_stored(lives: Lives) -> None:
    """CONFORMANCE T1: `wake_at` is the earliest, then the next one."""
    clock = MovedClock()

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            handle = await engine.start(sleeps_in_hours(), id="run")
            for hours in (1, 2, 3):
                view = await handle.status()
                assert view.wake_at is not None
                assert round((view.wake_at - view.created_at).total_seconds() / HOUR) == hours
                assert view.waiting_count == 4 - hours
                clock.move(HOUR)
                if hours < 3:
                    await until(lambda h=hours: waits_for(engine, 3 - h))  # type: ignore[misc]
            assert await handle.result(timeout=5) == [3, 1, 2]

    async def waits_for(engine: Engine, count: int) -> bool:
        return (await engine.status("run")).waiting_count == count

    run_async(main())


@workflow
async def sleeps_in_hours() -> list[int]:
    async def one(hours: int) -> int:
        await sleep(timedelta(hours=hours))
        return hours

    return list(await asyncio.gather(one(3), one(1), one(2)))


def test_sleeps_nested_in_loops_and_branches_survive_a_crash_at_every_record(lives: Lives) -> None:
    """Each sleep keeps its deadline and fires once. CONFORMANCE T1."""
    assert run_async(lives.crash_at_every_record(sleeps_nested)) == ["a0", "a1", "b0", "b1"]


@workflow
async def past_then_sleep() -> str:
    await sleep_until(datetime(2001, 1, 1, tzinfo=UTC))
    await sleep("10 hours")
    return "once"


def test_past_deadline_then_sleep_sleeps_once(lives: Lives) -> None:
    """CONFORMANCE T2: the sleep after a moment in the past is neither skipped nor doubled, over a restart too."""
    clock = MovedClock()

    async def main() -> list[str]:
        async with lives.engine(clock=clock) as engine:
            await engine.start(past_then_sleep(), id="run")
            await lives.crash(engine)
        clock.move(9 * HOUR)
        async with lives.engine(clock=clock) as engine:
            with pytest.raises(TimeoutError):
                await engine.result("run", timeout=0.1)
            clock.move(HOUR)
            assert await engine.result("run", timeout=5) == "once"
            return [entry.kind for entry in await engine.admin.history("run")]

    assert run_async(main()) == ["started", "timer_fired", "completed"]


@event
@dataclass
class WakeUpCall:
    pass


@workflow
async def races_event_and_timeout(seconds: float) -> str:
    try:
        await receive(WakeUpCall, timeout=seconds)
    except TimeoutError:
        return "timeout"
    await sleep("50 hours")
    return "event, then slept"


@workflow
async def races_with_asyncio(seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            await receive(WakeUpCall)
    except TimeoutError:
        return "timeout"
    await sleep("50 hours")
    return "event, then slept"


RACES = [races_event_and_timeout, races_with_asyncio]


@pytest.mark.parametrize("race", RACES, ids=["receive", "asyncio.timeout"])
def test_event_that_wins_leaves_no_stray_wake_up(lives: Lives, race: Any) -> None:
    """CONFORMANCE T4: the timeout is gone from `wake_at` and never recorded, and does not end the next sleep."""
    clock = MovedClock()

    async def main() -> list[str]:
        async with lives.engine(clock=clock) as engine:
            handle = await engine.start(race(10 * HOUR), id="run")
            await engine.send("run", WakeUpCall())
            await until(lambda: sleeping(engine))
            view = await handle.status()
            assert view.wake_at is not None
            assert round((view.wake_at - view.created_at).total_seconds() / HOUR) == 50
            assert [wait.location for wait in view.waiting] == ["sleep"]
            clock.move(11 * HOUR)
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.1)
            clock.move(40 * HOUR)
            assert await handle.result(timeout=5) == "event, then slept"
            return [entry.kind for entry in await engine.admin.history("run")]

    async def sleeping(engine: Engine) -> bool:
        return (await engine.status("run")).records == 2

    assert run_async(main()) == ["started", "event_received", "timer_fired", "completed"]


@pytest.mark.parametrize("race", RACES, ids=["receive", "asyncio.timeout"])
def test_event_that_came_before_the_deadline_wins_although_both_are_seen_after_a_downtime(
    lives: Lives, race: Any
) -> None:
    """CONFORMANCE T3 and T4: the order of the world, not the order of looking."""
    clock = MovedClock()

    async def main(event_first: bool) -> str:
        one = lives.fresh()
        async with one.engine(clock=clock) as engine:
            await engine.start(race(10 * HOUR), id="run")
            await one.crash(engine)
        clock.move(9 * HOUR if event_first else 11 * HOUR)
        async with one.engine(worker=False, clock=clock) as client:
            await client.send("run", WakeUpCall())
        clock.move(100 * HOUR)
        async with one.engine(clock=clock) as engine:
            await until(lambda: moved(engine))
            kinds = [entry.kind for entry in await engine.admin.history("run")]
            return kinds[1]

    async def moved(engine: Engine) -> bool:
        return (await engine.status("run")).records > 1

    assert run_async(main(True)) == "event_received"
    assert run_async(main(False)) == "timer_fired"
