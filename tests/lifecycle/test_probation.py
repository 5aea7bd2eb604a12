"""Groups of suspects, simulated: worlds of runs, some of which kill their worker after a while, life after life."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from perdure import limits
from perdure.engine.worker.probation import Probation, group_size
from perdure.store.model import Acquittal, RunRow, Status

MAX = limits.RECOVERIES_MAX_DEFAULT


@dataclass
class _Run:
    """A run in a step of so many seconds, or one that kills its worker after so many."""

    key: int
    seconds: float
    kills: bool
    recoveries: int = 0
    epoch: int = 0
    attempts: int = 0
    begun: float = -1.0
    ended: bool = False
    parked: bool = False

    @property
    def is_open(self) -> bool:
        return not (self.ended or self.parked)

    def row(self) -> RunRow:
        return RunRow(
            key=self.key, id=str(self.key), generation=1, workflow="w", version="1", status=Status.RUNNING,
            epoch=self.epoch, owner="w", next_seq=2, wake_at=None, created_at=0, updated_at=0, finished_at=None,
            recoveries=self.recoveries, input_digest=b"", parent=None, cancel_requested=False, frontier=None,
            reason=None, custom_status=None, state=None, last_item=0, pruned=0,
        )  # fmt: skip


class _World:
    """What the store and the sweep do, in steps of a quarter of a second."""

    def __init__(self, runs: list[_Run], recoveries_max: int = MAX) -> None:
        self.runs = runs
        self.now = 0.0
        self.deaths = 0
        self._max = recoveries_max
        self._by_key = {run.key: run for run in runs}

    def live(self, seconds_max: float) -> None:
        """A worker, until it is killed, or nothing is left to do."""
        probation, held = Probation(self._max, lambda: self.now), dict[int, _Run]()
        end = self.now + seconds_max
        while self.now < end:
            self._sweep(probation, held)
            self.now += 0.25
            for run in [run for run in held.values() if self.now >= run.begun + run.seconds]:
                if run.kills:
                    self.deaths += 1
                    return
                run.ended = True
                run.recoveries = 0
                del held[run.key]
                probation.clear(run.key)
            if not any(run.is_open for run in self.runs):
                return

    def _sweep(self, probation: Probation, held: dict[int, _Run]) -> None:
        while True:
            free = [run for run in self.runs if run.is_open and run.key not in held]
            chosen = [run for run in free if run.recoveries <= probation.trusted][: limits.CLAIM_BATCH_MAX]
            suspects = sorted((run for run in free if run.recoveries > probation.trusted), key=lambda r: -r.recoveries)
            suspects = suspects[: probation.wanted]
            if not chosen and not suspects:
                break
            for run in chosen + suspects:
                run.recoveries += 1
                run.epoch += 1
            if suspects:
                for acquittal in probation.take_survivors():
                    self._acquit(acquittal)
            for run in chosen + suspects:
                row = run.row()
                if row.recoveries > self._max:
                    run.parked = True
                    continue
                held[run.key] = run
                run.attempts += 1
                run.begun = self.now
                if probation.is_suspect(row):
                    probation.begin(row)
        probation.close_group()

    def _acquit(self, acquittal: Acquittal) -> None:
        run = self._by_key[acquittal.key]
        run.recoveries = min(run.recoveries, acquittal.recoveries)


def _world(count: int, poisons: int, kills_after: float, seconds: float, seed: int) -> _World:
    runs = [_Run(key, seconds, kills=False) for key in range(count - poisons)]
    runs += [_Run(key, kills_after, kills=True) for key in range(count - poisons, count)]
    random.Random(seed).shuffle(runs)
    return _World(runs)


CASES = [
    (count, poisons, kills_after, seconds)
    for count, poisons in ((30, 1), (500, 1), (500, 3))
    for kills_after, seconds in ((0.0, 0.3), (0.0, 10.0), (1.0, 10.0), (7.0, 3.0))
]


@pytest.mark.parametrize(("count", "poisons", "kills_after", "seconds"), CASES)
def test_poison_is_parked_and_nobody_else(count: int, poisons: int, kills_after: float, seconds: float) -> None:
    """Runs that kill at once, after a while, and later than the time of probation; among short steps and long ones."""
    world = _world(count, poisons, kills_after, seconds, seed=count)
    for _ in range(MAX * (poisons + 1) * 2):
        world.live(600.0)
        if not any(run.is_open for run in world.runs):
            break
    assert [run.kills for run in world.runs if run.parked] == [True] * poisons
    assert all(run.ended for run in world.runs if not run.kills)
    poisoned = [run.attempts for run in world.runs if run.kills]
    others = max(run.attempts for run in world.runs if not run.kills)
    print(f"{count=} {poisons=} {kills_after=} {seconds=}: {world.deaths} deaths, {poisoned=}, {others=}")
    # One that kills later than the time of probation is not suspected while there are others to suspect.
    assert all(number >= MAX for number in poisoned)
    if kills_after < limits.SUSPECT_SECONDS:
        assert poisoned == [MAX] * poisons
    assert others <= MAX + 1


def test_one_death_makes_no_suspect() -> None:
    """All of a thousand runs go on at once after it, and after a second one."""
    world = _World([_Run(key, 100.0, kills=False) for key in range(1_000)])
    for _ in range(2):
        held: dict[int, _Run] = {}
        world._sweep(Probation(MAX, lambda: 0.0), held)
        assert len(held) == len(world.runs)


def test_groups_shrink_as_deaths_go_on_and_grow_as_they_survive() -> None:
    assert [group_size(left) for left in range(10, 0, -1)] == [64, 64, 64, 16, 4, 1, 1, 1, 1, 1]
    world = _World([_Run(key, 1_000.0, kills=False, recoveries=2) for key in range(1_000)])
    probation = Probation(MAX, lambda: world.now)
    held: dict[int, _Run] = {}
    sizes: list[int] = []
    for _ in range(4):
        before = len(held)
        world._sweep(probation, held)
        sizes.append(len(held) - before)
        world._sweep(probation, held)
        assert len(held) - before == sizes[-1], "nobody joins a group that is being tried"
        world.now += limits.SUSPECT_SECONDS
    assert sizes == [64, 128, 256, 512]


@pytest.mark.parametrize("recoveries_max", [1, 2, 3, 5])
def test_a_small_limit_still_blames_the_right_one(recoveries_max: int) -> None:
    """With few deaths to go on, suspects are alone from the first on; with one, the first death is the last."""
    runs = [_Run(key, 0.3, kills=key == 7) for key in range(20)]
    world = _World(runs, recoveries_max)
    for _ in range(40):
        world.live(100.0)
        if not any(run.is_open for run in runs):
            break
    assert runs[7].parked
    assert runs[7].attempts == recoveries_max
    if recoveries_max > 1:
        assert [run.key for run in runs if run.parked] == [7]
