"""Waiting for a place (`steps_max`, `concurrency`), a thread or a process: no part of running, with its own limit."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import Engine, StepTimeout, limits, step, workflow
from perdure.errors import BadDefinition
from support.lives import Lives, run_async, until

begun: list[str] = []
gate = threading.Event()


@pytest.fixture(autouse=True)
def fresh() -> None:
    begun.clear()
    gate.clear()


@step
def holds_a_thread() -> str:
    begun.append("holder")
    gate.wait(20)
    return "held"


@step(timeout=0.05, max_attempts=1)
def quick_in_a_thread() -> str:
    begun.append("quick")
    return "quick"


@step(concurrency=1)
async def holds_its_step() -> str:
    begun.append("holder")
    while not gate.is_set():
        await asyncio.sleep(0.001)
    return "held"


HOLDERS: dict[str, Any] = {"step_threads": holds_a_thread, "steps_max": holds_a_thread, "concurrency": holds_its_step}
#: What the step that waits returns.
RESULTS = {"step_threads": "quick", "steps_max": "quick", "concurrency": "held"}


@workflow
async def holder(limit: str) -> str:
    return await HOLDERS[limit]()  # type: ignore[no-any-return]


@workflow
async def waiter(limit: str, options: dict[str, float]) -> str:
    chosen = {"step_threads": quick_in_a_thread, "steps_max": quick_in_a_thread, "concurrency": holds_its_step}[limit]
    try:
        return await chosen.options(max_attempts=1, **options)()  # type: ignore[attr-defined, no-any-return]
    except StepTimeout as error:
        return error.message


def settings_of(limit: str) -> dict[str, int]:
    return {} if limit == "concurrency" else {limit: 1}


async def with_a_waiter(engine: Engine, limit: str, **options: float) -> Any:
    """A run whose step waits, because another one has the only place."""
    await engine.start(holder(limit), id="holder")
    await until(lambda: begun == ["holder"])
    return await engine.start(waiter(limit, options), id="waiter")


@pytest.mark.parametrize("limit", list(HOLDERS))
def test_timeout_counts_from_the_start_of_the_code(lives: Lives, limit: str) -> None:
    """CONFORMANCE S3: a step that has waited for longer than its timeout still has all of it."""

    async def main() -> str:
        async with lives.engine(**settings_of(limit)) as engine:
            handle = await with_a_waiter(engine, limit, timeout=0.05)
            await asyncio.sleep(0.1)  # longer than the timeout: what is measured
            assert (await engine.admin.why("waiter")).kind == "step-waiting"
            gate.set()
            return await handle.result(timeout=10)  # type: ignore[no-any-return]

    assert run_async(main()) == RESULTS[limit]


@pytest.mark.parametrize("limit", list(HOLDERS))
@pytest.mark.parametrize("option", ["queue_timeout", "total_timeout"])
def test_wait_for_a_place_can_be_limited(lives: Lives, limit: str, option: str) -> None:
    """CONFORMANCE S3: the step fails while it waits, its code never begins, and the place stays in order."""

    async def main() -> tuple[str, list[str], str]:
        async with lives.engine(**settings_of(limit)) as engine:
            handle = await with_a_waiter(engine, limit, **{option: 0.03})
            message = await handle.result(timeout=10)
            at_the_end = list(begun)
            gate.set()
            assert await engine.result("holder", timeout=10) == "held"
            again = await engine.start(waiter(limit, {option: 5.0}))
            return message, at_the_end, await again.result(timeout=10)

    message, at_the_end, again = run_async(main())
    assert f"its {option} of 0.03 s" in message
    assert at_the_end == ["holder"]
    assert again == RESULTS[limit]


@pytest.mark.parametrize("limit", list(HOLDERS))
def test_why_says_that_it_waits_and_for_what(lives: Lives, limit: str) -> None:
    """Exactly, where the worker is asked; another process cannot know, and says so."""

    async def main() -> tuple[Any, Any, Any]:
        async with lives.engine(**settings_of(limit)) as engine:
            await with_a_waiter(engine, limit)

            async def waits() -> bool:
                return (await engine.admin.why("waiter")).kind == "step-waiting"

            await until(waits)
            async with lives.engine(worker=False) as client:
                found = (
                    await engine.admin.why("waiter"),
                    await engine.admin.why("holder"),
                    await client.admin.why("waiter"),
                )
            gate.set()
            await engine.result("waiter", timeout=10)
            return found

    waits, runs, from_outside = run_async(main())
    assert f"`{limit}`" in waits.text
    assert "has been waiting for 0:00:0" in waits.text
    assert runs.kind == "step-running"
    assert "has been running for 0:00:0" in runs.text
    assert from_outside.kind == "step-running"
    assert "running, or waiting for a place there, for 0:00:0" in from_outside.text


def test_many_steps_of_few_threads_time_out_in_their_code_only(lives: Lives) -> None:
    """The time of all together is far above the timeout of each."""

    @step(timeout=0.5, max_attempts=1)
    def a_little(number: int) -> int:
        threading.Event().wait(0.02)
        return number

    @workflow
    async def crowd(count: int) -> int:
        return sum(await asyncio.gather(*(a_little(number) for number in range(count))))

    async def main() -> int:
        async with lives.engine(step_threads=2) as engine:
            return await (await engine.start(crowd(80))).result(timeout=20)

    assert run_async(main()) == sum(range(80))


def test_queue_timeout_is_checked_where_it_is_written() -> None:
    """Like the other durations."""
    with pytest.raises(BadDefinition, match="queue_timeout must be a number of more than 0"):

        @step(queue_timeout=0)
        async def impatient() -> None: ...


# -- code that swallows its cancellation ---------------------------------------------------------------------


@step(timeout=0.02, max_attempts=2, initial_delay=0.001, concurrency=1)
async def unresponsive() -> str:
    begun.append("unresponsive")
    while not gate.is_set():
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            begun.append("swallowed")
    begun.append("returned")
    return "late"


@workflow
async def loses_patience() -> str:
    try:
        return await unresponsive()
    except StepTimeout as error:
        return error.message


def test_timeout_bounds_code_that_swallows_its_cancellation(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS D33: after a grace the attempt is abandoned, its place given to the next, its late outcome refused."""
    monkeypatch.setattr(limits, "STEP_STOP_SECONDS", 0.03)

    async def main() -> tuple[str, list[str]]:
        async with lives.engine() as engine:
            handle = await engine.start(loses_patience(), id="run")
            message = await handle.result(timeout=10)
            gate.set()
            await until(lambda: begun.count("returned") == 2)
            return message, [entry.kind for entry in await engine.admin.history("run")]

    message, kinds = run_async(main())
    assert "attempt 2 of step 'unresponsive' took longer than its timeout of 0.02 s" in message
    assert kinds == ["started", "step_retry", "step_failed", "completed"]
    assert begun[:2] == ["unresponsive", "swallowed"]
    assert begun.count("unresponsive") == 2
