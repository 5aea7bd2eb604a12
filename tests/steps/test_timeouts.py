"""Timeouts of steps: per attempt and over all of them, with the code really cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lifecycle.moved_clock import HOUR, MovedClock
from perdure import Engine, RunFailed, StepTimeout, current_step, step, workflow
from perdure.store.model import Status
from support.lives import Lives, run_async, until

seen: list[str] = []
gate = threading.Event()


@pytest.fixture(autouse=True)
def fresh() -> None:
    seen.clear()
    gate.clear()


@step(timeout=0.03, max_attempts=2, initial_delay=0.001)
async def too_slow() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append(f"cancelled-{current_step().attempt}-{current_step().cancelled}")
        raise
    return "never"


@step(timeout="10 seconds", max_attempts=3, initial_delay=0.001)
async def slow_once() -> str:
    if current_step().attempt == 1:
        raise ValueError("first")
    return "done"


@step(timeout=0.05, max_attempts=1)
async def returns_late() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append("swallowed")
    return "late"


@step(timeout=0.05, max_attempts=2, initial_delay=0.001)
def stuck_at_first() -> str:
    attempt = current_step().attempt
    seen.append(f"thread-{attempt}")
    if attempt == 1:
        gate.wait(20)
        return "late"
    return "second"


@step(total_timeout=0.4, max_attempts=None, initial_delay=0.001)
async def never_ends() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    return "never"


@step(total_timeout=0.6, max_attempts=None, initial_delay=0.1, factor=1, jitter=0)
async def fails_and_fails() -> None:
    seen.append("attempt")
    raise ValueError("again")


@step(total_timeout=0.5, max_attempts=None, initial_delay=30, max_delay=30)
async def would_wait_too_long() -> None:
    seen.append("attempt")
    raise ValueError("the first and last")


@step(total_timeout="2 hours", max_attempts=None, initial_delay=3600, max_delay=3600, jitter=0)
async def waits_an_hour() -> str:
    seen.append("attempt")
    raise ValueError("again")


@step(timeout=5)
async def raises_its_own_timeout() -> None:
    raise TimeoutError("mine")


STEPS = {
    "too_slow": too_slow,
    "slow_once": slow_once,
    "returns_late": returns_late,
    "stuck_at_first": stuck_at_first,
    "never_ends": never_ends,
    "fails_and_fails": fails_and_fails,
    "would_wait_too_long": would_wait_too_long,
    "waits_an_hour": waits_an_hour,
    "raises_its_own_timeout": raises_its_own_timeout,
}


@workflow
async def with_timeouts(name: str) -> str | None:
    return await STEPS[name]()  # type: ignore[no-any-return, operator]


async def failure(engine: Engine, name: str) -> BaseException:
    handle = await engine.start(with_timeouts(name), id="run")
    with pytest.raises(RunFailed) as caught:
        await handle.result(timeout=10)
    assert caught.value.__cause__ is not None
    return caught.value.__cause__


def test_timeout_cancels_the_code_of_every_attempt(lives: Lives) -> None:
    """CONFORMANCE S3: each attempt has its own time and its code gets a CancelledError."""

    async def main() -> BaseException:
        async with lives.engine() as engine:
            return await failure(engine, "too_slow")

    error = run_async(main())
    assert isinstance(error, StepTimeout)
    assert isinstance(error, TimeoutError)
    assert "attempt 2" in str(error)
    assert len(seen) == 2
    assert [line[:11] for line in seen] == ["cancelled-1", "cancelled-2"]


def test_timeout_of_an_attempt_starts_with_that_attempt(lives: Lives) -> None:
    """CONFORMANCE S3: what came before (a failed attempt, a backoff, an hour of downtime) is not counted."""
    clock = MovedClock()

    @step(timeout=0.5, max_attempts=2, initial_delay=3600, max_delay=3600)
    async def once_then_fine() -> str:
        if current_step().attempt == 1:
            raise ValueError
        return "done"

    @workflow
    async def timed_from_its_start() -> str:
        return await once_then_fine()

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            await engine.start(timed_from_its_start(), id="run")
            await until(lambda: waiting(engine))
        clock.move(2 * HOUR)
        async with lives.engine(clock=clock) as engine:
            assert await engine.result("run", timeout=10) == "done"

    async def waiting(engine: Engine) -> bool:
        return (await engine.status("run")).status is Status.WAITING

    run_async(main())


def test_result_after_the_timeout_is_refused(lives: Lives) -> None:
    """FAULTS D33: code that swallows its cancellation and returns anyway has still timed out."""

    async def main() -> BaseException:
        async with lives.engine() as engine:
            return await failure(engine, "returns_late")

    assert isinstance(run_async(main()), StepTimeout)
    assert seen == ["swallowed"]


def test_timed_out_thread_does_not_stand_in_the_way_of_the_next_attempt(lives: Lives) -> None:
    """CONFORMANCE S3, FAULTS D33: a thread cannot be stopped, but the next attempt runs beside it."""

    async def main() -> object:
        async with lives.engine() as engine:
            handle = await engine.start(with_timeouts("stuck_at_first"))
            try:
                return await handle.result(timeout=10)
            finally:
                gate.set()

    assert run_async(main()) == "second"
    assert seen == ["thread-1", "thread-2"]


def test_total_timeout_cancels_a_running_attempt(lives: Lives) -> None:
    """It does not wait for the attempt to end by itself. CONFORMANCE S3."""

    async def main() -> BaseException:
        async with lives.engine() as engine:
            return await failure(engine, "never_ends")

    error = run_async(main())
    assert isinstance(error, StepTimeout)
    assert "total_timeout" in str(error)
    assert seen[0] == "cancelled"


def test_total_timeout_ends_retrying(lives: Lives) -> None:
    """CONFORMANCE S3: without a limit of attempts, time is the limit."""

    async def main() -> list[float]:
        async with lives.engine() as engine:
            await failure(engine, "fails_and_fails")
            return [entry.at.timestamp() for entry in await engine.admin.history("run")]

    times = run_async(main())
    assert 2 <= len(seen) <= 8
    assert times[-1] - times[0] < 5


def test_total_timeout_does_not_wait_for_a_backoff_that_would_pass_it(lives: Lives) -> None:
    """CONFORMANCE S3: a backoff of 30 s within 0.5 s is given up at once, with the error that is known."""

    async def main() -> BaseException:
        async with lives.engine() as engine:
            return await failure(engine, "would_wait_too_long")

    assert isinstance(run_async(main(), patience=10), ValueError)
    assert seen == ["attempt"]


def test_total_timeout_that_passed_in_a_backoff_while_nobody_ran_ends_the_step(lives: Lives) -> None:
    """CONFORMANCE S3: the backoff ends within the total, but the machine was down until after it."""
    clock = MovedClock()

    async def main() -> None:
        async with lives.engine(clock=clock) as engine:
            await engine.start(with_timeouts("waits_an_hour"), id="run")

            async def in_backoff() -> bool:
                return (await engine.status("run")).status is Status.WAITING

            await until(in_backoff)
            await lives.crash(engine)
        clock.move(3 * HOUR)
        async with lives.engine(clock=clock) as engine:
            with pytest.raises(RunFailed) as caught:
                await engine.result("run", timeout=10)
            assert isinstance(caught.value.__cause__, StepTimeout)

    run_async(main())
    assert seen == ["attempt"]


def test_a_steps_own_timeout_error_is_its_own(lives: Lives) -> None:
    """A TimeoutError raised by the code is not mistaken for the step's timeout."""

    async def main() -> BaseException:
        async with lives.engine() as engine:
            return await failure(engine, "raises_its_own_timeout")

    error = run_async(main())
    assert type(error) is TimeoutError
    assert error.args == ("mine",)
