"""The driver runs every workload of perdure, and survives whatever an adapter does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.driver import Driver, _converse
from bench.figures import Figures
from bench.systems import OWN, PERDURE, PERDURE_MEMORY, SYSTEMS
from bench.workloads import ALL, RECOVER, SEQ, SHARED


@pytest.mark.parametrize("name", list(ALL))
def test_every_workload_gives_its_figure(name: str, tmp_path: Path) -> None:
    outcome = Driver(tmp_path, "tiny", lambda _line: None).run([PERDURE], [ALL[name]], rounds=1)
    (sample,) = outcome.samples
    assert (sample.refused, sample.failed) == ("", "")
    found = Figures(outcome).range("perdure", name)
    assert found is not None
    assert found.median >= 0
    # Before and after, since no other workload stands between.
    assert len(outcome.bare) == 2
    assert sample.bare == pytest.approx(sum(outcome.bare) / 2)


def test_every_round_measures_all_systems_and_the_limits_anew(tmp_path: Path) -> None:
    outcome = Driver(tmp_path, "tiny", lambda _line: None).run(OWN, [SEQ], rounds=2)
    seen = [(sample.round, sample.system) for sample in outcome.samples]
    assert seen == [(number, system.name) for number in (0, 1) for system in OWN]
    assert {len(values) for values in outcome.limits.values()} == {2}
    # Each is measured after one system and serves the next as the one before.
    assert len(outcome.bare) == 2 * (len(OWN) + 1)


def test_what_a_system_does_not_do_is_part_of_the_outcome(tmp_path: Path) -> None:
    outcome = Driver(tmp_path, "tiny", lambda _line: None).run([PERDURE_MEMORY], [RECOVER], rounds=1)
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
            assert counts.keys() == workload.counts.keys()
            # Fewer for a slow system, never more than for perdure.
            assert all(counts[name] <= workload.counts[name] for name in counts)
