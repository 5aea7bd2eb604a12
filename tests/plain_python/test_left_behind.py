"""Steps that are never awaited and tasks left running at the end: defined, recorded, warned about."""

from __future__ import annotations

import asyncio
import gc
import logging
from dataclasses import dataclass

import pytest

from kernel.kernel_kit import Drive
from perdure import event, receive, sleep, step, workflow
from perdure.kernel.commands import Warn
from perdure.kernel.outcomes import Complete
from support.effects import Effects
from support.lives import Lives, run_async

_order: list[str] = []


@event
@dataclass
class NotComing:
    pass


@step
async def forgotten_charge(number: int) -> int:
    _order.append(f"ran {number}")
    return number


@workflow
async def forgets_to_await() -> str:
    forgotten_charge(1)
    await sleep(0.001)
    return "done"


@workflow
async def leaves_tasks() -> str:
    async def waiting(number: int) -> None:
        try:
            await receive(NotComing)
        except asyncio.CancelledError:
            _order.append(f"cancelled {number}")
            await forgotten_charge(number)

    for number in range(5):
        asyncio.create_task(waiting(number))  # noqa: RUF006
    asyncio.create_task(forgotten_charge(9))  # noqa: RUF006
    await sleep(0.001)
    return "done"


@workflow
async def fails_leaving_tasks() -> None:
    asyncio.create_task(receive(NotComing))  # noqa: RUF006
    await sleep(0.001)
    raise ValueError("on purpose")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    _order.clear()


def test_a_step_that_is_never_awaited_does_not_run_and_is_named(lives: Lives) -> None:
    """CONFORMANCE P6, FAULTS D17: as any coroutine nobody awaits; Python's own warning names the step."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            assert await (await engine.start(forgets_to_await(), id="run")).result() == "done"
            gc.collect()
            return [entry.kind for entry in await engine.admin.history("run")]

    with pytest.warns(RuntimeWarning, match="forgotten_charge"):
        kinds = run_async(main())
    assert kinds == ["started", "timer_fired", "completed"]
    assert _order == []


def test_tasks_left_running_are_cancelled_in_the_order_of_creation() -> None:
    """CONFORMANCE P6, FAULTS D18: and what their cleanup asks for is not started."""
    with Drive(leaves_tasks()) as drive:
        assert len(drive.pending()) == 7
        drive.fire("sleep")
        assert _order == [f"cancelled {number}" for number in range(5)]
        outcome = drive.run.outcome
        assert isinstance(outcome, Complete)
        assert outcome.abandoned == ("waiting", *(f"waiting#{n}" for n in range(2, 6)), "forgotten_charge")
        warnings = [command for command in drive.commands if isinstance(command, Warn)]
        assert len(warnings) == 1
        assert "'waiting#5'" in warnings[0].message
        run, commands = drive.rebuilt(frontier=drive.frontier())
        assert run.outcome == outcome
        assert [command for command in commands if isinstance(command, Warn)] == [], "warned again by replay"


def test_abandoned_tasks_are_recorded_and_warned_about_once(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE P6: the last record names them, and so does one line of the log."""
    caplog.set_level(logging.WARNING, logger="perdure.run")

    async def main() -> list[str]:
        async with lives.engine() as engine:
            await (await engine.start(leaves_tasks(), id="run")).result()
            return list((await engine.admin.history("run"))[-1].data["abandoned"])

    abandoned = run_async(main())
    assert abandoned[:5] == ["waiting", "waiting#2", "waiting#3", "waiting#4", "waiting#5"]
    assert len([record for record in caplog.records if "still running" in record.getMessage()]) == 1


def test_a_failing_run_records_what_it_left_behind(lives: Lives) -> None:
    """CONFORMANCE P6, for a run that ends with an error."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            run = await engine.start(fails_leaving_tasks(), id="run")
            with pytest.raises(Exception, match="on purpose"):
                await run.result()
            return list((await engine.admin.history("run"))[-1].data["abandoned"])

    assert run_async(main()) == ["receive"]


def test_an_abandoned_step_is_cancelled_for_real(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE P6, S7: the code of a step nobody waits for any more is cancelled at once."""
    _paths["effects"] = effects

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(leaves_a_running_step(), id="run")
            await run.result()

    run_async(main())
    assert effects.lines() == ["begun", "cancelled"]


_paths: dict[str, Effects] = {}


@step
async def endless() -> None:
    _paths["effects"].add("begun")
    _begun.set()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        _paths["effects"].add("cancelled")


class _Begun:
    """Set by one step and awaited by another, on the host loop."""

    def __init__(self) -> None:
        self.event: asyncio.Event | None = None

    def set(self) -> None:
        if self.event is None:
            self.event = asyncio.Event()
        self.event.set()

    async def wait(self) -> None:
        if self.event is None:
            self.event = asyncio.Event()
        await self.event.wait()


_begun = _Begun()


@step
async def until_begun() -> None:
    await _begun.wait()
    _begun.event = None


@workflow
async def leaves_a_running_step() -> None:
    asyncio.create_task(endless())  # noqa: RUF006
    await until_begun()
