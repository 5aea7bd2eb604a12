"""Many runs in a schema of PostgreSQL at once, without running them: copies of one that was run.

A copy has everything that its template has (columns, journal, waits) under another id. The columns are read from the
catalogue, so that a change of the schema changes nothing here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

#: Rows of `runs` in one statement.
PAGE = 50_000
_PARTS = ("journal", "waits")
_COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position
"""
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY table_name"


def due() -> Mapping[str, Any]:
    """What is different in a copy that nobody has begun: it is due, since now. (Workers pass over what was due long
    ago, but for each tenth look: it cannot be there.)"""
    return {
        "status": "pending",
        "outcome": None,
        "finished_at": None,
        "owner": None,
        "epoch": 0,
        "recoveries": 0,
        "next_seq": 2,
        "ready_at": time.time_ns() // 1_000,
        "suspect_at": None,
    }


class Past:
    """One schema, through a connection of the administrator."""

    def __init__(self, url: str, schema: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        self._schema = schema

    def close(self) -> None:
        self.connection.close()

    def copy(self, run_id: str, count: int, prefix: str, different: Mapping[str, Any] | None = None) -> None:
        """Add `count` runs `<prefix>-<number>` like the run of this id, but for some columns."""
        changed = different or {}
        row = self.connection.execute("SELECT key FROM runs WHERE id = %s", (run_id,)).fetchone()
        assert row is not None, f"there is no run {run_id!r} to copy"
        names = [name for name in self._columns("runs") if name not in ("key", "id")]
        values = [sql.Placeholder(name) if name in changed else sql.Identifier(name) for name in names]
        parts = [self._part(table) for table in _PARTS]
        statement = sql.SQL(
            "WITH new AS (INSERT INTO runs (id, {names}) SELECT {prefix} || lpad(n::text, 9, '0'), {values}"
            " FROM runs CROSS JOIN generate_series({first}::int, {last}::int) n WHERE key = {key} ORDER BY n"
            " RETURNING key), {parts} SELECT count(*) FROM new"
        ).format(
            names=sql.SQL(", ").join(map(sql.Identifier, names)),
            values=sql.SQL(", ").join(values),
            parts=sql.SQL(", ").join(parts),
            **{name: sql.Placeholder(f"_{name}") for name in ("prefix", "first", "last", "key")},
        )
        for first in range(0, count, PAGE):
            last = min(first + PAGE, count) - 1
            given = {"_prefix": f"{prefix}-", "_first": first, "_last": last, "_key": row[0], **changed}
            self.connection.execute(statement, given)

    def _part(self, table: str) -> sql.Composed:
        names = [sql.Identifier(name) for name in self._columns(table) if name != "run_key"]
        return sql.SQL(
            "{added} AS (INSERT INTO {table} (run_key, {names})"
            " SELECT new.key, {names} FROM new CROSS JOIN {table} WHERE {table}.run_key = {key})"
        ).format(
            added=sql.Identifier(f"added_{table}"),
            table=sql.Identifier(table),
            names=sql.SQL(", ").join(names),
            key=sql.Placeholder("_key"),
        )

    def delete(self, prefix: str) -> None:
        """Delete runs that were claimed and never begun."""
        self.connection.execute("DELETE FROM runs WHERE id ^@ %s", (f"{prefix}-",))

    def analyze(self) -> None:
        """As the server does by itself some time after rows were added; then it has nothing left to do."""
        for table in self._tables():
            self.connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
        self.connection.execute("CHECKPOINT")

    def never_analyze(self) -> None:
        """Turn off what the server does by itself for these tables."""
        for table in self._tables():
            self.connection.execute(
                sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = off)").format(sql.Identifier(table))
            )

    def _tables(self) -> list[str]:
        return [name for (name,) in self.connection.execute(_TABLES, (self._schema,)).fetchall()]

    def _columns(self, table: str) -> list[str]:
        return [name for (name,) in self.connection.execute(_COLUMNS, (self._schema, table)).fetchall()]
