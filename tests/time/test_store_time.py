"""Workers of a store that has a clock of its own live by that one, whatever their own clocks say."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from lifecycle.moved_clock import DAY, HOUR, MovedClock
from perdure import Engine, now, sleep, workflow
from perdure.engine.clock import FollowingClock, SystemClock, timekeeper
from perdure.engine.renewal import renew
from perdure.store.memory import MemoryStore
from perdure.store.model import Renewed, RunFilter
from support.faulty_stores import DisturbedStore
from support.lives import run_async, until

SECOND = 1_000_000
START = 1_900_000_000 * SECOND
MINUTES = 60.0


class Hands:
    """The hands of all the clocks of a world, in microseconds: time passes, and each clock shows it in its own way."""

    def __init__(self, wall_is_off: float) -> None:
        self.passed = 0
        self.wall_is_off = round(wall_is_off * SECOND)
        self.store_is_off = 0
        self.clock = FollowingClock(
            lambda: (START + self.passed + self.wall_is_off) * 1_000, lambda: (77 * SECOND + self.passed) * 1_000
        )
        self.shown: list[int] = []

    def go_on(self, seconds: float) -> None:
        """Time passes; the clock is looked at meanwhile and must not go backwards."""
        left = round(seconds * SECOND)
        for part in (left // 3, left // 3, left - 2 * (left // 3)):
            self.passed += part
            self.look()

    def look(self) -> int:
        self.shown.append(self.clock.now())
        assert self.shown == sorted(self.shown), "the clock went backwards"
        return self.shown[-1]

    def store_now(self) -> int:
        return START + self.passed + self.store_is_off

    def ask(self, there: float = 0.0, back: float = 0.0) -> None:
        """The store is asked, and its answer takes so long."""
        began = self.clock.moment()
        self.passed += round(there * SECOND)
        told = self.store_now()
        self.passed += round(back * SECOND)
        self.clock.follow(began, told)
        if self.shown:
            self.look()

    @property
    def is_off(self) -> float:
        """By how many seconds it is ahead of the store's."""
        return (self.clock.now() - self.store_now()) / SECOND


OFFSETS = [5 * MINUTES, -5 * MINUTES, DAY, -DAY, 0.0]


@pytest.mark.parametrize("offset", OFFSETS)
def test_it_is_the_systems_until_a_store_tells_its_time(offset: float) -> None:
    """FAULTS C9: from then on it is the store's, by however much the machine is wrong."""
    hands = Hands(offset)
    hands.passed = 5 * SECOND
    assert hands.is_off == offset
    hands.ask()
    assert hands.is_off == 0
    hands.go_on(HOUR)
    assert hands.is_off == 0


@pytest.mark.parametrize("offset", OFFSETS)
def test_the_answer_is_taken_to_be_of_the_middle_of_the_call(offset: float) -> None:
    hands = Hands(offset)
    hands.ask(0.4, 0.4)
    assert hands.is_off == 0
    hands = Hands(offset)
    hands.ask(0.75, 0.25)
    assert hands.is_off == 0.25, "wrong by at most half of the call"


@pytest.mark.parametrize("jump", [HOUR, -HOUR, -DAY])
def test_a_wall_clock_that_jumps_does_not_matter(jump: float) -> None:
    hands = Hands(5 * MINUTES)
    hands.ask()
    hands.go_on(10)
    hands.wall_is_off += round(jump * SECOND)
    hands.go_on(10)
    assert hands.is_off == 0
    hands.ask(0.01, 0.01)
    assert hands.is_off == 0


def test_a_store_whose_time_moves_on_is_followed_at_once() -> None:
    """FAULTS B23: such as after a failover, or when this machine was asleep."""
    hands = Hands(0)
    hands.ask()
    hands.go_on(1)
    hands.store_is_off = round(HOUR * SECOND)
    hands.ask(0.01, 0.01)
    assert hands.is_off == 0


@pytest.mark.parametrize("back", [5 * MINUTES, HOUR, DAY])
def test_a_store_whose_time_is_set_back_is_approached_at_half_the_speed(back: float) -> None:
    """FAULTS B23: never backwards, and never standing still, so that a moment which is waited for comes nearer."""
    hands = Hands(0)
    hands.ask()
    hands.go_on(1)
    hands.store_is_off = -round(back * SECOND)
    hands.ask()
    assert hands.is_off == back
    hands.go_on(back)
    assert hands.is_off == back / 2
    hands.ask()  # tells nothing new
    assert hands.is_off == back / 2
    hands.go_on(back)
    assert hands.is_off == 0
    hands.go_on(back)
    assert hands.is_off == 0


def test_what_a_call_cannot_tell_changes_nothing() -> None:
    """An answer that took a second tells the time to half a second: a clock that is nearer is left as it is."""
    hands = Hands(0)
    hands.ask()
    for there, back in ((0.9, 0.1), (0.1, 0.9), (5.0, 0.0), (0.0, 5.0)):
        hands.go_on(1)
        hands.ask(there, back)
        assert hands.is_off == 0


@pytest.mark.parametrize("seed", range(50))
def test_it_never_goes_backwards(seed: int) -> None:
    """Whatever answers take and whatever both clocks do; and it is right again when they have come to rest."""
    rng = random.Random(seed)
    hands = Hands(rng.uniform(-DAY, DAY))
    hands.ask(rng.random(), rng.random())
    for _ in range(100):
        hands.go_on(rng.choice([0.001, 1, 1, 60]))
        if rng.random() < 0.2:
            hands.store_is_off += round(rng.uniform(-100, 100) * SECOND)
        if rng.random() < 0.2:
            hands.wall_is_off += round(rng.uniform(-HOUR, HOUR) * SECOND)
        hands.ask(rng.random() * rng.choice([0.01, 1]), rng.random() * rng.choice([0.01, 1]))
    hands.ask()
    hands.go_on(2 * 100 * 100)
    hands.ask()
    assert hands.is_off == 0


class TimedStore(MemoryStore):
    """A memory store with a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = MovedClock()

    async def renew(self, worker_id: str, at: int) -> Renewed:
        renewed = await super().renew(worker_id, at)
        await asyncio.sleep(0)
        return Renewed(alive=renewed.alive, now=self.clock.now())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    """The wall clock of this machine, as engines see it."""
    moved = MovedClock()
    original = FollowingClock.__init__

    def init(self: Any) -> None:
        original(self, lambda: moved.now() * 1_000)

    monkeypatch.setattr(FollowingClock, "__init__", init)
    return moved


@workflow
async def time_tells() -> float:
    before = now()
    await sleep(0.05)
    return (now() - before).total_seconds()


@workflow
async def time_sleeps_an_hour() -> None:
    await sleep("1 hour")


@pytest.mark.parametrize("offset", OFFSETS)
def test_runs_live_by_the_stores_time(machine: MovedClock, offset: float) -> None:
    """FAULTS C9: from the first thing that the engine does; also when somebody sets the machine's clock meanwhile."""

    async def main() -> None:
        store = TimedStore()
        machine.move(offset)
        async with Engine(store, sweep_interval=0.02) as engine:
            first = await engine.start(time_tells(), id="first")
            machine.move(-HOUR)
            assert 0.05 <= await first.result() < 10
            await engine.start(time_tells(), id="second")
            for row in await store.list_runs(RunFilter(), 9):
                assert abs(row.created_at - store.clock.now()) < 20 * SECOND

    run_async(main())


def test_two_workers_agree_on_when_a_timer_is_due(machine: MovedClock) -> None:
    """FAULTS C9: the machine of the second is five minutes ahead. It does not take the run of the first an hour too
    early, nor one second; when the store's hour is over it does."""

    async def main() -> None:
        store = TimedStore()
        async with Engine(store, sweep_interval=0.02) as first:
            run = await first.start(time_sleeps_an_hour(), id="run")
            await until(lambda: first.worker is not None and not first.worker.residents.has_ready)
        machine.move(HOUR + 5 * MINUTES)
        disturbed = DisturbedStore(store)
        asked: list[int] = []
        disturbed.at_the_call("claim", lambda call: asked.append(call.args[1]))
        async with Engine(disturbed, sweep_interval=0.02) as second:  # type: ignore[arg-type]
            await until(lambda: len(asked) >= 5)
            assert all(abs(at - store.clock.now()) < 20 * SECOND for at in asked)
            row = await store.get(run.id)
            assert row is not None
            assert (row.owner, row.finished_at) == (None, None)
            store.clock.move(HOUR)
            await second.result("run", timeout=20)

    run_async(main())


def test_a_clock_that_was_given_is_left_alone() -> None:
    async def main() -> None:
        store = TimedStore()
        store.clock.move(DAY)
        given = MovedClock()
        async with Engine(store, clock=given, sweep_interval=0.02) as engine:
            await engine.start(time_tells(), id="run")
            row = await store.get("run")
            assert row is not None
            assert abs(row.created_at - given.now()) < 20 * SECOND

    run_async(main())


def test_a_store_without_a_clock_leaves_the_systems() -> None:
    """Memory, SQLite: a wall clock that is set is seen at once."""
    moved = MovedClock()
    clock = FollowingClock(lambda: moved.now() * 1_000)

    async def main() -> None:
        await renew(MemoryStore(), "w1", clock)
        moved.move(-HOUR)
        assert abs(clock.now() - moved.now()) < 20 * SECOND
        moved.move(DAY)
        assert abs(clock.now() - moved.now()) < 20 * SECOND

    run_async(main())
    assert isinstance(timekeeper(None), FollowingClock)
    assert abs(timekeeper(None).now() - SystemClock().now()) < 20 * SECOND
