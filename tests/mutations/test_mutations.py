"""Every bug of the list is caught: otherwise the simulator and the suite would be decoration."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from mutations.catching import seeds_needed, test_fails
from mutations.fences import weakened_fences
from mutations.mutations import MUTATIONS, SIMULATOR, Mutation, applied
from perdure.engine import turns
from perdure.kernel import advance
from support.lives import STORES
from support.postgres import server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mutations.md"

#: FAULTS 5.9: each within ten thousand seeds.
SEEDS_MAX = 10_000

BY_SIMULATOR = [one for one in MUTATIONS if one.caught_by == SIMULATOR]
FENCES = list(weakened_fences())
#: Most are shown by one of the first ten.
FENCE_SEEDS_MAX = 200
BY_TESTS = [one for one in MUTATIONS if one.caught_by != SIMULATOR]
#: Of those on PostgreSQL every so manieth is tried here, two seconds each; all of them by `make mutants`.
EVERY_ON_POSTGRES = 4
ON_POSTGRES = [one for one in BY_TESTS if one.needs_postgres]
LEFT_OUT = [] if "PERDURE_ALL_MUTATIONS" in os.environ else [
    one for place, one in enumerate(ON_POSTGRES) if place % EVERY_ON_POSTGRES
]  # fmt: skip


@pytest.mark.parametrize("mutation", BY_SIMULATOR, ids=lambda one: one.name)
def test_the_simulator_catches(mutation: Mutation) -> None:
    """Each of these mutations of the code is found by some simulated world. FAULTS 5.9."""
    assert seeds_needed(mutation, SEEDS_MAX) is not None


@pytest.mark.parametrize("mutation", FENCES, ids=lambda one: one.name)
def test_the_simulator_catches_a_weakened_fence(mutation: Mutation) -> None:
    """FAULTS 5.9: in worlds on SQLite, where turns come too late by every route."""
    assert seeds_needed(mutation, FENCE_SEEDS_MAX) is not None


def test_every_fence_is_weakened_in_every_condition() -> None:
    """Of turns alone (open, end, continue), of one from step to step, and of those in groups, but for `continue_as`."""
    usual = {"epoch", "generation", "next_seq", "status"}
    found: dict[str, set[str]] = {}
    for one in FENCES:
        place, _, column = one.name.rpartition("-")
        found.setdefault(place, set()).add(column)
    assert found == {
        "advance_run-1": usual, "finish_run-1": usual, "continue_run-1": usual, "step_trigger-1": usual,
        "bulk_trigger-1": usual, "bulk_trigger-2": usual, "bulk_trigger-3": usual | {"last_item", "watched"},
    }  # fmt: skip


@pytest.mark.parametrize("mutation", [one for one in BY_TESTS if one not in LEFT_OUT], ids=lambda one: one.name)
def test_the_suite_catches(mutation: Mutation) -> None:
    """FAULTS 5.9: the test named fails with the bug in; that it passes without is what the suite shows."""
    if mutation.needs_postgres and "postgres" not in STORES:
        pytest.skip("PostgreSQL is left out of this run")
    if mutation.needs_postgres:
        server()  # so that the process of the test finds it
    assert test_fails(mutation)


def test_a_mutation_that_went_stale_is_noticed() -> None:
    stale = MUTATIONS[0]._replace(old="this is not in the source")
    with pytest.raises(AssertionError, match="up to date"), applied(stale):
        pass


def test_a_mutation_is_in_every_module_that_imported_the_function() -> None:
    """Otherwise it would not be carried out, and nothing could catch it."""
    before = turns.advance
    one = next(one for one in MUTATIONS if one.where == "kernel.advance:advance")
    with applied(one):
        assert turns.advance is advance.advance is not before
    assert turns.advance is advance.advance is before


def test_the_page_lists_every_mutation() -> None:
    """At least thirty, each with where it is and what catches it."""
    rows = re.findall(r"^\| ([a-z-]+) \| (.+?) \| `(.+?)` \| `?(.+?)`? \| ", PAGE.read_text(encoding="utf-8"), re.M)
    listed = [(name, bug, where, caught) for name, bug, where, caught in rows if name != "mutation"]
    expected = [(one.name, one.bug, one.where.partition(":")[2], one.caught_by) for one in MUTATIONS]
    assert listed == expected
    assert len(listed) >= 30
