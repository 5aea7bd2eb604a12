"""The driver runs every workload of perdure, and survives whatever an adapter does."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.driver import Driver, _converse
from bench.figures import Figures
from bench.systems import PERDURE, PERDURE_MEMORY, PERDURE_POSTGRESQL, PERDURE_RELAXED, SYSTEMS, System
from bench.workloads import ALL, MANY, RECOVER, SEQ, SHARED, Workload

from support.lives import STORES

COSTS = ("server_us", "wal_bytes", "hot")
ON_POSTGRESQL = pytest.mark.skipif("postgres" not in STORES, reason="PERDURE_TEST_STORES leaves PostgreSQL out")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the user who runs PostgreSQL for root can get into, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def _asked(system: System) -> list[Workload]:
    return [each for each in ALL.values() if not each.alone or system.name in each.systems]


@pytest.mark.parametrize(
    "system", [PERDURE, pytest.param(PERDURE_POSTGRESQL, marks=ON_POSTGRESQL)], ids=lambda s: s.name
)
def test_every_workload_gives_its_figure(system: System, place: Path) -> None:
    """All in one go, since most of the time is that of starting processes."""
    outcome = Driver(place, "tiny").run([system], list(ALL.values()), rounds=1)
    troubles = {sample.workload: sample.refused or sample.failed for sample in outcome.samples if sample.raw is None}
    assert troubles == {}
    figures = Figures(outcome)
    for workload in _asked(system):
        found = figures.range(system.name, workload.name)
        assert found is not None, workload.name
        assert found.median >= 0, workload.name
    # Before the first, between any two and after the last; each rate is compared with its two neighbours, which went to
    # the same place.
    bare, others = outcome.bare, outcome.bare_postgresql
    if system is PERDURE_POSTGRESQL:
        bare, others = others, bare
    assert len(bare) == len(_asked(system)) + 1
    assert not others
    for index, sample in enumerate(outcome.samples):
        assert sample.bare == pytest.approx(sum(bare[index : index + 2]) / 2)


@ON_POSTGRESQL
def test_many_says_what_the_server_spent_on_a_step(place: Path) -> None:
    """Its processor time, its WAL, and how many updates left the indexes alone."""
    outcome = Driver(place, "tiny").run([PERDURE_POSTGRESQL], [MANY], rounds=1)
    found = {name: Figures(outcome).range(PERDURE_POSTGRESQL.name, "many", name) for name in COSTS}
    assert all(range_ is not None and range_.median > 0 for range_ in found.values()), found
    wal = found["wal_bytes"]
    # A step is a row with its index entry, and a new version of another: less than a kilobyte, more than its own data.
    assert wal is not None
    assert 100 < wal.median < 5_000


@ON_POSTGRESQL
def test_what_shares_a_place_shares_the_bare_commits_between(place: Path) -> None:
    """Commits to SQLite say nothing about a system on PostgreSQL, nor the other way round."""
    outcome = Driver(place, "tiny").run([PERDURE, PERDURE_POSTGRESQL], [SEQ], rounds=2)
    assert (len(outcome.bare), len(outcome.bare_postgresql)) == (4, 4)
    for bare, name in ((outcome.bare, PERDURE.name), (outcome.bare_postgresql, PERDURE_POSTGRESQL.name)):
        means = [pytest.approx(sum(bare[start : start + 2]) / 2) for start in (0, 2)]
        assert [sample.bare for sample in outcome.samples if sample.system == name] == means


def test_every_round_measures_all_systems_and_the_limits_anew(tmp_path: Path) -> None:
    kept: list[int] = []
    driver = Driver(tmp_path, "tiny", keep=lambda outcome: kept.append(len(outcome.samples)))
    systems = (PERDURE, PERDURE_RELAXED, PERDURE_MEMORY)
    outcome = driver.run(systems, [SEQ], rounds=2)
    seen = [(sample.round, sample.system) for sample in outcome.samples]
    assert seen == [(number, system.name) for number in (0, 1) for system in systems]
    assert {len(values) for values in outcome.limits.values()} == {2}
    # Each is measured after one system and serves the next as the one before.
    assert len(outcome.bare) == 2 * (len(systems) + 1)
    assert kept == [len(systems), 2 * len(systems)]


def test_what_a_system_does_not_do_is_part_of_the_outcome(tmp_path: Path) -> None:
    outcome = Driver(tmp_path, "tiny").run([PERDURE_MEMORY], [RECOVER], rounds=1)
    (sample,) = outcome.samples
    assert sample.raw is None
    assert sample.refused == "nothing in memory survives the process"


def test_an_adapter_that_hangs_is_ended_and_said_to_have_hung() -> None:
    assert _converse([sys.executable, "-c", "import time; time.sleep(600)"], 0.5) == {"failed": "no answer in 0 s"}


def test_an_adapter_that_dies_is_quoted() -> None:
    answer = _converse([sys.executable, "-c", "raise ValueError('the disk is made of cheese')"], 60)
    assert answer == {"failed": "ValueError: the disk is made of cheese"}


def test_an_adapter_that_says_nothing_has_failed() -> None:
    assert _converse([sys.executable, "-c", ""], 60) == {"failed": "it ended without a word"}


def test_every_system_has_counts_for_every_workload() -> None:
    for workload in SHARED:
        for system in SYSTEMS:
            counts = workload.counts_for(system.name, "full")
            assert counts.keys() | {"times"} == workload.counts.keys() | {"times"}
            # Fewer for a slow system, never more than for perdure.
            assert all(counts[name] <= workload.counts[name] for name in counts)
