"""A result that cannot be stored fails the step at once, with the path to the bad value; the run does not hang."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from perdure import RunFailed, current_step, step, workflow
from perdure.errors import NotStorable, TooLarge
from steps.isolated_steps import isolated_unstorable
from support.lives import Lives, run_async

calls: list[int] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


@step(max_attempts=3, initial_delay=0.001)
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
        case _:
            return None


@step(max_attempts=3, initial_delay=0.001)
async def not_as_annotated() -> int:
    calls.append(current_step().attempt)
    return "three"  # type: ignore[return-value]


@step(max_attempts=3, initial_delay=0.001)
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
def test_step_fails_at_once_with_the_path(lives: Lives, what: str, path: str, error: type[Exception]) -> None:
    """CONFORMANCE S5, FAULTS E1: what the step did is done, and another attempt would do it once more."""

    async def main() -> tuple[BaseException | None, list[str]]:
        async with lives.engine() as engine:
            handle = await engine.start(carries(what), id="run")
            with pytest.raises(RunFailed) as caught:
                await handle.result(timeout=10)
            assert path in str(caught.value)
            return caught.value.__cause__, [entry.kind for entry in await engine.admin.history("run")]

    cause, kinds = run_async(main())
    assert isinstance(cause, error)
    assert path in str(cause)
    assert "step" in str(cause)
    assert calls == [1]
    assert kinds == ["started", "step_failed", "failed"]


def test_isolated_step_fails_at_once_too(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE S5: the process finds out, and its worker does not try again."""
    marker = tmp_path / "calls"

    async def main() -> BaseException | None:
        async with lives.engine() as engine:
            handle = await engine.start(isolated_unstorable(str(marker)))
            with pytest.raises(RunFailed) as caught:
                await handle.result(timeout=20)
            return caught.value.__cause__

    cause = run_async(main())
    assert isinstance(cause, NotStorable)
    assert "$.pid" in str(cause)
    assert marker.read_text() == "called\n"


def test_workflow_can_catch_it(lives: Lives) -> None:
    """CONFORMANCE S5: raised into the workflow like any failure of a step."""

    async def main() -> Any:
        async with lives.engine() as engine:
            return await (await engine.start(carries("caught"))).result(timeout=10)

    assert "$.rows[2].conn" in run_async(main())
