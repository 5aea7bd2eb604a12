"""The statements themselves: all named, all used, the frequent ones on the index made for them."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from perdure.store.sqlite import queries
from perdure.store.sqlite.migrate import MIGRATIONS

FOLDER = Path(queries.__file__).parent
EXPECTED = {
    "claim_runs": "runs_claimable",
    "free_runs": "runs_owned",
    "runs_held": "runs_owned",
    "ended_under_owner": "runs_ended_under_owner",
    "open_children": "runs_children",
    "is_full": "inbox_of_run",
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
    used = {name for path in FOLDER.glob("*.py") for name in re.findall(r'SQL\["(\w+)"', path.read_text())}
    used |= {"sync_normal"}
    assert used == set(queries.SQL)


def test_every_statement_says_what_it_is_for() -> None:
    for part in (FOLDER / "queries.sql").read_text().split("-- name: ")[1:]:
        name, purpose = part.splitlines()[:2]
        assert purpose.startswith("-- "), name


def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="'a'"):
        queries.split("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n")


@pytest.mark.parametrize(("name", "index"), EXPECTED.items())
def test_frequent_statements_use_their_index(connection: apsw.Connection, name: str, index: str) -> None:
    """Rule 18: a million ended runs cost a claim nothing."""
    sql = queries.SQL[name]
    count = max([int(number) for number in re.findall(r"\?(\d+)", sql)] or [sql.count("?")])
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * count).fetchall()
    assert any(index in str(step[3]) for step in plan), plan
