"""The schema is made once, however many start at once, and left alone by releases that do not know it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import SchemaTooNew, StoreUnusable
from perdure.store.sqlite import SQLiteStore, migrate
from perdure.store.sqlite.session import Session, connect, connect_writer, prepare_file

SCHEMA = Path(migrate.__file__).parent / "schema.sql"

START = """
import asyncio, sys
from perdure.store.sqlite import SQLiteStore
from stores.store_kit import create
async def main():
    store = SQLiteStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    await create(store, sys.argv[2])
    await store.close()
asyncio.run(main())
"""


def described(connection: apsw.Connection) -> list[tuple[str, list[str]]]:
    """The schema without what does not matter: comments and white space."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
    # ALTER TABLE writes its column behind the last one, wherever the line breaks were.
    plain = [(str(name), " ".join(re.sub("--.*", "", str(sql)).split())) for name, sql in rows]
    return [(name, re.sub(r"\s*([(),])\s*", r"\1", sql)) for name, sql in plain]


def opened(path: Path) -> None:
    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        await store.close()

    asyncio.run(main())


def test_ten_processes_start_at_once(tmp_path: Path) -> None:
    """CONFORMANCE W1: all of them work, and the schema is there once."""
    path = tmp_path / "a.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(path), f"r{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        for number in range(10)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(10,)]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_the_commented_schema_is_the_real_one(tmp_path: Path) -> None:
    """schema.sql, which people read, and the migrations, which run, agree."""
    opened(tmp_path / "a.db")
    migrated = apsw.Connection(str(tmp_path / "a.db"))
    written = apsw.Connection(":memory:")
    written.execute(SCHEMA.read_text(encoding="utf-8"))
    assert described(migrated) == described(written)
    migrated.close()
    written.close()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """FAULTS O7: with both numbers and the way out; the file is left as it was."""
    path = tmp_path / "a.db"
    opened(path)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 14")
    connection.close()
    with pytest.raises(SchemaTooNew, match=r"is schema 14; this perdure understands up to 8\.") as caught:
        opened(path)
    assert "Upgrade perdure, or restore a backup" in str(caught.value)


def test_a_file_of_the_first_schema_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that were there before are read as they were: nothing of them was ever pruned."""
    path = tmp_path / "a.db"
    prepare_file(str(path))
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "MIGRATIONS", migrate.MIGRATIONS[:1])
        session = connect_writer(str(path), "full")
        migrate.migrate(session, str(path))
        assert session.value("PRAGMA user_version") == 1
        session.execute(
            "INSERT INTO runs (id, generation, workflow, version, status, epoch, ready_at, next_seq, created_at, "
            "updated_at, recoveries, input_digest, cancel_requested) "
            "VALUES ('old', 1, 'order', '1', 'pending', 0, 0, 2, 1, 1, 0, x'00', 0)"
        )
        session.close()

    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        row = await store.get("old")
        assert row is not None
        assert (row.id, row.next_seq, row.pruned) == ("old", 2, 0)
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("fails_at", range(1, 9))
def test_a_migration_that_dies_leaves_the_old_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """FAULTS A18: whichever statement it dies at, the next start finds a file it can use."""
    path = str(tmp_path / "a.db")
    prepare_file(path)
    statements = migrate.MIGRATIONS[0][1].split(";\n")
    broken = ";\n".join([*statements[:fails_at], "SELECT no_such_column"])
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "MIGRATIONS", ((1, broken),))
        session = connect(path)
        with pytest.raises(apsw.SQLError):
            migrate.migrate(session, path)
        assert session.value("PRAGMA user_version") == 0
        assert session.rows("SELECT * FROM sqlite_schema") == []
        session.close()
    opened(Path(path))


def test_a_half_recognisable_file_is_refused(tmp_path: Path) -> None:
    """A version without our mark is somebody else's, even if it is empty."""
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(StoreUnusable, match="another program"):
        opened(tmp_path / "a.db")


def test_a_migration_between_two_looks_is_not_taken_for_another_program(tmp_path: Path) -> None:
    """What a file is, is read in one snapshot; another process may be making it into ours at that moment."""
    path = str(tmp_path / "a.db")
    apsw.Connection(path).pragma("journal_mode", "wal")

    class Interrupted(Session):
        """Lets somebody else migrate the file right after its first look."""

        looks = 0

        def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
            found = super().value(sql, parameters)
            self.looks += 1
            if self.looks == 1:
                other = connect_writer(path, "full")
                migrate.migrate(other, path)
                other.close()
            return found

    session = Interrupted(connect_writer(path, "full").connection)
    migrate.migrate(session, path)
    assert session.looks > 1
    assert session.value("SELECT count(*) FROM runs") == 0
    session.close()
