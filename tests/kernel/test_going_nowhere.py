"""Code that can never go on is parked with the place it stands at; the other runs are not disturbed."""

from __future__ import annotations

import asyncio
import time

import pytest

from perdure import info, limits, start_child, step, workflow
from perdure.errors import RunConflict, RunParked
from support.lives import Lives, run_async

_gates: dict[str, bool] = {}


@step
async def reach(place: str) -> str:
    return place


@workflow
async def spins() -> str:
    await reach("here")
    while not _gates.get("open"):
        await asyncio.sleep(0)
    return "out"


@workflow
async def stuck_on_a_future() -> str:
    await reach("here")
    if not _gates.get("open"):
        await asyncio.get_running_loop().create_future()  # nobody completes this
    return "out"


@workflow
async def stuck_on_a_queue() -> str:
    await reach("here")
    if not _gates.get("open"):
        await asyncio.Queue[int]().get()
    return "out"


@workflow
async def awaits_a_foreign_future() -> str:
    await reach("here")
    await _foreign[0]
    return "out"


_foreign: list[asyncio.Future[None]] = []


@workflow
async def goes_fine() -> str:
    return await reach("there")


@workflow
async def starts_itself() -> str:
    try:
        handle = await start_child(starts_itself(), id=info().id)
    except RunConflict as error:
        return str(error)
    return await handle


@pytest.fixture(autouse=True)
def _closed_gates() -> None:
    _gates.clear()


def test_a_loop_that_never_waits_is_parked_and_can_be_resumed(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS D14: a cap on what one turn may do; the message says what to look for."""
    monkeypatch.setattr(limits, "TURN_CALLBACKS_MAX", 500)

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(spins(), id="run")
            with pytest.raises(RunParked, match=r"Spinning.*500 callbacks"):
                await run.result()
            assert (await run.status()).status == "parked"
            assert await (await engine.start(goes_fine())).result() == "there"
            _gates["open"] = True
            assert await engine.admin.resume("run")
            assert await run.result() == "out"

    run_async(main())


@pytest.mark.parametrize("described", [stuck_on_a_future, stuck_on_a_queue], ids=lambda w: w.name)
def test_waiting_for_something_unknown_is_parked_with_its_place(lives: Lives, described: object) -> None:
    """FAULTS D16: nothing could ever wake it, so it says where it stands instead of hanging."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(described(), id="run")  # type: ignore[operator]
            with pytest.raises(RunParked, match="Stuck") as parked:
                await run.result()
            assert described.name in str(parked.value)  # type: ignore[attr-defined]
            assert "test_going_nowhere.py" in str(parked.value)
            assert await (await engine.start(goes_fine())).result() == "there"
            _gates["open"] = True
            assert await engine.admin.resume("run")
            assert await run.result() == "out"

    run_async(main())


def test_a_future_of_another_loop_fails_the_wait(lives: Lives) -> None:
    """FAULTS D16: a foreign future never hangs a run."""

    async def main() -> None:
        _foreign[:] = [asyncio.get_running_loop().create_future()]
        async with lives.engine() as engine:
            run = await engine.start(awaits_a_foreign_future(), id="run")
            with pytest.raises(Exception, match=r"different loop|Stuck"):
                await run.result()
        _foreign.clear()

    run_async(main())


def test_a_run_cannot_be_its_own_child(lives: Lives) -> None:
    """FAULTS D39: waiting for itself is refused, not waited for."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(starts_itself(), id="run")).result()

    assert "run" in run_async(main())


def test_time_does_not_move_while_code_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS D14: reading the clock in a loop cannot end it: the run's time moves only with records."""
    from kernel.kernel_kit import Drive
    from perdure.errors import Spinning

    monkeypatch.setattr(limits, "TURN_CALLBACKS_MAX", 500)
    drive = Drive(polls_the_clock())
    try:
        with pytest.raises(Spinning):
            drive.finish("reach", "here")
    finally:
        drive.close()


@workflow
async def polls_the_clock() -> None:
    await reach("here")
    begun = time.time()
    while time.time() < begun + 1:
        await asyncio.sleep(0)
