"""Clock and randomness written directly in workflow code are the same on every replay; in steps they are the real
ones."""

from __future__ import annotations

import datetime
import datetime as dt
import json
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import date
from datetime import datetime as moment
from random import choice, randint, shuffle
from random import random as draw
from time import monotonic, perf_counter, time_ns
from time import time as seconds
from typing import Any, cast
from uuid import uuid4

import pytest

from kernel.kernel_kit import START, Drive
from perdure import step, workflow
from perdure.kernel.shims import uuid7
from perdure.types import Invocation
from support.lives import Lives, run_async

REAL_BEFORE = time.time()


@step
async def in_between(number: int) -> list[Any]:
    return [number, time.time(), draw(), str(uuid4()), moment.now(dt.UTC).isoformat()]


@workflow
async def reads_the_clock() -> list[Any]:
    seen: list[Any] = []
    for number in range(2):
        seen += [time.time(), seconds(), time.monotonic(), monotonic(), perf_counter(), time.time_ns(), time_ns()]
        seen += [datetime.datetime.now(dt.UTC).isoformat(), moment.now().isoformat(), date.today().isoformat()]
        seen += [dt.datetime.utcnow().isoformat(), moment.today().isoformat(), dt.date.today().isoformat()]
        seen.append([int(part) for part in [time.time() for _ in range(2)]])
        await in_between(number)
    return seen


@workflow
async def draws_lots() -> list[Any]:
    seen: list[Any] = []
    for number in range(2):
        deck = list(range(10))
        random.shuffle(deck)
        shuffle(deck)
        seen += [random.random(), draw(), randint(1, 10**9), choice(range(10**6)), deck, random.sample(deck, 3)]
        seen += [random.gauss(0, 1), random.getrandbits(70), random.uniform(1, 2), random.randbytes(4).hex()]
        seen += [str(uuid.uuid4()), str(uuid4()), str(uuid.uuid1()), random.Random().random()]
        state = random.getstate()
        again = random.random()
        random.setstate(state)
        seen.append(random.random() == again)
        seen.append(random.binomialvariate(10) if hasattr(random, "binomialvariate") else 0)
        await in_between(number)
    return seen


@workflow
async def imports_inside() -> list[Any]:
    import random as dice
    import time as clock
    from uuid import uuid4 as fresh

    first = [clock.time(), dice.random(), str(fresh())]
    await in_between(0)
    return first


@workflow
async def reads_other_clocks() -> list[Any]:
    first = [list(time.gmtime()), list(time.localtime()), time.strftime("%s"), time.ctime(), time.asctime()]
    first += [time.clock_gettime(time.CLOCK_REALTIME), time.clock_gettime_ns(time.CLOCK_MONOTONIC)]
    first += [time.process_time(), time.process_time_ns(), time.thread_time(), time.thread_time_ns()]
    first += [time.monotonic_ns(), time.perf_counter_ns()]
    await in_between(0)
    return first


DESCRIBED: list[Callable[[], Invocation[Any]]] = [reads_the_clock, draws_lots, imports_inside, reads_other_clocks]


@pytest.mark.parametrize("described", DESCRIBED, ids=lambda w: w.name)
def test_clock_and_chance_are_the_same_on_every_replay(described: Callable[[], Invocation[Any]]) -> None:
    """FAULTS D5, D6: through modules, functions and classes, however they were imported."""
    with Drive(described()) as drive:
        while drive.run.outcome is None:
            location = next(iter(drive.run.pending)).location
            drive.finish(location, [])
        _wait_for_the_clock_to_move()
        first: Any = drive.run.outcome
        again: Any = drive.rebuilt()[0].outcome
        assert bytes(first.value) == bytes(again.value)


def _wait_for_the_clock_to_move() -> None:
    """Coarse clocks must show another second, or a real reading could happen to look the same."""
    begun = time.ctime()  # the coarsest of them, a few milliseconds behind time.time()
    while time.ctime() == begun:
        pass


def test_the_clock_of_a_run_is_the_time_of_its_last_record() -> None:
    """It moves with records, never back."""
    with Drive(tells_the_time()) as drive:
        drive.finish("in_between", [])
        outcome: Any = drive.run.outcome
        at = drive.records[-1].at
        assert at > START
        assert bytes(outcome.value).decode() == f"[{at / 1_000_000!r},{at}]"


@workflow
async def tells_the_time() -> list[Any]:
    await in_between(0)
    return [time.time(), time.time_ns() // 1_000]


def test_two_runs_draw_differently() -> None:
    """The seed of a run is its own."""
    outcomes = []
    for seed in (1, 2):
        with Drive(draws_lots(), seed=seed) as drive:
            drive.finish("in_between", [])
            drive.finish("in_between#2", [])
            outcome: Any = drive.run.outcome
            outcomes.append(bytes(outcome.value))
    assert outcomes[0] != outcomes[1]


@workflow
async def asks_a_step() -> list[Any]:
    return [await in_between(1), await in_between(2)]


def test_steps_see_the_real_clock_and_real_chance(lives: Lives) -> None:
    """Stand-ins are for workflow code only."""

    async def main() -> list[list[Any]]:
        async with lives.engine() as engine:
            return await (await engine.start(asks_a_step())).result()

    first, second = run_async(main())
    assert REAL_BEFORE <= first[1] <= second[1] <= time.time()
    assert first[2:4] != second[2:4]


def test_nothing_is_replaced_outside_workflow_code() -> None:
    """The modules themselves are untouched."""
    assert abs(time.time() - time_ns() / 1e9) < 5
    assert isinstance(moment.now(), datetime.datetime)
    assert type(moment.now()) is datetime.datetime
    assert time.__name__ == "time"
    assert not hasattr(time, "__perdure_real__")


@workflow
async def uses_classes() -> list[bool]:
    now = datetime.datetime.now()
    made = moment(2024, 1, 31, tzinfo=dt.UTC)
    return [
        isinstance(now, datetime.datetime),
        isinstance(made, moment),
        isinstance(made, date),
        not isinstance("x", moment),
        moment.fromisoformat("2024-01-31T00:00:00+00:00") == made,
        moment.strptime("2024", "%Y").year == 2024,
        moment.fromtimestamp(0, dt.UTC).year == 1970,
        moment.combine(date(2024, 1, 1), datetime.time(3)).hour == 3,
        issubclass(moment, date),
        (made - moment(2024, 1, 30, tzinfo=dt.UTC)) == datetime.timedelta(days=1),
        type(now) is type(made),
    ]


def test_dates_behave_as_dates_in_workflow_code() -> None:
    """Stand-ins are the classes they stand for, as far as code can tell."""
    with Drive(uses_classes()) as drive:
        outcome: Any = drive.run.outcome
        assert bytes(outcome.value) == b"[" + b",".join([b"true"] * 11) + b"]"


@workflow
async def draws_secrets() -> list[Any]:
    drawn = [os.urandom(4), secrets.token_hex(4), secrets.token_bytes(4), secrets.choice(["a", "b", "c"])]
    drawn += [secrets.randbelow(10**9), secrets.randbits(40), random.SystemRandom().random()]
    drawn.append(secrets.compare_digest("a", "a"))
    await in_between(1)
    return [*drawn, secrets.token_urlsafe(4)]


def test_secrets_are_drawn_for_real_and_recorded(lives: Lives) -> None:
    """FAULTS D6: a draw that would differ on replay is recorded, with the commit of what comes next."""

    async def main() -> None:
        async def act(engine: Any) -> Any:
            return await (await engine.start(draws_secrets(), id="run")).result()

        async with lives.fresh().engine() as engine:
            calm = await act(engine)
        seen = set()
        for limit in (1, 9):
            other = lives.fresh()
            assert await other.live_until(limit, act)
            async with other.engine() as engine:
                before = [
                    (e.location, e.data["value"]) for e in await engine.admin.history("run") if e.kind == "recorded"
                ]
                result = await engine.result("run")
                after = [
                    (e.location, e.data["value"]) for e in await engine.admin.history("run") if e.kind == "recorded"
                ]
            assert after[: len(before)] == before
            assert {location.partition("#")[0] for location, _ in after} == {
                "urandom", "token_hex", "token_bytes", "getrandbits", "token_urlsafe",
            }  # fmt: skip
            assert dict(after)["token_hex"] == result[1]
            assert result[7] is True
            seen.add(result[1])
        assert len(seen | {calm[1]}) == 3, "they are no function of a seed"

    run_async(main())


def test_a_uuid7_sorts_by_the_time_of_the_run() -> None:
    """The shape of RFC 9562, whatever Python has it."""

    class FakeRun:
        now = 1_700_000_000_123_456
        loops = None
        random = random.Random(1)

    made = uuid7(cast(Any, FakeRun()))
    assert made.int >> 80 == 1_700_000_000_123
    assert (made.int >> 76) & 0xF == 7
    assert made.variant == uuid.RFC_4122


@workflow
async def converts_times() -> list[Any]:
    made = moment.fromtimestamp(1_700_000_000)
    there = time.mktime(time.localtime(1_700_000_000))
    return [made.isoformat(), date.fromtimestamp(1_700_000_000).isoformat(), there]


def test_the_zone_of_the_machine_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS D5: what Python takes for local time is UTC in a run, in both directions."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with Drive(converts_times()) as drive:
            outcome: Any = drive.run.outcome
            assert bytes(outcome.value) == b'["2023-11-14T22:13:20","2023-11-14",1700000000.0]'
        assert moment.fromtimestamp(1_700_000_000).hour == 7, "outside it is the machine's"
    finally:
        monkeypatch.undo()
        time.tzset()


@workflow
async def makes_a_uuid1() -> list[str]:
    return [str(uuid.uuid1()), str(uuid.uuid1(node=7, clock_seq=9))]


def test_a_uuid1_holds_the_time_of_the_run() -> None:
    """RFC 9562: version 1, the run's time, a drawn node."""
    with Drive(makes_a_uuid1()) as drive:
        outcome: Any = drive.run.outcome
        drawn, given = [uuid.UUID(text) for text in json.loads(bytes(outcome.value))]
    assert drawn.version == given.version == 1
    assert (drawn.time - 0x01B21DD213814000) // 10 == drive.records[0].at
    assert (given.node, given.clock_seq) == (7, 9)
