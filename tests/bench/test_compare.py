"""Two checkouts are compared by turns, by the ratio of their medians, and only by rounds that both did."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.compare import DEFAULT, Line, Side, by_turns, lines, measure, stores_of, table, troubles
from bench.figures import Outcome, Range, Sample
from bench.systems import PERDURE, PERDURE_MEMORY, ROOT
from bench.workloads import ALL, EMPTY, JOURNAL, PAYLOAD, REPLAY, SEQ, Workload
from rich.console import Console

from bench import compare

THIS, OTHER = Side("this", Path("/this")), Side("other", Path("/other"))


def _samples(side: Side, workload: Workload, *values: float) -> list[Sample]:
    """One for each round: a rate, or milliseconds where less is better. A value of 0 stands for a failure."""
    raws = [
        {"count": value, "seconds": 1.0} if workload.better == "higher" else {"samples_ms": [value]} for value in values
    ]
    return [
        Sample(side.called(PERDURE), workload.name, number, {}, raw=raw)
        if values[number]
        else Sample(side.called(PERDURE), workload.name, number, {}, failed="no answer in 60 s")
        for number, raw in enumerate(raws)
    ]


def _line(workload: Workload, ours: tuple[float, ...], theirs: tuple[float, ...]) -> Line:
    outcome = Outcome([*_samples(THIS, workload, *ours), *_samples(OTHER, workload, *theirs)])
    (line,) = lines(outcome, THIS, OTHER, [workload])
    return line


def test_the_ratio_is_that_of_the_medians() -> None:
    """Not the median of the ratios: one round in which the machine slept does not count."""
    line = _line(SEQ, (100.0, 95.0, 10.0), (100.0, 100.0, 100.0))
    assert line.ratio == pytest.approx(0.95)
    assert line.rounds.values == (1.0, 0.95, 0.1)


def test_a_figure_of_which_less_is_better_is_turned_round() -> None:
    """Twice as many milliseconds are half as fast."""
    assert _line(EMPTY, (2.0, 2.0, 2.0), (1.0, 1.0, 1.0)).ratio == pytest.approx(0.5)


def test_a_round_that_one_side_did_not_do_counts_for_neither() -> None:
    line = _line(SEQ, (100.0, 0, 300.0), (100.0, 1.0, 100.0))
    assert line.ours.values == (100.0, 300.0)
    assert line.theirs.values == (100.0, 100.0)


def test_what_a_side_never_did_has_no_line_and_a_reason() -> None:
    outcome = Outcome([*_samples(THIS, SEQ, 1.0, 1.0), *_samples(OTHER, SEQ, 0, 0)])
    assert list(lines(outcome, THIS, OTHER, [SEQ])) == []
    assert troubles(outcome) == ["seq, other: perdure: no answer in 60 s"]


def test_a_workload_with_several_figures_has_a_line_for_each() -> None:
    def raw(small: float, large: float) -> dict[str, dict[str, float]]:
        return {"2k": {"count": small, "seconds": 1.0}, "20k": {"count": large, "seconds": 1.0}}

    samples = [
        Sample(THIS.called(PERDURE), "payload", 0, {}, raw=raw(10.0, 9.0)),
        Sample(OTHER.called(PERDURE), "payload", 0, {}, raw=raw(5.0, 10.0)),
    ]
    found = {line.workload: line.ratio for line in lines(Outcome(samples), THIS, OTHER, [PAYLOAD])}
    assert found == {"payload 2k": 2.0, "payload 20k": 0.9}


def test_the_sides_take_turns_in_going_first() -> None:
    assert [by_turns((THIS, OTHER), number)[0].name for number in range(4)] == ["this", "other", "this", "other"]


def test_both_stores_are_compared_unless_memory_cannot_do_it() -> None:
    assert stores_of(SEQ) == (PERDURE, PERDURE_MEMORY)
    assert stores_of(REPLAY) == (PERDURE,)
    assert stores_of(JOURNAL) == (PERDURE,)


def test_only_what_uses_the_inside_of_perdure_is_driven_by_its_own_adapter() -> None:
    assert (OTHER.place(SEQ).adapters, OTHER.place(JOURNAL).adapters) == (ROOT, OTHER.root)
    assert OTHER.place(SEQ).source == OTHER.place(JOURNAL).source == OTHER.root / "src"
    assert [name for name in DEFAULT if ALL[name].inside] == ["journal"]


def test_a_checkout_is_measured_beside_itself(tmp_path: Path) -> None:
    """Everything for real once, with tiny counts; the other is this one by another path."""
    link = tmp_path / "other"
    link.symlink_to(ROOT)
    sides = Side("this", ROOT), Side("other", link)
    outcome = measure(sides, [SEQ, PAYLOAD], 2, lambda workload: workload.tiny)
    assert troubles(outcome) == []
    asked = [(sample.round, sample.workload, sample.system) for sample in outcome.samples]
    assert asked[:4] == [
        (0, "seq", f"{side}: {store}") for store in ("perdure", "perdure-memory") for side in ("this", "other")
    ]
    assert asked[8][2] == "other: perdure"
    found = list(lines(outcome, *sides, [SEQ, PAYLOAD]))
    assert [(line.workload, line.store) for line in found] == [
        ("seq", PERDURE.title),
        ("seq", PERDURE_MEMORY.title),
        ("payload 2k", PERDURE.title),
        ("payload 20k", PERDURE.title),
        ("payload 2k", PERDURE_MEMORY.title),
        ("payload 20k", PERDURE_MEMORY.title),
    ]
    assert all(len(line.ours.values) == len(line.theirs.values) == 2 for line in found)


def test_a_folder_without_perdure_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    """Python would take the installed one instead, and compare this checkout with itself."""
    with pytest.raises(SystemExit, match="is no checkout of perdure"):
        compare.main([str(tmp_path)])


def test_the_table_shows_the_ratio_with_two_places() -> None:
    console = Console(width=160, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as shown:
        console.print(table([Line("seq", "perdure, SQLite", "steps/s", Range((95.0,)), Range((100.0,)), "higher")]))
    assert "0.95" in shown.get()
