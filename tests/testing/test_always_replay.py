"""`always_replay`: before every turn the run is thrown away and rebuilt from its journal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import event, info, log, receive, send, sleep, start_child, step, workflow
from perdure.errors import RunParked
from perdure.testing import VirtualEngine

pytestmark = pytest.mark.perdure(always_replay=True)

entered: list[str] = []
replays: list[bool] = []


@event
@dataclass
class Told:
    number: int


@step(max_attempts=3)
async def double(number: int) -> int:
    return 2 * number


@workflow
async def small(number: int) -> int:
    await sleep("1 hour")
    return await double(number)


@workflow
async def everything() -> list[Any]:
    entered.append(info().id)
    first = await double(1)
    both = await asyncio.gather(double(2), small(3), double(4))
    child = await start_child(small(5))
    await send(info().id, Told(6))
    told = await receive(Told, timeout="1 day")
    log.info("told")
    try:
        async with asyncio.timeout(60):
            await receive(Told)
    except TimeoutError:
        pass
    return [first, *both, told.number, await child]


async def test_a_right_workflow_does_not_notice(engine: VirtualEngine, caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE R2, R5, R7: the same result, the steps once each, a log line once, and the code began again for every
    turn."""
    caplog.set_level("INFO")
    entered.clear()
    mock = engine.mock(double, call=lambda number: 2 * number)
    run = await engine.start(everything())
    assert await run.result() == [2, 4, 6, 8, 6, 10]
    assert sorted(call.args[0] for call in mock.calls) == [1, 2, 3, 4, 5]
    assert [record.message for record in caplog.records].count("told") == 1
    assert len(entered) > 6


async def test_retries_in_progress_survive_it(engine: VirtualEngine) -> None:
    mock = engine.mock(double, sequence=[OSError(), OSError(), 2, OSError(), 4, 6, 8, 10], delay="1 s")
    run = await engine.start(everything())
    await run.result()
    assert [call.attempt for call in mock.calls][:3] == [1, 2, 3]


async def test_a_wrong_one_is_parked_at_once(engine: VirtualEngine) -> None:
    order = iter(["a", "b", "c", "d"])

    @step
    async def named(name: str) -> str:
        return name

    @workflow
    async def drifting() -> None:
        await named(next(order))
        await named("end")

    with pytest.raises(RunParked, match="arguments"):
        await (await engine.start(drifting())).result()


@pytest.mark.perdure(always_replay=False)
async def test_without_it_the_code_runs_once(engine: VirtualEngine) -> None:
    entered.clear()
    engine.mock(double, call=lambda number: 2 * number)
    await (await engine.start(everything())).result()
    assert len(entered) == 1


def test_a_guard_is_around_all_workflow_code() -> None:
    """The hook for a strict guard: entered for first turns, later turns and replays, and never around steps."""
    inside = 0
    seen: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def guard() -> Iterator[None]:
        nonlocal inside
        inside += 1
        try:
            yield
        finally:
            inside -= 1

    @step
    async def looks() -> None:
        seen.append(("step", inside))

    @workflow
    async def looking() -> None:
        seen.append(("workflow", inside))
        await looks()
        seen.append(("workflow", inside))

    engine = VirtualEngine(guard=guard)
    engine.run(looking())
    engine.shut()
    assert seen == [("workflow", 1), ("step", 0), ("workflow", 1)]
