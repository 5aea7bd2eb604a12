"""A result that cannot be stored fails the attempt, with the path to the bad value; the run does not hang."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from perdure import NotStorable, RunFailed, current_step, step, workflow
from perdure.errors import TooLarge
from support.lives import Lives, run_async

calls: list[int] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


@step(max_attempts=2, initial_delay=0.001)
async def brings_back(what: str) -> Any:
    calls.append(current_step().attempt)
    match what:
        case "socket":
            return {"rows": [1, 2, {"conn": socket.socket}]}
        case "task":
            return [asyncio.current_task()]
        case "circle":
            circle: list[Any] = []
            circle.append(circle)
            return circle
        case "large":
            return "x" * (2 * 1024 * 1024 + 1)
        case "second-time":
            return object() if current_step().attempt == 1 else "fine"
        case _:
            return None


@step(max_attempts=1)
async def not_as_annotated() -> int:
    calls.append(1)
    return "three"  # type: ignore[return-value]


@step(max_attempts=2, initial_delay=0.001)
def brings_back_from_a_thread() -> Any:
    calls.append(current_step().attempt)
    return {"lock": {"deep": [lambda: None]}}


@workflow
async def carries(what: str) -> Any:
    match what:
        case "annotated":
            return await not_as_annotated()
        case "thread":
            return await brings_back_from_a_thread()
        case "caught":
            try:
                return await brings_back("socket")
            except NotStorable as error:
                return f"caught {error.message.splitlines()[0]}"
        case _:
            return await brings_back(what)


@pytest.mark.parametrize(
    ("what", "path", "error"),
    [
        ("socket", "$.rows[2].conn", NotStorable),
        ("task", "$[0]", NotStorable),
        ("circle", "$", NotStorable),
        ("large", "", TooLarge),
        ("annotated", "int", NotStorable),
        ("thread", "$.lock.deep[0]", NotStorable),
    ],
)
def test_attempt_fails_with_the_path_and_the_run_ends(
    lives: Lives, what: str, path: str, error: type[Exception]
) -> None:
    """CONFORMANCE S5, FAULTS E1."""

    async def main() -> BaseException | None:
        async with lives.engine() as engine:
            handle = await engine.start(carries(what))
            with pytest.raises(RunFailed) as caught:
                await handle.result(timeout=10)
            assert path in str(caught.value)
            return caught.value.__cause__

    cause = run_async(main())
    assert isinstance(cause, error)
    assert path in str(cause)
    assert "step" in str(cause)


def test_unstorable_result_counts_as_an_attempt_and_may_be_retried(lives: Lives) -> None:
    """CONFORMANCE S5: what comes back the second time can be stored, so the step succeeds."""

    async def main() -> Any:
        async with lives.engine() as engine:
            return await (await engine.start(carries("second-time"))).result(timeout=10)

    assert run_async(main()) == "fine"
    assert calls == [1, 2]


def test_workflow_can_catch_it(lives: Lives) -> None:
    """CONFORMANCE S5: raised into the workflow like any failure of a step."""

    async def main() -> Any:
        async with lives.engine() as engine:
            return await (await engine.start(carries("caught"))).result(timeout=10)

    assert "$.rows[2].conn" in run_async(main())
