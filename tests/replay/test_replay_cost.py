"""Replay takes linear time."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest

from kernel.kernel_kit import Drive
from perdure import event, receive, step, workflow
from perdure.types import Invocation
from support.lives import Lives, run_async


@event
@dataclass
class Last:
    pass


@step
async def number(value: int) -> int:
    return value


@workflow
async def in_a_row(count: int) -> int:
    total = 0
    for value in range(count):
        total += await number(value)
    await receive(Last)
    return total


@workflow
async def fanned_out(count: int) -> int:
    total = sum(await asyncio.gather(*(number(value) for value in range(count))))
    await receive(Last)
    return total


def _recorded(invocation: Invocation[Any]) -> Drive:
    drive = Drive(invocation)
    while (first := next(iter(drive.run.pending))).kind == "step":
        drive.finish(first.location, first.args[0])  # type: ignore[attr-defined]
    return drive


def _calls(function: Callable[[], Any]) -> int:
    """Python and C functions called: a measure of work that no busy machine can disturb."""
    count = 0

    def profile(_frame: FrameType, kind: str, _argument: Any) -> None:
        nonlocal count
        if kind in ("call", "c_call"):
            count += 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def _best_seconds(function: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        function()
        best = min(best, time.process_time() - begun)
    return best


@pytest.mark.parametrize(("described", "small", "large"), [(in_a_row, 2_000, 10_000), (fanned_out, 400, 2_000)])
def test_replay_is_linear(described: Any, small: int, large: int) -> None:
    """CONFORMANCE R6: five times the records is five times the work, for steps in a row and for a wide gather."""
    with _recorded(described(small)) as few, _recorded(described(large)) as many:
        assert few.pending() == many.pending() == ["receive receive"]
        calls = _calls(lambda: few.rebuilt()), _calls(lambda: many.rebuilt())
        assert calls[1] < 5.5 * calls[0]
        # What C code does inside one call is not counted above. Quadratic work would be 25 times as long.
        assert _best_seconds(lambda: many.rebuilt()) < 15 * _best_seconds(lambda: few.rebuilt())


def test_a_gather_of_2000_steps_survives_a_crash(lives: Lives) -> None:
    """CONFORMANCE R6, FAULTS D35: a fan-out of 2,000 completes, also when the engine dies in the middle of it."""

    async def main() -> int:
        async def act(engine: Any) -> int:
            handle = await engine.start(fanned_out(2_000), id="run")
            await handle.send(Last(), key="last")
            return int(await handle.result())

        died = await lives.live_until(1_000, act)
        assert died
        async with lives.engine() as engine:
            return await act(engine)

    assert run_async(main()) == sum(range(2_000))
