"""Durations: numbers, timedeltas and texts; what is not a duration is refused with the rule."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure import Engine, RunFailed, event, receive, sleep, sleep_until, workflow
from perdure.errors import BadArgument, Stuck
from perdure.kernel.verbs.durations import seconds_of
from support.lives import Lives, run_async


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (0, 0.0),
        (1, 1.0),
        (2.5, 2.5),
        (timedelta(minutes=5), 300.0),
        (timedelta(microseconds=1), 1e-6),
        ("5 minutes", 300.0),
        ("5minutes", 300.0),
        ("90 s", 90.0),
        ("250ms", 0.25),
        ("1h 30m", 5400.0),
        ("1 hour, 30 minutes", 5400.0),
        ("1 hour and 30 minutes", 5400.0),
        ("30 days", 30 * 86_400.0),
        ("2 weeks", 14 * 86_400.0),
        ("1.5 days", 1.5 * 86_400),
        ("1 Hour", 3600.0),
        (100 * 365 * 86_400, 100 * 365 * 86_400.0),
    ],
    ids=str,
)
def test_durations_are_understood(duration: Any, seconds: float) -> None:
    """Seconds, `timedelta` or a text."""
    assert seconds_of(duration) == pytest.approx(seconds)


BAD = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    timedelta(seconds=-1),
    101 * 366 * 86_400,
    timedelta.max,
    True,
    None,
    [],
    "",
    "  ",
    "soon",
    "5",
    "-5 minutes",
    "5 parsecs",
    "minutes 5",
    "5 minutes ago",
    "5 minutes\0",
    "1e3 s",
]


@workflow
async def sleeps_badly(index: int, verb: str) -> str:
    duration: Any = BAD[index]
    try:
        match verb:
            case "sleep":
                await sleep(duration)
            case "receive":
                await receive(NeverSentDuration, timeout=duration if duration is not None else [])
    except BadArgument as error:
        return str(error)
    return "accepted"


@event
@dataclass
class NeverSentDuration:
    pass


@pytest.mark.parametrize("index", range(len(BAD)), ids=lambda index: repr(BAD[index]))
def test_sleep_refuses_what_is_not_a_duration(index: int) -> None:
    """The issue's bad input, FAULTS F7: a typed error in the code that wrote it, with what it should be."""
    assert "P-230" in run_memory(sleeps_badly(index, "sleep"))


@pytest.mark.parametrize("index", range(len(BAD)), ids=lambda index: repr(BAD[index]))
def test_receive_refuses_what_is_not_a_timeout(index: int) -> None:
    """The issue's bad input, FAULTS F7: the same rule for timeouts."""
    assert "P-230" in run_memory(sleeps_badly(index, "receive"))


def run_memory(invocation: Any) -> Any:
    async def main() -> Any:
        async with Engine(":memory:") as engine:
            return await (await engine.start(invocation)).result(timeout=5)

    return run_async(main())


@workflow
async def sleeps_until_badly(kind: str) -> str:
    moments: dict[str, Any] = {
        "naive": datetime(2030, 1, 1),
        "text": "2030-01-01",
        "number": 1_900_000_000,
        "nothing": None,
    }
    try:
        await sleep_until(moments[kind])
    except BadArgument as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize("kind", ["naive", "text", "number", "nothing"])
def test_sleep_until_needs_a_datetime_with_a_zone(kind: str) -> None:
    """FAULTS F8: without a zone it means another moment on another machine."""
    answer = run_memory(sleeps_until_badly(kind))
    assert "P-230" in answer
    assert "timezone" in answer


@workflow
async def asyncio_sleeps(kind: str) -> str:
    durations = {"nan": math.nan, "inf": math.inf, "ages": 1e15, "negative": -5.0, "zero": 0.0}
    await asyncio.sleep(durations[kind])
    return "slept"


@pytest.mark.parametrize("kind", ["nan", "ages"])
def test_asyncio_sleep_of_no_duration_is_refused(kind: str) -> None:
    """FAULTS F7: plain asyncio has the same rule."""
    with pytest.raises(RunFailed, match=r"century|NaN"):
        run_memory(asyncio_sleeps(kind))


def test_asyncio_sleep_without_end_is_no_wait_for_anything() -> None:
    """FAULTS F7: `asyncio.sleep(math.inf)` is code that waits to be cancelled; alone it could never be woken."""
    with pytest.raises(Stuck, match="nothing could ever wake it"):
        run_memory(asyncio_sleeps("inf"))


@pytest.mark.parametrize("kind", ["negative", "zero"])
def test_asyncio_sleep_of_nothing_returns_at_once(kind: str) -> None:
    """As in plain asyncio."""
    assert run_memory(asyncio_sleeps(kind)) == "slept"


@workflow
async def sleeps_every_way() -> int:
    await sleep(0.01)
    await sleep(timedelta(milliseconds=10))
    await sleep("10 ms")
    await sleep_until(datetime.now(UTC) + timedelta(milliseconds=10))
    await asyncio.sleep(0.01)
    return 5


def test_every_way_to_sleep_is_durable(lives: Lives) -> None:
    """CONFORMANCE T1: a crash at every record, in every notation."""
    assert run_async(lives.crash_at_every_record(sleeps_every_way)) == 5
