"""Closing an engine: running steps get their grace, runs are released, the next engine goes on at once."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from perdure import Engine, current_step, sleep, step, workflow
from perdure.store.model import Status
from support.lives import Lives, run_async, until
from support.processes import Process

did: list[str] = []
gates: dict[str, asyncio.Event] = {}
thread_gate = threading.Event()


@pytest.fixture(autouse=True)
def fresh() -> None:
    did.clear()
    gates.clear()
    thread_gate.clear()


@step
async def slow(name: str) -> str:
    did.append(f"{name} began")
    try:
        await gates.setdefault(name, asyncio.Event()).wait()
    except asyncio.CancelledError:
        did.append(f"{name} cancelled")
        raise
    did.append(f"{name} ended")
    return name


@step
async def after(name: str) -> str:
    did.append(f"after {name}")
    return name


@step
def in_a_thread() -> str:
    context = current_step()
    did.append("thread began")
    thread_gate.wait(20)
    did.append(f"thread ended, cancelled: {context.cancelled}")
    return "thread"


@workflow
async def two_slow_steps(name: str) -> str:
    await slow(name)
    return await after(name)


@workflow
async def slow_in_a_thread() -> str:
    return await in_a_thread()


@workflow
async def sleeps_through() -> str:
    await sleep(0.05)
    return "awake"


def test_step_that_ends_within_the_grace_is_stored_and_what_follows_is_left_to_the_next_engine(
    lives: Lives,
) -> None:
    """Close drains: the step's result is kept, nothing new is started."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(two_slow_steps("a"), id="run")
            await until(lambda: "a began" in did)
            closing = asyncio.ensure_future(engine.close(grace=10))
            await asyncio.sleep(0)
            gates["a"].set()
            await closing
        assert did == ["a began", "a ended"]
        async with lives.engine(worker=False) as client:
            assert [entry.kind for entry in await client.admin.history("run")] == ["started", "step_done"]
            assert (await client.status("run")).status is Status.PENDING
        async with lives.engine() as engine:
            assert await engine.result("run", timeout=10) == "a"

    run_async(main())
    assert did == ["a began", "a ended", "after a"]


def test_step_that_outlives_the_grace_is_cancelled_and_runs_again_in_the_next_engine(lives: Lives) -> None:
    """Its run is released, not failed; the interruption does not count as an attempt or a crash."""

    async def main() -> None:
        for _ in range(3):
            async with lives.engine(recoveries_max=1, shutdown_grace=0) as engine:
                await engine.start(two_slow_steps("a"), id="run")
                await until(lambda: did.count("a began") == did.count("a cancelled") + 1)
        gates["a"].set()
        async with lives.engine(recoveries_max=1) as engine:
            assert await engine.result("run", timeout=10) == "a"
            kinds = [entry.kind for entry in await engine.admin.history("run")]
            assert kinds == ["started", "step_done", "step_done", "completed"]

    run_async(main(), patience=10)
    assert did.count("a cancelled") == 3


def test_sleeping_run_goes_on_in_the_next_engine(lives: Lives) -> None:
    """A closed engine releases it with its deadline, and the next one wakes it."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(sleeps_through(), id="run")
        async with lives.engine() as engine:
            assert await engine.result("run", timeout=10) == "awake"

    run_async(main())


def test_close_twice_and_at_the_same_time_is_one_close(lives: Lives) -> None:
    """FAULTS F15: the second one waits or returns; neither raises, and the store is closed after both."""

    async def main() -> None:
        engine = lives.engine()
        await engine.open()
        await engine.start(sleeps_through(), id="run")
        await asyncio.gather(engine.close(), engine.close())
        await engine.close()
        never_opened = lives.engine()
        await never_opened.close()
        async with lives.engine() as again:
            assert await again.result("run") == "awake"

    run_async(main())


def test_close_does_not_wait_for_a_thread_that_does_not_end(lives: Lives) -> None:
    """FAULTS O16: the thread is left behind and notified; what it still returns is refused."""

    async def main() -> None:
        async with lives.engine(shutdown_grace=0.01) as engine:
            await engine.start(slow_in_a_thread(), id="run")
            await until(lambda: "thread began" in did)
            before = time.monotonic()
        assert time.monotonic() - before < 5
        thread_gate.set()
        await until(lambda: "thread ended, cancelled: True" in did)
        async with lives.engine() as engine:
            assert await engine.result("run", timeout=10) == "thread"

    run_async(main())


def test_process_with_a_stuck_thread_ends(tmp_path: Path) -> None:
    """FAULTS O25: nothing joins the thread when the interpreter exits."""
    with Process("lifecycle.script_children:closes_with_a_stuck_thread", str(tmp_path / "test.db")) as process:
        assert {process.line(), process.line()} == {"inside", "closed"}
        assert process.wait(10) == 0


def test_close_during_start_leaves_a_run_or_none(lives: Lives) -> None:
    """FAULTS F15: a caller that was starting gets a handle or an error; a stored run goes on in the next engine."""

    async def main() -> None:
        engine = lives.engine()
        await engine.open()
        starts = [asyncio.ensure_future(engine.start(sleeps_through(), id=f"run-{n}")) for n in range(5)]
        await asyncio.sleep(0)
        await engine.close()
        done = await asyncio.gather(*starts, return_exceptions=True)
        assert all(not isinstance(one, asyncio.CancelledError) for one in done)
        async with lives.engine() as following:
            for view in await following.list():
                assert await following.result(view.id, timeout=10) == "awake"
            stored = {view.id for view in await following.list()}
        acknowledged = {one.id for one in done if not isinstance(one, BaseException)}
        assert acknowledged <= stored

    run_async(main())


def test_waiter_hears_that_the_engine_was_closed(lives: Lives) -> None:
    """FAULTS F14: `result()` in progress when the engine closes ends with a typed error, not a hang."""
    from perdure import PerdureError

    async def main() -> None:
        engine = lives.engine(shutdown_grace=0)
        await engine.open()
        handle = await engine.start(two_slow_steps("a"), id="run")
        waiter = asyncio.ensure_future(handle.result())
        await until(lambda: "a began" in did)
        await engine.close()
        with pytest.raises(PerdureError):
            await asyncio.wait_for(waiter, 5)

    run_async(main())


def test_two_engines_in_one_process_share_the_work(lives: Lives) -> None:
    """CONFORMANCE W6, FAULTS O10: runs started on either finish; when one closes the other takes over."""

    async def main() -> None:
        async with lives.engine() as one:
            async with lives.engine(shutdown_grace=0) as two:
                handles = [await (one, two)[n % 2].start(two_slow_steps("a"), id=f"run-{n}") for n in range(6)]
                await until(lambda: did.count("a began") == 6)
            gates["a"].set()
            results = [await Engine.result(one, handle.id, timeout=10) for handle in handles]
            assert results == ["a"] * 6

    run_async(main())
    assert did.count("after a") == 6
