"""The driver runs every workload of perdure, and survives whatever an adapter does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.driver import Driver, _converse
from bench.figures import Figures
from bench.systems import OWN, PERDURE, PERDURE_MEMORY, SYSTEMS
from bench.workloads import ALL, RECOVER, SEQ, SHARED


def test_every_workload_gives_its_figure(tmp_path: Path) -> None:
    """All in one go, since most of the time is that of starting processes."""
    outcome = Driver(tmp_path, "tiny").run([PERDURE], list(ALL.values()), rounds=1)
    troubles = {sample.workload: sample.refused or sample.failed for sample in outcome.samples if sample.raw is None}
    assert troubles == {}
    figures = Figures(outcome)
    for name in ALL:
        found = figures.range("perdure", name)
        assert found is not None, name
        assert found.median >= 0, name
    # Before the first, between any two and after the last; each rate is compared with its two neighbours.
    assert len(outcome.bare) == len(ALL) + 1
    for index, sample in enumerate(outcome.samples):
        assert sample.bare == pytest.approx(sum(outcome.bare[index : index + 2]) / 2)


def test_every_round_measures_all_systems_and_the_limits_anew(tmp_path: Path) -> None:
    kept: list[int] = []
    driver = Driver(tmp_path, "tiny", keep=lambda outcome: kept.append(len(outcome.samples)))
    outcome = driver.run(OWN, [SEQ], rounds=2)
    seen = [(sample.round, sample.system) for sample in outcome.samples]
    assert seen == [(number, system.name) for number in (0, 1) for system in OWN]
    assert {len(values) for values in outcome.limits.values()} == {2}
    # Each is measured after one system and serves the next as the one before.
    assert len(outcome.bare) == 2 * (len(OWN) + 1)
    assert kept == [len(OWN), 2 * len(OWN)]


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
