"""The statements themselves: all named, all used, the frequent ones on the index made for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import pytest

from perdure.store.model import CLAIMABLE
from perdure.store.sql import queries, rows, workers
from perdure.store.sqlite.migrate import MIGRATIONS
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session

SHARED = Path(queries.__file__).parent
FOLDER = SHARED.parent / "sqlite"
EXPECTED = {
    "claim_runs": "runs_due",
    "claim_trusted": "runs_suspect",
    "claim_suspects": "runs_suspect",
    "release_runs": "SEARCH runs USING INTEGER PRIMARY KEY",
    "let_go": "SEARCH runs USING INTEGER PRIMARY KEY",
    "runs_by_keys": "SEARCH runs USING INTEGER PRIMARY KEY",
    "free_runs": "runs_owned",
    "runs_held": "runs_owned",
    "ended_under_owner": "runs_ended_under_owner",
    "open_children": "runs_children",
    "inbox_takes": "inbox_of_run",
    "records": "journal_position",
    "list_open": "runs_open",
    "list_ended": "runs_ended",
    "list_children": "runs_children",
    "count_ended": "runs_ended",
    "next_spreading": "publications_spreading",
    "waiters": "waits_of_type",
    "free_publications": "publications_free",
    "acceptable_publications": "publications_free",
    "run_with_room": "waits_with_room",
    "waits_of_run": "PRIMARY KEY (run_key=?)",
    "count_unread": "inbox_of_run",
    "count_held": "inbox_of_run",
    "held_items": "inbox_of_run",
    "late_items": "inbox_expiring",
    "late_publications": "publications_expiring",
    "old_publications": "publications_by_age",
    "delete_replies": "PRIMARY KEY (request>? AND request<?)",
    "watchers": "PRIMARY KEY (target_key=?)",
    "list_by_prefix": "sqlite_autoindex_runs_1",
}


@pytest.fixture
def connection() -> apsw.Connection:
    made = apsw.Connection(":memory:")
    for _, migration in MIGRATIONS:
        made.execute(migration)
    return made


def test_every_statement_is_used_and_every_used_one_exists() -> None:
    code = "".join(path.read_text() for folder in (SHARED, FOLDER) for path in folder.glob("*.py"))
    assert set(re.findall(r'(?:SQL|\.sql)\["(\w+)"\]', code)) <= set(SQL)
    assert [name for name in SQL if f'"{name}"' not in code] == []


def test_every_statement_says_what_it_is_for() -> None:
    for part in (FOLDER / "queries.sql").read_text().split("-- name: ")[1:]:
        name, purpose = part.splitlines()[:2]
        assert purpose.startswith("-- "), name


def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="'a'"):
        queries.split("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n")


def test_fragments_are_put_in() -> None:
    text = "-- fragment: both\n-- Two.\na, b\n\n-- name: read\n-- Reads.\nSELECT {both} FROM t;\n"
    assert queries.split(text) == {"read": "SELECT a, b FROM t"}
    with pytest.raises(KeyError):
        queries.split("-- name: read\nSELECT {neither} FROM t;\n")


def test_claimable_statuses_are_written_once() -> None:
    """Everything that may be claimed, and nothing else; in the words of the partial indexes."""
    text = (FOLDER / "queries.sql").read_text()
    (written,) = re.findall(r"\('pending'[^)]*\)", text)
    assert set(re.findall(r"'(\w+)'", written)) == CLAIMABLE
    assert written in (FOLDER / "schema.sql").read_text()


@pytest.mark.parametrize(
    ("table", "columns"),
    [("runs", rows.StoredRun), ("inbox", rows.StoredItem), ("dead_letters", rows.StoredDeadLetter)],
)
def test_tables_are_read_by_the_names_of_their_columns(connection: apsw.Connection, table: str, columns: Any) -> None:
    found = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))]
    assert found == list(columns._fields)


@pytest.mark.parametrize(("name", "index"), EXPECTED.items())
def test_frequent_statements_use_their_index(connection: apsw.Connection, name: str, index: str) -> None:
    """A million ended runs cost a claim nothing."""
    sql = SQL[name]
    count = max([int(number) for number in re.findall(r"\?(\d+)", sql)] or [sql.count("?")])
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * count).fetchall()
    assert any(index in str(step[3]) for step in plan), plan


def _due(connection: apsw.Connection, count: int, recoveries: int) -> None:
    """Runs that anybody may claim."""
    connection.execute(
        "INSERT INTO runs (id, generation, workflow, version, status, epoch, ready_at, next_seq, created_at,"
        " updated_at, recoveries, input_digest, cancel_requested)"
        " SELECT format('%d-%d', ?2, value), 1, 'w', '1', 'waiting', 1, 5, 2, 0, 0, ?2, x'00', 0"
        " FROM generate_series(1, ?1)",
        (count, recoveries),
    )


def _work_of_a_claim(connection: apsw.Connection, trusted: int) -> tuple[int, int]:
    """How many runs a claim of up to ten, suspects among them, got; and how much SQLite did for it."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    connection.set_progress_handler(count, 10)
    claimed = workers.claim(Session(connection), "me", 5, 10, 1, (), trusted)
    connection.set_progress_handler(None)
    return len(claimed), steps


@pytest.mark.parametrize("trusted", [0, 1])
@pytest.mark.parametrize(("others", "suspects"), [(3_000, 0), (5, 3_000), (3_000, 3_000)])
def test_a_claim_looks_at_no_more_than_it_takes(
    connection: apsw.Connection, others: int, suspects: int, trusted: int
) -> None:
    """A hundred thousand timers due at once, or a worker that died with thousands, do not slow each claim."""
    apsw.ext.make_virtual_module(connection, "generate_series", apsw.ext.generate_series_sqlite)
    _due(connection, 10, recoveries=0)
    _due(connection, 10 * trusted, recoveries=trusted)
    _due(connection, 1, recoveries=trusted + 1)
    claimed, work = _work_of_a_claim(connection, trusted)
    assert claimed == 11
    connection.execute("DELETE FROM runs")
    _due(connection, others, recoveries=0)
    _due(connection, others * trusted, recoveries=trusted)
    _due(connection, suspects, recoveries=trusted + 1)
    claimed, crowded = _work_of_a_claim(connection, trusted)
    assert claimed == min(others * (1 + trusted), 10) + bool(suspects)
    assert crowded <= work * 2
