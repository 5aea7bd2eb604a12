"""Every statement of the PostgreSQL store finds its rows by an index, also when its plan was made on empty tables.

A worker plans its statements once (docs/decisions/0142-postgres-schema.md), perhaps on the first day of a schema. A
plan that reads a whole table is as quick as any other there, and takes seconds when there are a million runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from perdure.store.postgres import PostgresStore
from perdure.store.postgres.connection import settings_of
from perdure.store.postgres.queries import SQL
from support.lives import STORES, run_async
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PERDURE_TEST_STORES leaves PostgreSQL out")

#: Tables with rows for each run, step or event.
LARGE = {"runs", "journal", "inbox", "inbox_keys", "waits", "publications", "dead_letters", "replies"}
#: Statements that begin at one end of an index and stop soon, or count for people.
BY_ORDER = {
    "count_ended",
    "count_open",
    "dead_letters",  # a page
    "dead_letter_types",
    "is_spreading",  # one row
    "list_all",  # a page
    "list_by_prefix",
    "list_ended",
    "list_open",
    "next_spreading",  # one row
    "orphaned_owners",  # from owner to owner
    "publications",  # a page
    # Once in the life of a store, when everything in it goes to another one.
    "all_publications",
    "all_replies",
    "all_types",
    "count_all",
    "fence_runs",
    "unfence_runs",
}


@pytest.fixture(scope="module")
def planner() -> Iterator[psycopg.Connection[Any]]:
    """A session as ours are, in a schema without a run."""
    store = PostgresStore(server().url(server().fresh_schema()))

    async def make() -> None:
        await store.open()
        await store.close()

    run_async(make())
    with psycopg.connect(server().admin_url, autocommit=True) as connection:
        for setting in settings_of(store.location):
            connection.execute(setting.encode())
        yield connection


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Index Name" in plan or plan["Node Type"] == "Seq Scan":
        yield plan
    for part in plan.get("Plans", ()):
        yield from scans(part)


def reads_of_whole_tables(planner: psycopg.Connection[Any], statement: str) -> list[str]:
    """Scans of a large table, or of an index of one, without a condition on the column that the index begins with."""
    plan = generic_plan(planner, statement.rstrip(";"))
    firsts = first_columns(planner)
    found = []
    for node in scans(plan):
        table, column = firsts.get(node.get("Index Name", ""), (node.get("Relation Name"), None))
        if table in LARGE and (column is None or f"({column} " not in node.get("Index Cond", "")):
            found.append(f"{node['Node Type']} of {table} by {node.get('Index Name')}, {node.get('Index Cond')}")
    return found


def generic_plan(planner: psycopg.Connection[Any], statement: str) -> dict[str, Any]:
    """As our sessions have it, which are told to keep one plan. By EXECUTE: EXPLAIN (GENERIC_PLAN) is new in 16."""
    planner.execute(f"PREPARE looked_at AS {statement}".encode())
    try:
        counted = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'looked_at'"
        ((count,),) = planner.execute(counted).fetchall()
        values = f"({', '.join(['NULL'] * count)})" if count else ""
        ((found,),) = planner.execute(f"EXPLAIN (FORMAT JSON) EXECUTE looked_at{values}".encode()).fetchall()
    finally:
        planner.execute("DEALLOCATE looked_at")
    plan: dict[str, Any] = found[0]["Plan"]
    return plan


def first_columns(planner: psycopg.Connection[Any]) -> dict[str, tuple[str, str]]:
    """By index: its table, and the column that it begins with."""
    rows = planner.execute(
        "SELECT i.relname, t.relname, a.attname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid"
        " JOIN pg_class t ON t.oid = x.indrelid JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = x.indkey[0]"
        " WHERE t.relnamespace = current_schema()::regnamespace"
    ).fetchall()
    return {index: (table, column) for index, table, column in rows}


CHANGES_OR_READS = sorted(
    name for name, text in SQL.items() if text.lstrip("(").startswith(("SELECT", "WITH", "UPDATE", "DELETE", "INSERT"))
)


@pytest.mark.parametrize("name", [name for name in CHANGES_OR_READS if name not in BY_ORDER])
def test_a_statement_planned_on_empty_tables_reads_by_an_index(planner: psycopg.Connection[Any], name: str) -> None:
    """What is stored does not slow what is done."""
    assert reads_of_whole_tables(planner, SQL[name]) == []


def test_a_join_that_reads_all_runs_is_noticed(planner: psycopg.Connection[Any]) -> None:
    """What this file is for: as quick as any other on empty tables."""
    statement = "SELECT runs.key FROM jsonb_array_elements_text($1::jsonb) w JOIN runs ON runs.key = w.value::bigint"
    assert reads_of_whole_tables(planner, statement) == ["Index Only Scan of runs by runs_pkey, None"]
