"""Mutants of the SQL of PostgreSQL: where they are put in place of the statements, and what may catch them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from psycopg import pq

from mutations.sql_catching import Statements
from mutations.sql_equivalents_postgres import claims_of
from perdure.kernel.definitions import EventPolicy
from perdure.store.model import Status
from perdure.store.postgres import PostgresStore, batches
from perdure.store.postgres.connection import Connection
from perdure.store.postgres.queries import SQL
from perdure.testing.store import CHECKS, Check, World
from perdure.testing.store.kit import SHARED
from stores import test_postgres_claims, test_postgres_lane, test_postgres_lock_order, test_postgres_races
from stores.store_kit import crash
from support import kept_sessions
from support.postgres import server

_TRUE: Final = b"t"


class PostgresBackend:
    """Each directory stands for a schema. Its sessions are kept from check to check, with the mutant in place."""

    sql = SQL
    die = staticmethod(crash)

    def __init__(self) -> None:
        # Now, and not in the middle of `in_place`, which takes back what it has replaced.
        kept_sessions.install()
        self._schemas: dict[Path, str] = {}
        #: What kept sessions have prepared that differs from the store's statements.
        self._changed: Mapping[str, str] = {}

    @contextmanager
    def in_place(self, statements: Statements) -> Iterator[None]:
        self._change(statements.changed)
        run, prepare, batches_of = Connection.run, Connection.prepare, batches.batches_of

        def noted(self: Connection, sql: str, parameters: Sequence[Any] = ()) -> Any:
            name = statements.note(sql)
            if not statements.is_mutated and name:
                statements.broken += [f"{name}: {claim}" for claim in broken_claims(self, name)]
            return run(self, sql, parameters)

        def noted_batches(*arguments: Any) -> Any:
            found = batches_of(*arguments)
            for batch in found:
                statements.note(batches.STATEMENTS[batch.name])
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "run", noted)
            patch.setattr(
                Connection,
                "prepare",
                lambda self, name, sql: prepare(self, name, statements.instead_of(sql)),
            )
            patch.setattr(batches, "batches_of", noted_batches)
            yield

    def _change(self, changed: Mapping[str, str]) -> None:
        if changed != self._changed:
            kept_sessions.prepare_again({**{sql: sql for sql in self._changed}, **changed})
            self._changed = changed

    def store(self, directory: Path) -> PostgresStore:
        if directory not in self._schemas:
            self._schemas[directory] = server().fresh_schema(keep_sessions=True)
        return PostgresStore(server().url(self._schemas[directory]))

    def forget(self, directory: Path) -> None:
        for known in [one for one in self._schemas if one.is_relative_to(directory)]:
            del self._schemas[known]
        server().give_back_all()

    def close(self) -> None:
        """The server ends with the process."""
        self._change({})


def broken_claims(connection: Connection, name: str) -> Iterator[str]:
    """Which reasons for equivalent mutants of a statement do not hold in the data that it is about to see."""
    for claim in claims_of(name):
        result = connection.pq.exec_params(claim.encode(), [], None, [], pq.Format.TEXT)
        if result.ntuples and result.get_value(0, 0) != _TRUE:
            yield claim


def _of_a_schema(test: Callable[..., None], *arguments: Any) -> Callable[[World], None]:
    return lambda world: test(*arguments, schema=server().fresh_schema())


def _alone(test: Callable[..., None], *arguments: Any) -> Callable[[World], None]:
    return lambda world: test(*arguments)


def _in_the_lane(kind: str, status: Status, owned: bool) -> None:
    test_postgres_lane.test_plain_turns_are_committed_by_the_lane_alone(kind, status, owned, sent=[kind])


def _at_a_place() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_postgres_lane.test_a_place_where_another_run_is_by_now(patch)


_RACES, _ORDER, _CLAIMS = test_postgres_races, test_postgres_lock_order, test_postgres_claims
#: What several processes do at once; the suite has one at a time.
_TESTS: Final = {
    "news-race": _of_a_schema(_RACES.test_news_has_what_was_written_before_it_was_read_and_committed_afterwards),
    "news-once": _of_a_schema(_RACES.test_news_that_nobody_disturbs_is_told_once),
    "release-race": _of_a_schema(_RACES.test_a_run_that_is_released_while_an_item_arrives_is_due_at_once),
    "arrival-race": _of_a_schema(_RACES.test_an_item_that_arrives_while_its_run_is_released_makes_it_due_at_once),
    "reap-race": _of_a_schema(_RACES.test_a_dead_workers_run_that_is_freed_while_an_item_arrives_is_due_at_once),
    **{
        f"{name}-{kind}": _of_a_schema(test, policy)
        for kind, policy in (("single", EventPolicy()), ("shared", SHARED))
        for name, test in (
            ("publish-race", _RACES.test_an_event_published_while_a_run_begins_to_wait_reaches_it),
            ("wait-race", _RACES.test_a_run_that_begins_to_wait_while_an_event_is_published_gets_it),
        )
    },
    **{
        f"lane-{kind}-{status}-{owned}": _alone(_in_the_lane, kind, status, owned)
        for kind, status, owned in test_postgres_lane.CASES
    },
    "lock-order": _alone(_ORDER.test_runs_are_locked_by_key, _ORDER.sending),
    "share": _alone(_CLAIMS.test_a_worker_leaves_the_others_their_share),
    "marks": _alone(_CLAIMS.test_a_look_begins_where_the_last_one_ended_and_now_and_then_at_the_start),
    "due-later": _alone(_CLAIMS.test_a_run_that_is_due_later_is_found_when_it_is_due),
    "many-turns": _alone(_CLAIMS.test_a_run_with_many_turns_is_found_by_its_place_also_after_an_event_moved_it),
}


def _with_many_turns(check: Check) -> Check:
    """As if every run had had hundreds of turns."""

    def run(world: World) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches, "_MANY_TURNS", 0)
            check(world)

    return Check(f"many-turns-{check.id}", run)


ALL_ON_POSTGRES: Final = (
    *CHECKS,
    *(Check(name, test) for name, test in _TESTS.items()),
    *(_with_many_turns(check) for check in test_postgres_lane.FENCED),
    Check("place", lambda world: _at_a_place()),
)
