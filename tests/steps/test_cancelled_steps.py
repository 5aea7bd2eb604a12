"""A step whose result is no longer wanted hears of it at once, and what it still returns is refused."""

from __future__ import annotations

import asyncio
import threading

import pytest

from perdure import RunCancelled, current_step, step, workflow
from support.lives import Lives, run_async, until

seen: list[str] = []
entered = threading.Event()
let_go = threading.Event()


@pytest.fixture(autouse=True)
def fresh() -> None:
    seen.clear()
    entered.clear()
    let_go.clear()


@step
async def waits_for_ever() -> str:
    entered.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append("cancelled" if current_step().cancelled else "cancelled without a flag")
        raise
    return "never"


@step
async def ignores_cancellation() -> str:
    entered.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append("ignored")
    return "late"


@step
def looks_around() -> str:
    """A thread that looks at `cancelled` now and then."""
    context = current_step()
    entered.set()
    while not context.cancelled:
        if let_go.wait(0.005):
            return "let go"
    seen.append("thread saw it")
    return "late"


@step
def heartbeats() -> str:
    context = current_step()
    entered.set()
    try:
        while not let_go.wait(0.005):
            context.heartbeat("still here")
    except asyncio.CancelledError:
        seen.append(f"heartbeat raised after {context.progress!r}")
        raise
    return "let go"


@step
async def quick() -> str:
    while not entered.is_set():
        await asyncio.sleep(0.001)
    return "quick"


STEPS = {
    "async": waits_for_ever,
    "ignores": ignores_cancellation,
    "thread": looks_around,
    "heartbeat": heartbeats,
}
SIGNS = {
    "async": "cancelled",
    "ignores": "ignored",
    "thread": "thread saw it",
    "heartbeat": "heartbeat raised after 'still here'",
}


@workflow
async def loses_a_race(kind: str) -> str:
    slow = asyncio.create_task(STEPS[kind]())
    fast = asyncio.create_task(quick())
    done, left = await asyncio.wait({slow, fast}, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return f"{[task.result() for task in done]}"


@workflow
async def one_slow_step(kind: str) -> str:
    return await STEPS[kind]()


@workflow
async def timed_out_by_asyncio(kind: str) -> str:
    try:
        async with asyncio.timeout(0.05):
            return await STEPS[kind]()
    except TimeoutError:
        return "timed out"


@pytest.mark.parametrize("kind", list(STEPS))
def test_losing_step_sees_cancellation_at_once_and_its_late_result_is_refused(lives: Lives, kind: str) -> None:
    """CONFORMANCE S7: in a race; async code by CancelledError, threads by `cancelled` and `heartbeat`."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handle = await engine.start(loses_a_race(kind), id="run")
            assert await handle.result() == "['quick']"
            await until(lambda: seen == [SIGNS[kind]], patience=5)
            return [entry.kind for entry in await engine.admin.history("run")]

    assert run_async(main()) == ["started", "step_done", "completed"]


@pytest.mark.parametrize("kind", list(STEPS))
def test_cancelled_run_cancels_its_step_at_once(lives: Lives, kind: str) -> None:
    """CONFORMANCE S7 and L1: no result of the step is recorded after the cancel."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            handle = await engine.start(one_slow_step(kind), id="run")
            await until(entered.is_set)
            assert await handle.cancel()
            with pytest.raises(RunCancelled):
                await handle.result()
            await until(lambda: seen == [SIGNS[kind]], patience=5)
            return [entry.kind for entry in await engine.admin.history("run")]

    assert run_async(main()) == ["started", "cancel_requested", "cancelled"]


@pytest.mark.parametrize("kind", list(STEPS))
def test_asyncio_timeout_in_workflow_code_cancels_the_step(lives: Lives, kind: str) -> None:
    """CONFORMANCE S7: the durable `asyncio.timeout` reaches the code of the step."""

    async def main() -> str:
        async with lives.engine() as engine:
            result = await (await engine.start(timed_out_by_asyncio(kind), id="run")).result()
            await until(lambda: seen == [SIGNS[kind]], patience=5)
            assert "step_done" not in {entry.kind for entry in await engine.admin.history("run")}
            return result

    assert run_async(main()) == "timed out"


def test_terminated_run_cancels_its_step_at_once(lives: Lives) -> None:
    """The step of a run that is over does not go on by itself. CONFORMANCE S7."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(one_slow_step("async"), id="run")
            await until(entered.is_set)
            assert await engine.admin.terminate("run", "now")
            await until(lambda: seen == ["cancelled"], patience=5)
            with pytest.raises(RunCancelled, match="now"):
                await handle.result()

    run_async(main())


def test_step_terminated_by_another_engine_is_cancelled(lives: Lives) -> None:
    """CONFORMANCE S7: the worker that runs the step hears of it although somebody else ended the run."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            await engine.start(one_slow_step("async"), id="run")
            await until(entered.is_set)
            assert await client.admin.terminate("run")
            await until(lambda: seen == ["cancelled"], patience=5)

    run_async(main())
