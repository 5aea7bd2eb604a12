"""Every bug of the list is caught: otherwise the simulator and the suite would be decoration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mutations.catching import seeds_needed, test_fails
from mutations.mutations import MUTATIONS, SIMULATOR, Mutation, applied

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mutations.md"

#: FAULTS 5.9: each within ten thousand seeds.
SEEDS_MAX = 10_000

BY_SIMULATOR = [one for one in MUTATIONS if one.caught_by == SIMULATOR]
BY_TESTS = [one for one in MUTATIONS if one.caught_by != SIMULATOR]


@pytest.mark.parametrize("mutation", BY_SIMULATOR, ids=lambda one: one.name)
def test_the_simulator_catches(mutation: Mutation) -> None:
    """FAULTS 5.9."""
    assert seeds_needed(mutation, SEEDS_MAX) is not None


@pytest.mark.parametrize("mutation", BY_TESTS, ids=lambda one: one.name)
def test_the_suite_catches(mutation: Mutation) -> None:
    """FAULTS 5.9: the test named fails with the bug in; that it passes without is what the suite shows."""
    assert test_fails(mutation)


def test_a_mutation_that_went_stale_is_noticed() -> None:
    stale = MUTATIONS[0]._replace(old="this is not in the source")
    with pytest.raises(AssertionError, match="up to date"), applied(stale):
        pass


def test_the_page_lists_every_mutation() -> None:
    """At least thirty, each with where it is and what catches it."""
    rows = re.findall(r"^\| ([a-z-]+) \| (.+?) \| `(.+?)` \| `?(.+?)`? \| ", PAGE.read_text(encoding="utf-8"), re.M)
    listed = [(name, bug, where, caught) for name, bug, where, caught in rows if name != "mutation"]
    expected = [(one.name, one.bug, one.where.partition(":")[2], one.caught_by) for one in MUTATIONS]
    assert listed == expected
    assert len(listed) >= 30
