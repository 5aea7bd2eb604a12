"""The fences of PostgreSQL: each is mutated in each condition, and here a part of the mutants is tried; all of them:
`make mutants`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from mutations.sql_catching import Catcher
from mutations.sql_catching_postgres import PostgresBackend
from mutations.sql_equivalents_postgres import EQUIVALENT_ON_POSTGRES
from mutations.sql_mutants import POSTGRES, Mutant, fences, mutants
from perdure.store.postgres.queries import SQL
from perdure.testing.store import CHECKS
from support.lives import STORES
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")

ALL = fences(SQL, POSTGRES)
#: By which all commits pass.
COMMITS = (
    "advance_run", "finish_run", "continue_run", "lane_step", "lane_steps", "lane_step_seek", "lane_step_here",
    "lane_turns", "lane_ends",
)  # fmt: skip
#: Routes that reach most of them.
ROUTES = ("alone", "among steps", "among plain turns", "among ends")
#: Of a statement that commits, every so manieth mutant is tried here.
EVERY = 12
#: What only sends turns the general way is a matter of `stores.test_postgres_lane`.
_SLOWER = ("not ", "never ", "IS NOT NULL in", "always count", "<= in count", "keeps ")
#: Of runs with hundreds of turns: those of the suite have a few.
_OF_LONG_RUNS = ("lane_step_seek", "lane_step_here")

LATE = [check for check in CHECKS if check.id.startswith("late-a_late_turn_is_refused_alone")]
QUICK = [one for one in LATE if any(f"{name}]" in one.id for name in ROUTES)]
SAMPLE = [
    one
    for one in ALL
    if one.statement in COMMITS
    and one.statement not in _OF_LONG_RUNS
    and one.id not in EQUIVALENT_ON_POSTGRES
    and not one.change.startswith(_SLOWER)
    and "next_seq (no." not in one.change
    and "> next_seq" not in one.change
][::EVERY]


def test_every_place_of_a_fence_is_mutated() -> None:
    """Of each statement that commits a turn: key, epoch, generation, position, status, and whose the run is."""
    for statement in COMMITS:
        changes = [one.change for one in ALL if one.statement == statement]
        for column in ("key", "epoch", "generation", "next_seq", "status"):
            found = [change for change in changes if change.startswith((f"always {column} ", f"always r.{column} "))]
            assert len(found) == 1, (statement, column)
        assert sum(change.startswith(("always (owner =", "always (r.owner =")) for change in changes) == 1


def test_mutants_are_sql() -> None:
    """One that PostgreSQL refuses would be caught by anything."""
    schema = server().fresh_schema()
    refused: list[str] = []
    with psycopg.connect(server().admin_url, autocommit=True) as connection:
        connection.execute(f'SET search_path TO "{schema}"')
        for one in mutants(SQL, POSTGRES):
            prepared = connection.pgconn.prepare(b"", one.text.encode())
            if prepared.status != psycopg.pq.ExecStatus.COMMAND_OK:
                refused.append(f"{one.id}: {prepared.error_message.decode()}")
    assert refused == []


def test_the_mutants_that_change_nothing_are_mutants() -> None:
    """So that the list of reasons does not outlive what it is about."""
    assert EQUIVALENT_ON_POSTGRES.keys() - {one.id for one in ALL} == set()


@pytest.fixture(scope="module")
def catcher() -> Iterator[Catcher]:
    catcher = Catcher(QUICK, PostgresBackend())
    yield catcher
    catcher.close()


@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: mutant.id)
def test_the_store_suite_catches(mutant: Mutant, catcher: Catcher) -> None:
    """Laws 6 and 7: a fence with a hole lets a late turn in, and some check sees it."""
    assert catcher.caught_by(mutant) is not None
