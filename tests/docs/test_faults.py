"""The page of faults says what the tests do: nothing is listed as covered that is not, and nothing is left out."""

from __future__ import annotations

from support.faults import PAGE, catalogue, coverage, named_in, page

#: Rows with a test that injects the fault. Only ever goes up.
COVERED_MIN = 120


def test_the_page_is_what_the_tests_say() -> None:
    """Stale after a test was added, renamed or removed: run `make faults`."""
    assert PAGE.read_text() == page()


def test_every_row_has_a_test_or_a_reason() -> None:
    """And no row has both: a reason that no longer holds is removed with the first test."""
    covered = coverage()
    assert [row.id for row in catalogue() if (row.id in covered) == bool(row.why_not)] == []


def test_no_test_names_a_row_that_is_not_there() -> None:
    assert set(coverage()) <= {row.id for row in catalogue()}


def test_the_catalogue_is_whole() -> None:
    """21 + 24 + 21 + 40 + 20 + 16 + 18 + 29 rows, numbered without a gap, and enough of them covered."""
    rows = [row.id for row in catalogue()]
    sizes = {"A": 21, "B": 24, "C": 21, "D": 40, "E": 20, "F": 16, "S": 18, "O": 29}
    assert rows == [f"{letter}{number}" for letter, size in sizes.items() for number in range(1, size + 1)]
    assert len(set(rows) & set(coverage())) >= COVERED_MIN


def test_ids_in_a_docstring_are_read_as_people_write_them() -> None:
    assert list(named_in("FAULTS A5, A9 to A11 and A17: text. CONFORMANCE C1")) == ["A5", "A9", "A10", "A11", "A17"]
    assert list(named_in("CONFORMANCE E1, FAULTS E2-E4; C7")) == ["E2", "E3", "E4"]
    assert list(named_in("FAULTS A: every commit. Rule 18")) == []
