"""Samples become medians, ranges and ratios in the way that the page says."""

from __future__ import annotations

import pytest
from bench.figures import figures_of, percentile
from bench.workloads import EMPTY, SEQ

from support.made_up_figures import figures, rate, sample, whole


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 3.0, 5.0, 5.0]
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([1.0, 2.0], 0.5) == 1.0


def test_the_median_and_the_range_are_over_the_rounds() -> None:
    found = whole().range("perdure", "seq")
    assert found is not None
    assert (found.low, found.median, found.high) == (700.0, 800.0, 900.0)


def test_a_rate_is_compared_with_the_bare_commits_beside_it_and_not_with_others() -> None:
    found = figures(
        rate("perdure", "seq", 500.0, bare=1_000.0), rate("perdure", "seq", 500.0, number=1, bare=500.0)
    ).to_bare("perdure", "seq")
    assert found is not None
    assert found.values == (0.5, 1.0)


def test_how_many_times_better_is_asked_round_by_round() -> None:
    found = whole().advantage("perdure", "dbos-sqlite", SEQ)
    assert found is not None
    assert found.values == (8.0, 10.0, 5.0)


def test_less_time_is_better_for_a_latency() -> None:
    both = figures(
        sample("perdure", "empty", {"samples_ms": [2.0]}), sample("dbos-sqlite", "empty", {"samples_ms": [10.0]})
    )
    found = both.advantage("perdure", "dbos-sqlite", EMPTY)
    assert found is not None
    assert found.median == 5.0


def test_rounds_that_only_one_of_them_did_are_not_compared() -> None:
    both = figures(rate("perdure", "seq", 500.0), rate("dbos-sqlite", "seq", 50.0, number=1))
    assert both.advantage("perdure", "dbos-sqlite", SEQ) is None


@pytest.mark.parametrize(
    ("system", "workload", "reason"),
    [
        ("dbos-sqlite", "empty", "does not do this: it <never> ends | or does it"),
        ("dbos-sqlite", "many", "failed: no answer in 5 s"),
        ("restate", "seq", "not installed: npm is not there"),
        ("perdure", "seq", ""),
    ],
)
def test_what_is_missing_has_a_reason(system: str, workload: str, reason: str) -> None:
    assert whole().why_not(system, workload) == reason


def test_a_crowd_is_judged_by_pairs_that_were_measured_after_each_other() -> None:
    """A machine that became four times slower in between is no growth."""
    probes = {"few": [{"step_us": 100.0}, {"step_us": 400.0}], "many": [{"step_us": 110.0}, {"step_us": 440.0}]}
    assert figures_of("crowd", probes)["growth"] == pytest.approx(1.1)


def test_timers_due_at_once_are_compared_per_timer() -> None:
    raw = {
        "quarters": [
            {"count": 100, "late_ms": 40.0, "peak_mb": 39.0},
            {"count": 100, "late_ms": 60.0, "peak_mb": 41.0},
        ],
        "all": {"count": 400, "late_ms": 300.0, "peak_mb": 41.0},
    }
    found = figures_of("due", raw)
    assert found["per_timer_growth"] == pytest.approx(1.5)
    assert found["bytes_each"] == pytest.approx(2**20 / 300)
