"""The first deadline stands: a duration that changes in the code while a run sleeps does not move its timer."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from lifecycle.moved_clock import HOUR, MovedClock
from support.lives import Lives, run_async

SOURCE = """
from __future__ import annotations
import asyncio
from dataclasses import dataclass
from perdure import event, receive, sleep, workflow

@event
@dataclass
class NeverSentDeadline:
    pass

@event
@dataclass
class SomethingElse:
    pass

@workflow
async def edited_sleep() -> str:
    await sleep({seconds})
    return "slept"

@workflow
async def edited_timeout() -> str:
    try:
        await receive(NeverSentDeadline, timeout={seconds})
    except TimeoutError:
        return "timed out"

@workflow
async def edited_fan(count: int) -> int:
    await asyncio.gather(*(sleep({seconds} + number) for number in range(count)))
    return count
"""


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.engine.clock._WAIT_SECONDS_MAX", 0.02)


def deploy(seconds: float) -> dict[str, Any]:
    """The same file with another duration, imported again: what a deploy does."""
    file = str(Path(__file__).parent / "deployed_sleeps.py")
    namespace: dict[str, Any] = {"__name__": "deployed_sleeps", "__file__": file}
    exec(compile(textwrap.dedent(SOURCE).format(seconds=seconds), file, "exec"), namespace)
    return namespace


@pytest.mark.parametrize("name", ["edited_sleep", "edited_timeout"])
@pytest.mark.parametrize("hours", [1, 100], ids=["shorter", "longer"])
def test_deadline_of_a_sleeping_run_does_not_move_with_the_code(lives: Lives, name: str, hours: int) -> None:
    """CONFORMANCE T2: ten hours were promised when the run fell asleep, so ten hours it is."""
    clock = MovedClock()

    async def main() -> None:
        module = deploy(10 * HOUR)
        async with lives.engine(clock=clock) as engine:
            await engine.start(module[name](), id="run")
            wake_at = (await engine.status("run")).wake_at
            await lives.crash(engine)
        deploy(hours * HOUR)
        clock.move(9 * HOUR)
        async with lives.engine(clock=clock) as engine:
            await engine.send("run", module["SomethingElse"]())  # makes the worker load the run
            with pytest.raises(TimeoutError):
                await engine.result("run", timeout=0.15)
            assert (await engine.status("run")).wake_at == wake_at
            clock.move(HOUR)
            assert await engine.result("run", timeout=5) in {"slept", "timed out"}
            (fired,) = [entry for entry in await engine.admin.history("run") if entry.kind == "timer_fired"]
            assert wake_at is not None
            assert fired.at >= wake_at

    run_async(main())


@pytest.mark.parametrize("count", [3, 40])
def test_first_deadlines_of_many_timers_stand(lives: Lives, count: int) -> None:
    """CONFORMANCE T2: also of more timers than a run's summary lists."""
    clock = MovedClock()

    async def main() -> None:
        module = deploy(10 * HOUR)
        async with lives.engine(clock=clock) as engine:
            await engine.start(module["edited_fan"](count), id="run")
            await lives.crash(engine)
        deploy(1 * HOUR)
        clock.move(5 * HOUR)
        async with lives.engine(clock=clock) as engine:
            # An event makes the worker load the run although nothing is due.
            await engine.send("run", module["SomethingElse"]())
            with pytest.raises(TimeoutError):
                await engine.result("run", timeout=0.15)
            history = await engine.admin.history("run")
            assert [entry.kind for entry in history] == ["started"], "nothing may fire before its first deadline"
            clock.move(6 * HOUR)
            assert await engine.result("run", timeout=5) == count

    run_async(main())
