"""Brings a file to the current schema, or says why it cannot be used.

Migrations are the numbered files in `migrations/`, each ending with its own `PRAGMA user_version`. They run
in one transaction, taken before the version is read for good: of ten processes that start at once, one
migrates and nine find nothing left to do (tests/stores/test_sqlite_migrations.py). A process that dies in the
middle leaves the old schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure.errors import SchemaTooNew, SchemaTooOld, StoreUnusable
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session, log, sync_what_others_wrote, use_wal

#: "prdu" as a big-endian number; set by the first migration.
APPLICATION_ID: Final = int.from_bytes(b"prdu", "big")

#: Number, as in the name of the file, and text. A file is at the number of the last one it has seen.
MIGRATIONS: Final = tuple(
    (int(path.name[:4]), path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "migrations").glob("*.sql"))
)


def newest() -> int:
    """The schema that this release works with."""
    return MIGRATIONS[-1][0]


def migrate(session: Session, path: str, *, allowed: bool = True, quietly: bool = False) -> None:
    """Make the schema current. Raises `StoreUnusable` or `SchemaTooNew` before anything is changed, and `SchemaTooOld`
    if a file that is in use would have to be migrated and that is not allowed."""
    # In one snapshot: between two looks another process may turn an empty file into one of ours
    # (tests/stores/test_sqlite_migrations.py).
    session.execute(SQL["begin_read"])
    try:
        version = recognise(session, path)
    finally:
        session.execute(SQL["rollback"])
    if 0 < version < newest():
        if not allowed:
            raise SchemaTooOld(
                f"{path} is schema {version}; this perdure works with {newest()}. Migrating cannot be taken back: make "
                "a backup, and mind workers of an older perdure that use it. Then allow it with `--migrate` or "
                "PERDURE_MIGRATE=1."
            )
        if not quietly:
            log.warning("migrating %s from schema %d to %d", path, version, newest())
    use_wal(session)
    sync_what_others_wrote(session)
    if version < newest():
        _upgrade(session, path)


def recognise(session: Session, path: str) -> int:
    """The schema version, 0 for an empty file."""
    owner: int = session.value(SQL["application_id"])
    version: int = session.value(SQL["user_version"])
    if owner != APPLICATION_ID and (owner != 0 or version != 0 or not session.value(SQL["is_empty"])):
        raise StoreUnusable(f"{path} is a SQLite database of another program. Choose another path; it was left alone.")
    if version > newest():
        raise SchemaTooNew(
            f"{path} is schema {version}; this perdure understands up to {newest()}.\n"
            "  Upgrade perdure, or restore a backup made before the migration."
        )
    return version


def _upgrade(session: Session, path: str) -> None:
    session.execute(SQL["begin"])
    try:
        # Read again: the holder of the lock before us may have done the work.
        version = recognise(session, path)
        for number, migration in MIGRATIONS:
            if number > version:
                session.execute(migration)
        session.execute(SQL["commit"])
    except BaseException:
        if session.connection.in_transaction:
            session.execute(SQL["rollback"])
        raise
