"""Whether a bar is reached is computed from the figures."""

from __future__ import annotations

import pytest
from bench.bars import Verdict, judge_all, number
from bench.figures import Figures, Sample
from bench.systems import DBOS_SQLITE, RESTATE

from support.made_up_figures import figures, rate, sample


def _verdict(of: Figures, what: str) -> Verdict:
    (found,) = [one for one in judge_all(of, [DBOS_SQLITE, RESTATE]) if one.what == what]
    return found


@pytest.mark.parametrize(("per_second", "reached"), [(751.0, True), (750.0, True), (749.0, False)])
def test_a_rate_reaches_its_bar_at_the_bar(per_second: float, reached: bool) -> None:
    verdict = _verdict(figures(rate("perdure", "seq", per_second, bare=1_000.0)), "seq, the harder bar")
    assert verdict.reached is reached
    assert verdict.mark == ("reached" if reached else "NOT reached")


@pytest.mark.parametrize(("milliseconds", "reached"), [(2.29, True), (2.31, False)])
def test_an_empty_run_may_take_two_bare_commits_and_a_bit(milliseconds: float, reached: bool) -> None:
    verdict = _verdict(
        figures(sample("perdure", "empty", {"samples_ms": [milliseconds]}, bare_ms=1.0)),
        "empty: p50 beyond two bare commits",
    )
    assert verdict.reached is reached


def test_the_median_of_the_rounds_decides() -> None:
    samples = [rate("perdure", "seq", value, number=round_) for round_, value in enumerate([100.0, 800.0, 900.0])]
    assert _verdict(figures(*samples), "seq, the harder bar").reached is True


def test_what_was_not_measured_is_not_judged() -> None:
    verdicts = judge_all(figures(), [DBOS_SQLITE])
    assert verdicts
    assert {verdict.reached for verdict in verdicts} == {None}


def test_a_bar_is_not_judged_by_smaller_counts() -> None:
    """Rebuilding ten records is no rebuilding of ten thousand."""
    small = Sample("perdure", "journal", 0, {"steps": 10}, raw={"count": 10, "seconds": 0.0001})
    verdict = _verdict(figures(small), "journal: rebuilding a run of 10,000 steps")
    assert verdict.reached is None
    assert "smaller counts" in verdict.found


def test_five_times_dbos_is_asked_of_seq() -> None:
    slow = figures(rate("perdure", "seq", 490.0), rate("dbos-sqlite", "seq", 100.0))
    fast = figures(rate("perdure", "seq", 510.0), rate("dbos-sqlite", "seq", 100.0))
    assert _verdict(slow, "seq: beside DBOS, SQLite").reached is False
    assert _verdict(fast, "seq: beside DBOS, SQLite").reached is True


def test_ahead_of_a_peer_means_on_every_workload() -> None:
    what = "every workload: ahead of Restate"
    ahead = (rate("perdure", "seq", 200.0), rate("restate", "seq", 100.0))
    behind = (rate("perdure", "children", 99.0), rate("restate", "children", 100.0))
    assert _verdict(figures(*ahead), what).reached is True
    verdict = _verdict(figures(*ahead, *behind), what)
    assert verdict.reached is False
    assert verdict.found == "1 of 2; narrowest children, 0.99 x"


@pytest.mark.parametrize(
    ("value", "text"), [(12_345.6, "12,346"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.012")]
)
def test_three_figures_are_shown(value: float, text: str) -> None:
    assert number(value) == text
