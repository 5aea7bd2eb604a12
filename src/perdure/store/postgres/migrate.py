"""Making the schema, and bringing it to what this release works with: numbered files, one transaction, one process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from perdure.errors import SchemaTooNew, SchemaTooOld, StoreUnusable
from perdure.store.postgres.connection import Connection, log, quoted
from perdure.store.postgres.faults import Fault
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.url import Location

MIGRATIONS: Final = tuple(
    (int(path.name[:4]), path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "migrations").glob("*.sql"))
)
#: How long a process waits for another one's migration before it says who that is.
_LOCK_SECONDS: Final = 30.0


def newest() -> int:
    """The schema that this release works with."""
    return MIGRATIONS[-1][0]


def migrate(connection: Connection, location: Location, *, allowed: bool = True, make: bool = True) -> None:
    """Make the schema current. Raises `StoreUnusable`, `SchemaTooNew`, and `SchemaTooOld` if it would have to be
    migrated and that is not allowed. `make=False`: also if it is not there (`StoreUnusable`)."""
    ((encoding,),) = connection.rows(SQL["server_encoding"])
    if encoding != "UTF8":
        raise StoreUnusable(
            f"{location.shown} stores texts as {encoding}. Use a database with ENCODING 'UTF8': perdure keeps whatever "
            "people name their things."
        )
    version = _version(connection, location)
    if version == newest():
        return
    if not version and not make:
        raise StoreUnusable(
            f"there is no store in the schema {location.schema!r} of {location.shown}. Name another with ?schema=...; "
            "`perdure start` and `perdure worker` make one."
        )
    if version and not allowed:
        raise SchemaTooOld(
            f"{location.shown} is schema {version}; this perdure works with {newest()}. Migrating cannot be taken "
            "back: make a backup, and mind workers of an older perdure. Then allow it with `--migrate` or "
            "PERDURE_MIGRATE=1."
        )
    if version:
        log.warning("migrating %s from schema %d to %d", location.shown, version, newest())
    _upgrade(connection, location)


def _version(connection: Connection, location: Location) -> int:
    """0: nothing of ours is there."""
    schema = location.schema
    if not connection.rows(SQL["has_table"], (schema, "perdure_schema"))[0][0]:
        if connection.rows(SQL["has_table"], (schema, "runs"))[0][0]:
            raise StoreUnusable(
                f"the schema {schema!r} of {location.shown} has a table `runs` of another program. Name another "
                "schema: ?schema=..."
            )
        return 0
    try:
        version: int = connection.rows(SQL["schema_version"])[0][0]
    except Fault as fault:
        if fault.state == "42P01":  # the search path passes over a schema that the user may not use
            raise Fault("42501", f"permission denied for schema {schema}") from None
        raise
    if version > newest():
        raise SchemaTooNew(
            f"{location.shown} is schema {version}; this perdure understands up to {newest()}.\n"
            "  Upgrade perdure, or restore a backup made before the migration."
        )
    return version


def _upgrade(connection: Connection, location: Location) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        connection.begin()
        try:
            if connection.rows(SQL["try_migration_lock"], (location.schema,))[0][0]:
                _apply(connection, location)
                connection.script("COMMIT")
                return
            if time.monotonic() > deadline:
                holders = [holder for (holder,) in connection.rows(SQL["migration_lock_holder"], (location.schema,))]
                raise StoreUnusable(
                    f"{location.shown} is being migrated by {'; '.join(holders) or 'somebody'} for more than "
                    f"{_LOCK_SECONDS:g} s. Wait for it, or end that session: SELECT pg_terminate_backend(its number);"
                )
        finally:
            if not connection.is_broken and connection.is_in_transaction:
                connection.script("ROLLBACK")
        time.sleep(0.05)


def _apply(connection: Connection, location: Location) -> None:
    # Looked at again: the holder of the lock before us may have done the work.
    if not connection.rows(SQL["has_schema"], (location.schema,))[0][0]:
        try:
            connection.script(f"CREATE SCHEMA {quoted(location.schema)}")
        except Fault as fault:
            if fault.state == "42501":
                raise StoreUnusable(
                    f"the schema {location.schema!r} of {location.shown} does not exist, and this user may not make "
                    f"it. An administrator can: CREATE SCHEMA {quoted(location.schema)} AUTHORIZATION the_user; or "
                    "GRANT CREATE ON DATABASE the_database TO the_user."
                ) from None
            raise
    version = _version(connection, location)
    for number, migration in MIGRATIONS:
        if number > version:
            connection.script(migration)
            connection.rows(SQL["set_schema_version"], (number,))


def drop(location: Location) -> None:
    """Remove the schema and everything in it: only for one that its caller has made. Raises `StoreError`."""
    connection = Connection(location, name="drop")
    try:
        connection.script(f"DROP SCHEMA IF EXISTS {quoted(location.schema)} CASCADE")
    except Fault as fault:
        raise fault.explained(location.shown) from None
    finally:
        connection.close()
