"""The simulator: a thousand worlds without a violation, and the same world again from the same seed."""

from __future__ import annotations

import hashlib

import pytest

from sim import plan as plans
from sim.plan import CALL_FAULTS, TIMED_FAULTS, Fault, parse
from sim.seeds import explain, happened, text_of
from sim.shrink import shrink
from sim.world import Report, World, simulate
from support.frozen import changed
from support.processes import first_lines

SEEDS = 1000
BATCH = 50

#: Seeds that once showed a bug. Each is lived through on every run of the suite, however the others are chosen.
ONCE_FAILED = [58, 347, 376, 397, 434, 1424, 2162, 3414, 3691, 3842, 4257, 4827, 5852]


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_no_world_violates_anything_that_must_hold(first: int) -> None:
    """Many lives of one store in one process: several workers, skewed clocks, crashes, pauses and a failing store.
    And everything happens in it as it did, to the byte (`support.frozen`).

    Repeat one with `make sim SEED=...`.
    """
    reports = [simulate(seed) for seed in range(first, first + BATCH)]
    failed = [report for report in reports if report.problem]
    assert not failed, explain(failed[0])
    assert not changed("worlds", ((report.seed, report.digest) for report in reports))


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_showed_a_bug_shows_none(seed: int) -> None:
    report = simulate(seed)
    assert not report.problem, explain(report)


def test_every_kind_of_fault_comes_to_pass() -> None:
    """A fault that never happens tests nothing."""
    found = happened(simulate(seed) for seed in range(60))
    assert set(found) >= {*CALL_FAULTS, *TIMED_FAULTS, "attempts"}, found


def test_the_same_seed_gives_the_same_trace() -> None:
    """FAULTS 5.9: in one process, whatever was simulated before."""
    first = [simulate(seed).digest for seed in range(30)]
    assert [simulate(seed).digest for seed in reversed(range(30))] == first[::-1]
    assert len(set(first)) == 30


def test_what_is_drawn_from_a_seed_stays_as_it_is() -> None:
    """So that the trace of a seed can be compared with an older one: new kinds of faults and programs are drawn from a
    generator of their own."""
    found = hashlib.sha256()
    for seed in range(200):
        world = World(seed, None)
        world.loop.close()
        nodes = [(node.name, node.clock._skew, node.clock._drift) for node in (*world.workers, *world.clients)]
        drawn = (world.plan, world.programs, world.roots, world.latency, nodes, world.workers[0].options)
        found.update(repr(drawn).encode())
    assert found.hexdigest() == "f631e0f5f94384603b03babae5b9d62dbbc57e722b6f171c8605bf7b1bc05df5"


def digest_of_worlds(first: str, last: str) -> None:
    """For a process of its own."""
    print(" ".join(simulate(seed).digest for seed in range(int(first), int(last))), flush=True)


def test_the_same_seed_gives_the_same_trace_under_every_hash_seed() -> None:
    """A world that failed can be run again, in any process. FAULTS 5.9, O26."""
    seeds = [{"PYTHONHASHSEED": seed} for seed in ("0", "1", "4711")]
    digests = first_lines("sim.test_simulator:digest_of_worlds", "0", "40", environments=seeds)
    assert digests[0].count(" ") == 39
    assert digests == [digests[0]] * 3


def test_a_plan_survives_the_command_line() -> None:
    import random

    for seed in range(50):
        plan = plans.draw(random.Random(seed), 3, 12.0)
        assert parse(text_of(plan)) == plan or not plan
        assert simulate(seed, parse(text_of(simulate(seed).plan))).digest == simulate(seed).digest if seed < 5 else True


def test_a_plan_is_shrunk_to_what_is_needed() -> None:
    plan = tuple(Fault("before", n) for n in range(1, 60))
    assert shrink(plan, lambda faults: {7, 31} <= {int(fault.at) for fault in faults}) == (plan[6], plan[30])
    assert shrink(plan, lambda faults: True) == ()


def test_a_failing_seed_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from perdure.store.memory.tables import Run

    monkeypatch.setattr(Run, "accepts", lambda self, turn: True)
    failed = next(report for report in map(simulate, range(200)) if report.problem)
    text = explain(failed)
    assert f"make sim SEED={failed.seed}" in text
    assert "PLAN=" in text
    assert failed.problem in text


def test_a_report_tells_what_it_saw() -> None:
    report = simulate(1)
    assert isinstance(report, Report)
    assert report.runs >= 1
    assert report.records > 0
