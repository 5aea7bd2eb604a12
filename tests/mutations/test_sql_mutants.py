"""Each condition of each fence in the SQL matters to some check. Here a part of the mutants, in some seconds; all of
them, against everything: `make mutants`."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from mutations.sql_catching import Catcher, prepares
from mutations.sql_equivalents import EQUIVALENT
from mutations.sql_mutants import Mutant, fences, mutants
from perdure.store.sqlite.migrate import MIGRATIONS
from perdure.store.sqlite.queries import SQL
from perdure.testing.store import CHECKS

#: By which nearly all commits pass.
COMMITS = ("advance_run", "finish_run", "continue_run", "bulk_trigger", "step_trigger")
#: The routes that reach them, one each.
ROUTES = ("alone", "among steps", "among plain turns", "among ends")
#: Of a statement that commits, every so manieth mutant is tried here.
EVERY = 6

LATE = [check for check in CHECKS if check.id.startswith("late-")]
QUICK = [one for one in LATE if "[" not in one.id or any(f"{name}]" in one.id for name in ROUTES)]
#: What sends turns another way: a matter of `stores.fast_path`.
_SLOWER = ("not ", "never owner = NEW.worker", "never owner IS NULL", "IS NOT NULL in owner IS NULL")
SAMPLE = [one for one in fences() if one.statement in COMMITS and one.id not in EQUIVALENT]
SAMPLE = [one for one in SAMPLE if not one.change.startswith(_SLOWER)][::EVERY]  # `stores.fast_path` is for those


def test_every_condition_is_mutated() -> None:
    """A condition is weakened as a whole, by its comparison, by its list, and by what is set for others to see."""
    text = (
        "UPDATE runs SET epoch = epoch + 1, reason = ?1 WHERE key = ?2 AND (owner IS NULL OR ready_at < ?3)"
        " AND status IN ('pending', 'running') AND NOT EXISTS (SELECT 1 FROM inbox WHERE run_key = key)"
    )
    changes = {one.change for one in mutants({"made_up": text})}
    assert changes >= {
        "keeps epoch = epoch + 1", "always key = ?2", ">= in key = ?2", "<= in key = ?2",
        "always (owner IS NULL OR ready_at < ?3)", "never owner IS NULL", "IS NOT NULL in owner IS NULL",
        "never ready_at < ?3", "<= in ready_at < ?3", "always status IN ('pending', 'running')",
        "not 'pending' in status IN ('pending', 'running')", "also 'paused' in status IN ('pending', 'running')",
        "always run_key = key",
    }  # fmt: skip
    assert not any("reason" in change for change in changes)


def test_every_place_of_a_fence_is_mutated() -> None:
    """Of each UPDATE that commits a turn, three of them in the trigger for many: key, epoch, generation, position,
    status; and what keeps an end from the fast path."""
    places = dict.fromkeys(COMMITS, 1) | {"bulk_trigger": 3}
    for statement, count in places.items():
        changes = [one.change.partition(" (no. ")[0] for one in fences() if one.statement == statement]
        for column in ("key", "epoch", "generation", "next_seq"):
            found = [
                change for change in changes if change.startswith((f"always {column} =", f"always runs.{column} ="))
            ]
            assert len(found) == count, (statement, column)
        assert changes.count("always status IN ('pending', 'running', 'waiting')") == count
    assert {"bulk_trigger: always last_item = 0", "bulk_trigger: always watched = 0"} <= {one.id for one in fences()}


def test_mutants_are_sql() -> None:
    """One that SQLite refuses would be caught by anything."""
    connection = apsw.Connection(":memory:")
    for _, migration in MIGRATIONS:
        connection.execute(migration).fetchall()
    for view in ("bulk_view", "step_view"):
        connection.execute(SQL[view])
    assert [one.id for one in mutants() if not prepares(one, connection)] == []
    connection.close()


def test_the_mutants_that_change_nothing_are_mutants() -> None:
    """So that the list of reasons does not outlive what it is about."""
    assert EQUIVALENT.keys() - {one.id for one in fences()} == set()


@pytest.fixture(scope="module")
def catcher() -> Iterator[Catcher]:
    catcher = Catcher(QUICK)
    yield catcher
    catcher.close()


@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: mutant.id)
def test_the_store_suite_catches(mutant: Mutant, catcher: Catcher) -> None:
    """Laws 6 and 7: a fence with a hole lets a late turn in, and some check sees it."""
    assert catcher.caught_by(mutant) is not None
