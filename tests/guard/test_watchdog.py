"""Code that keeps the worker is reported with its stack, and in the end stopped; the other runs go on."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import event, limits, receive, step, workflow
from perdure.engine.watchdog import TurnAbandoned, Watchdog
from perdure.errors import BadArgument, RunParked, Spinning
from perdure.kernel.eventloop.hosting import TurnMonitor
from support.lives import Lives, run_async

_gate: dict[str, Any] = {}


@step
async def one() -> int:
    return 1


@workflow
async def fine() -> int:
    return await one()


def without_end() -> None:
    while not _gate.get("open"):
        pass


@workflow
async def computes_without_end() -> str:
    await one()
    without_end()
    return "out"


@workflow
async def computes_at_once_without_end() -> str:
    without_end()
    return "out"


@workflow
async def catches_whatever_comes() -> str:
    await one()
    while not _gate.get("open"):
        try:
            without_end()
        except BaseException:
            _gate["caught"] = _gate.get("caught", 0) + 1
            if _gate["caught"] >= 2:
                raise
    return "out"


@workflow
async def catches_and_goes_on() -> str:
    await one()
    try:
        without_end()
    except BaseException:
        return "went on"
    return "out"


@workflow
async def awaits_what_is_ready() -> str:
    await one()
    while not _gate.get("open"):
        await asyncio.sleep(0)
    return "out"


@workflow
async def awaits_what_is_ready_at_once() -> str:
    while True:
        await asyncio.sleep(0)


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@workflow
async def takes_its_time() -> str:
    await one()
    busy(_gate["seconds"])
    return "done"


@workflow
async def blocks_in_a_helper() -> str:
    await one()
    _gate["blocked"].wait()
    return "done"


@pytest.fixture(autouse=True)
def _before() -> None:
    _gate.clear()


@pytest.mark.parametrize(
    "flow", [computes_without_end, catches_whatever_comes, catches_and_goes_on], ids=lambda flow: flow.name
)
def test_a_computation_without_end_is_parked_and_can_be_fixed(lives: Lives, flow: Any) -> None:
    """FAULTS D13: the turn is abandoned whatever the code catches, the place is named, the other runs go on."""

    async def main() -> None:
        async with lives.engine(turn_warning=0.05, turn_limit=0.2) as engine:
            run = await engine.start(flow(), id="run")
            with pytest.raises(RunParked, match=r"Spinning.*abandoned") as parked:
                await run.result()
            assert "in without_end" in str(parked.value)
            assert [entry.kind for entry in await engine.admin.history("run")] == ["started"]
            assert await (await engine.start(fine())).result() == 1
            _gate["open"] = True
            assert await engine.admin.resume("run")
            assert await run.result() == "out"

    run_async(main())


def test_one_that_begins_so_is_refused_at_the_start(lives: Lives) -> None:
    """FAULTS D13: nothing is written."""

    async def main() -> None:
        async with lives.engine(turn_limit=0.2) as engine:
            with pytest.raises((Spinning, TurnAbandoned), match="abandoned"):
                await engine.start(computes_at_once_without_end(), id="run")
            assert await engine.list() == []
            assert await (await engine.start(fine())).result() == 1

    run_async(main())


def test_a_replay_that_never_ends_is_parked(lives: Lives) -> None:
    """FAULTS D13: a worker that loads such a run is not lost to the others."""

    async def main() -> None:
        _gate["open"] = True
        async with lives.engine() as engine:
            await engine.start(waits_then_computes(), id="run")
        _gate.clear()
        async with lives.engine(turn_limit=0.2) as engine:
            await engine.send("run", Go())
            with pytest.raises(RunParked, match="abandoned"):
                await engine.result("run", timeout=60)
            assert await (await engine.start(fine())).result() == 1

    run_async(main())


@event
@dataclass
class Go:
    pass


@workflow
async def waits_then_computes() -> None:
    without_end()
    await receive(Go)


@pytest.mark.parametrize("later", [True, False])
def test_awaiting_what_is_always_ready_is_parked(lives: Lives, later: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS D14: in the first turn and in later ones."""
    monkeypatch.setattr(limits, "TURN_CALLBACKS_MAX", 500)

    async def main() -> None:
        async with lives.engine() as engine:
            if later:
                run = await engine.start(awaits_what_is_ready(), id="run")
                with pytest.raises(RunParked, match=r"Spinning.*500 callbacks"):
                    await run.result()
                _gate["open"] = True
                assert await engine.admin.resume("run")
                assert await run.result() == "out"
            else:
                with pytest.raises(Spinning, match="500 callbacks"):
                    await engine.start(awaits_what_is_ready_at_once(), id="run")
                assert await engine.list() == []

    run_async(main())


def test_a_long_turn_is_reported_once_with_its_stack_and_without_values(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS D15: a warning that shows where the code is; the run goes on."""
    _gate["seconds"] = 0.6

    async def main() -> str:
        async with lives.engine(turn_warning=0.1) as engine:
            return await (await engine.start(takes_its_time(), id="slow-run")).result()

    assert run_async(main()) == "done"
    (said,) = [record for record in caplog.records if record.name == "perdure.watchdog"]
    assert said.levelname == "WARNING"
    text = said.getMessage()
    assert re.search(r"run 'slow-run' has kept the worker for 0\.\d seconds", text)
    assert "in takes_its_time" in text
    assert "in busy" in text
    assert "into a step" in text
    assert "drain" not in text, "only the code of the run"


def test_a_call_that_blocks_is_reported_while_it_lasts(lives: Lives) -> None:
    """FAULTS D15: C code cannot be stopped from outside, but it can be named."""
    released = _gate["blocked"] = threading.Event()
    handler = _Releases(released)
    logging.getLogger("perdure.watchdog").addHandler(handler)

    async def main() -> str:
        async with lives.engine(turn_warning=0.05) as engine:
            return await (await engine.start(blocks_in_a_helper(), id="run")).result()

    try:
        assert run_async(main()) == "done"
    finally:
        logging.getLogger("perdure.watchdog").removeHandler(handler)
    assert "in blocks_in_a_helper" in handler.said[0]


class _Releases(logging.Handler):
    """Lets the blocked call go as soon as it was reported."""

    def __init__(self, released: threading.Event) -> None:
        super().__init__()
        self._released = released
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self._released.set()


def test_a_turn_that_ends_as_it_is_given_up_on_harms_nobody(lives: Lives) -> None:
    """Turns that last as long as the limit, again and again: each ends or is parked, and no other run is hit."""

    async def main() -> list[str]:
        ends: list[str] = []
        async with lives.engine(turn_warning=0, turn_limit=0.04) as engine:
            for number in range(25):
                _gate["seconds"] = 0.036 + number * 0.001
                run = await engine.start(takes_its_time(), id=f"run-{number}")
                others = [await engine.start(fine()) for _ in range(3)]
                try:
                    ends.append(await run.result())
                except RunParked as error:
                    ends.append("parked" if "abandoned" in str(error) else str(error))
                assert [await other.result() for other in others] == [1, 1, 1]
        return ends

    assert set(run_async(main())) <= {"done", "parked"}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released once for every look that a watchdog takes."""
    taken = threading.Semaphore(0)
    original = Watchdog._look

    def counted(self: Watchdog) -> bool:
        found = original(self)
        taken.release()
        return found

    monkeypatch.setattr(Watchdog, "_look", counted)
    return taken


def fall_asleep(dog: Watchdog) -> None:
    deadline = time.monotonic() + 10
    while not dog.idle:
        assert time.monotonic() < deadline


def end(dog: Watchdog) -> None:
    dog.close()
    assert dog._thread is not None
    dog._thread.join(10)
    assert not dog._thread.is_alive()


def test_it_sleeps_without_end_while_nothing_happens(looks: threading.Semaphore) -> None:
    """A thread that costs nothing when idle: it stops looking, and the next turns bring it back."""
    dog = Watchdog(TurnMonitor(), 0.02, 0)
    assert dog.idle
    assert dog._thread is None, "not even a thread before the first turn"
    for _ in range(3):
        with dog:
            assert looks.acquire(timeout=10)
        fall_asleep(dog)
        while looks.acquire(blocking=False):
            pass
        assert not looks.acquire(timeout=0.3), "many times the interval"
    end(dog)


def test_it_does_not_sleep_while_turns_are_taken(looks: threading.Semaphore) -> None:
    """Between two turns there is nothing to see, and no later word: the next one may be the one that never ends."""
    dog = Watchdog(TurnMonitor(), 0.02, 0)
    with dog:
        assert looks.acquire(timeout=10)
    fall_asleep(dog)
    while looks.acquire(blocking=False):
        pass
    with dog:
        for _ in range(5):
            assert looks.acquire(timeout=10)
        assert not dog.idle
    end(dog)


def test_one_turn_after_another_does_not_wake_it_each_time(
    monkeypatch: pytest.MonkeyPatch, looks: threading.Semaphore
) -> None:
    """Waking a thread takes longer than most turns: while there are turns it looks now and then by itself."""
    dog = Watchdog(TurnMonitor(), 4.0, 0)  # it looks once a second
    dog._interval = 0.02
    with dog:
        assert looks.acquire(timeout=10)
    fall_asleep(dog)
    dog._interval = 3600.0
    wakes = 0
    original = threading.Event.set

    def counted(event: threading.Event) -> None:
        nonlocal wakes
        wakes += event is dog._wake
        original(event)

    monkeypatch.setattr(threading.Event, "set", counted)
    with dog:
        pass
    deadline = time.monotonic() + 10
    while dog.idle:  # until it has heard
        assert time.monotonic() < deadline
    for _ in range(100):
        with dog:
            pass
    assert wakes == 1
    end(dog)


def test_it_can_be_switched_off_and_is_told_sensible_times(lives: Lives) -> None:
    dog = Watchdog(TurnMonitor(), 0, 0)
    with dog:
        assert dog._thread is None
    with pytest.raises(BadArgument, match="turn_limit"):
        lives.engine(turn_limit=-1)


@workflow
async def computes(number: int) -> int:
    total = 0
    for _ in range(20):
        total = await one() + sum(range(number))
    return total


def run_traced(main: Coroutine[Any, Any, None]) -> None:
    """As under a debugger that is written in Python."""

    def trace(frame: Any, event: str, argument: Any) -> Any:
        return trace

    usual = sys.gettrace()
    sys.settrace(trace)
    try:
        run_async(main)
    finally:
        sys.settrace(usual)


def test_looking_does_not_disturb_a_debugger(lives: Lives) -> None:
    """While a function traces the code, reading the variables of a frame from another thread would destroy them."""

    async def main() -> None:
        # A look every quarter of this time: many in each turn.
        async with lives.engine(turn_warning=0.002) as engine:
            handles = [await engine.start(computes(20_000)) for _ in range(10)]
            for handle in handles:
                assert await handle.result() == 1 + sum(range(20_000))

    run_traced(main())


def test_a_debugger_after_a_turn_was_abandoned(lives: Lives) -> None:
    """An exception that was thrown and taken back would leave the interpreter looking for it, and a traced thread
    would never get any further."""

    async def abandoned() -> None:
        async with lives.engine(turn_limit=0.05) as engine:
            with pytest.raises(RunParked, match="abandoned"):
                await (await engine.start(computes_without_end(), id="endless")).result()

    async def traced() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(fine())).result() == 1

    _gate.clear()
    run_async(abandoned())
    run_traced(traced())


def test_the_thread_goes_with_its_engine(lives: Lives) -> None:
    async def main() -> threading.Thread:
        async with lives.engine() as engine:
            await (await engine.start(fine())).result()
            assert engine.worker is not None
            thread = engine.worker.watchdog._thread
            assert thread is not None
            assert thread.is_alive()
        return thread

    thread = run_async(main())
    thread.join(10)
    assert not thread.is_alive()


def test_runs_go_on_where_its_thread_cannot_be_started(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A limit of threads: turns are taken without it, and one line says so."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "perdure-watchdog":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def main() -> None:
        async with lives.engine() as engine:
            runs = await asyncio.gather(*(engine.start(unwatched(number)) for number in range(3)))
            assert [await run.result(timeout=20) for run in runs] == [0, 1, 2]

    run_async(main())
    assert [record.message for record in caplog.records if "not watched" in record.message] == [
        "turns are not watched: the watchdog's thread cannot be started (can't start new thread)."
    ]


@step
async def looked_after_by_nobody(number: int) -> int:
    return number


@workflow
async def unwatched(number: int) -> int:
    return await looked_after_by_nobody(number)
