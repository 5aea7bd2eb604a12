"""Worlds with the faults that are not in the usual ones, and worlds on SQLite."""

from __future__ import annotations

from collections import Counter

import pytest

from sim.late import CONDITIONS, SHAPES
from sim.plan import MORE_FAULTS, Setting
from sim.seeds import explain
from sim.world import World, simulate
from support.frozen import changed

#: How many worlds of each kind: those in which workers die again and again are long.
SEEDS = {"hosts": 60, "odd": 60, "zombies": 60, "litter": 60, "plague": 25}
ON_SQLITE = Setting(frozenset(MORE_FAULTS), "sqlite")
SEEDS_ON_SQLITE = 25


@pytest.mark.parametrize("kind", MORE_FAULTS)
def test_no_world_with_more_faults_violates_anything_that_must_hold(kind: str) -> None:
    """Hosts that cancel everything; commits that raise what is no error of a store; workers that commit after they were
    taken for dead; collections in the middle of a turn; workers that die more often than a run may be recovered."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS[kind]):
        report = simulate(seed, None, Setting(frozenset({kind})))
        assert not report.problem, explain(report)
        happened += report.happened
        assert not changed(f"worlds-{kind}", [(seed, report.digest)])
    assert set(MORE_FAULTS[kind]) <= set(happened)  # a fault that never happens tests nothing


def test_no_world_on_sqlite_differs_from_the_memory_store() -> None:
    """Every kind of stale turn comes, by every route, and is refused as the memory store refuses it."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS_ON_SQLITE):
        report = simulate(seed, None, ON_SQLITE)
        assert not report.problem, explain(report)
        happened += report.happened
    stale = {kind.removeprefix("stale ") for kind in happened if kind.startswith("stale ")}
    assert stale == {"alone", "in a group", "step to step", "end", "with effects"}
    late = {kind.removeprefix("late ") for kind in happened if kind.startswith("late ")}
    assert late == {f"{condition}, {shape}" for condition in CONDITIONS for shape in SHAPES}


def test_the_same_seed_gives_the_same_trace_in_every_setting() -> None:
    for setting in (*(Setting(frozenset({kind})) for kind in MORE_FAULTS), ON_SQLITE):
        first = [simulate(seed, None, setting).digest for seed in range(5)]
        assert [simulate(seed, None, setting).digest for seed in reversed(range(5))] == first[::-1]


def test_more_faults_leave_the_plan_of_a_seed_as_it_is() -> None:
    for seed in range(20):
        usual, more = World(seed, None), World(seed, None, Setting(frozenset(MORE_FAULTS)))
        usual.loop.close()
        more.loop.close()
        assert more.plan[: len(usual.plan)] == usual.plan
        assert {root: more.programs[root] for root in usual.programs} == usual.programs
