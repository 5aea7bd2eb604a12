"""Commands that only look change nothing, and can look at what cannot be changed; migrating is asked for."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from cli.cli_kit import APP, invoke, invoke_json, with_engine
from perdure.store.sqlite import SQLiteStore, migrate
from perdure.store.sqlite.session import connect_writer, prepare_file
from stores.store_kit import accept, create, finishing, new_run, step_row, turn
from support.lives import run_async

#: Every command that only looks, for a run "old".
LOOKS = [
    ("ls",), ("show", "old"), ("history", "old"), ("why", "old"), ("events",), ("dead-letters", "list"),
    ("export", "old", "--output", "{out}"), ("check", "--app", APP), ("prune", "--older-than", "1 second", "--dry-run"),
]  # fmt: skip
#: And some that change something.
CHANGES = [
    ("cancel", "old"), ("pause", "old"), ("send", "old", "CliApproved", "--data", '{"by": "ann"}', "--app", APP),
    ("prune", "--older-than", "1 second"), ("start", "cli_order", "--input", '{"order_id": "o-1"}', "--app", APP),
    ("dead-letters", "remove", "--older-than", "1 day"), ("worker", "--app", APP),
]  # fmt: skip


def old_file(path: Path, schema: int = 1) -> None:
    """What an older release left behind, with an open run in it."""
    prepare_file(str(path))
    steps = [one for one in migrate.MIGRATIONS if one[0] <= schema]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(migrate, "MIGRATIONS", steps)
        session = connect_writer(str(path), "full")
        migrate.migrate(session, str(path))
        session.close()
    started = new_run("old", workflow="cli_order").started
    connection = apsw.Connection(str(path))
    connection.execute(
        "INSERT INTO runs (id, generation, workflow, version, status, epoch, ready_at, next_seq, created_at,"
        " updated_at, recoveries, input_digest, cancel_requested)"
        " VALUES ('old', 1, 'cli_order', '1', 'pending', 0, 0, 2, 1, 1, 0, x'00', 0)"
    )
    connection.execute("INSERT INTO journal VALUES (1, 1, ?, ?, ?, ?, ?, ?)", started)
    connection.close()


def todays_file(path: Path) -> None:
    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        await create(store, "old", owner=None, workflow="cli_order")
        await store.close()

    run_async(main())


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def schema_of(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    version = connection.pragma("user_version")
    connection.close()
    return int(version)


@pytest.mark.parametrize("make", [old_file, todays_file], ids=["older schema", "schema of today"])
@pytest.mark.parametrize("command", LOOKS, ids=lambda command: command[0])
def test_looking_changes_not_a_byte(store: Path, tmp_path_factory: Any, make: Any, command: tuple[str, ...]) -> None:
    """It shows the run, of whatever schema the file is, and leaves the files as they were, with none beside them."""
    make(store)
    before = contents(store.parent)
    out = tmp_path_factory.mktemp("out") / "export.json"
    result = invoke(*[part.format(out=out) for part in command], store=store)
    assert result.exit_code == (6 if command[0] == "check" else 0), result.output  # its input was made up
    if command[0] in ("ls", "show", "history", "why"):
        assert "old" in result.output or "started" in result.output
    assert contents(store.parent) == before


def test_looking_at_what_a_killed_worker_left_changes_nothing(store: Path) -> None:
    """Its -wal has runs that are not in the database yet: they are seen, and the -wal stays for the next worker."""

    async def main() -> None:
        writing = SQLiteStore(store)
        await writing.open()
        await create(writing, "in the wal", owner=None)
        for name in ("", "-wal"):
            shutil.copy(f"{store}{name}", f"{store.parent}/left.db{name}")
        await writing.close()

    run_async(main())
    left = store.parent / "left.db"
    files = [left, Path(f"{left}-wal")]
    before = [path.read_bytes() for path in files]
    assert len(before[1]) > 0
    for _ in range(2):
        assert [run["id"] for run in invoke_json("ls", store=left)["runs"]] == ["in the wal"]
        assert [path.read_bytes() for path in files] == before


@contextmanager
def nobody() -> Iterator[None]:
    """As a user who owns nothing; only root can become one."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def rehearsal(make: Any) -> None:
    """So that everything is imported while this process may read it."""
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory, "a.db"))
        for command in (["show", "old"], ["ls"], ["pause", "old"]):
            invoke(*command, "--json", store=Path(directory, "a.db"))


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A directory that others may look into."""
    directory = Path(tempfile.mkdtemp(prefix="perdure-shelf-"))
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("make", [old_file, todays_file], ids=["older schema", "schema of today"])
@pytest.mark.parametrize("left", ["database", "database and -wal", "all three"])
def test_a_backup_in_a_read_only_directory_can_be_looked_at(shelf: Path, make: Any, left: str) -> None:
    """FAULTS O13, O22: neither the file nor its directory can be written; with what was in its -wal, if it has one."""
    path = shelf / "a.db"
    make(path)
    connection = apsw.Connection(str(path))
    connection.wal_autocheckpoint(0)
    connection.execute("UPDATE runs SET custom_status = ?", (b'"in the wal"',))
    held = {name: Path(f"{path}{name}").read_bytes() for name in ("-wal", "-shm")}
    connection.close()
    keep = {"database": (), "database and -wal": ("-wal",), "all three": ("-wal", "-shm")}[left]
    for name in keep:
        Path(f"{path}{name}").write_bytes(held[name])
    for each in shelf.iterdir():
        each.chmod(0o444)
    shelf.chmod(0o555)
    before = contents(shelf)
    rehearsal(make)
    with nobody():
        shown = invoke("show", "old", "--json", store=path)
        listed = invoke("ls", "--json", store=path)
        refused = invoke("pause", "old", store=path)
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["custom_status"] == "in the wal"
    assert [run["id"] for run in json.loads(listed.stdout)["runs"]] == ["old"]
    assert (refused.exit_code, "cannot be written" in refused.output) == (1, True), refused.output
    assert contents(shelf) == before


@pytest.mark.parametrize("command", CHANGES, ids=lambda command: command[0])
def test_migrating_is_asked_for(store: Path, command: tuple[str, ...]) -> None:
    """FAULTS O8: a command that changes something refuses a file of an older schema, with a code of its own, and says
    what to do: a worker of the older release may be using it."""
    old_file(store)
    before = contents(store.parent)
    result = invoke(*command, store=store)
    assert result.exit_code == 8
    assert "is schema 1; this perdure works with" in result.output
    assert "--migrate" in result.output
    assert contents(store.parent) == before


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_migrating_is_done_when_it_is_asked_for_and_said(
    store: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    old_file(store)
    flags, env = (["--migrate"], {}) if how == "flag" else ([], {"PERDURE_MIGRATE": "1"})
    result = invoke("pause", "old", *flags, store=store, env=env)
    assert result.exit_code == 0, result.output
    assert schema_of(store) == migrate.newest()
    assert f"migrating {store} from schema 1 to {migrate.newest()}" in caplog.text
    assert invoke_json("show", "old", store=store)["status"] == "paused"


def test_an_engine_migrates_by_itself_and_says_so(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An application was deployed on purpose: nothing to ask. A new file needs no migrating and says nothing."""
    old_file(store)

    async def look(engine: Any) -> list[str]:
        return [run.id for run in await engine.list()]

    assert with_engine(store, look, worker=False) == ["old"]
    assert [record.levelname for record in caplog.records if "migrating" in record.getMessage()] == ["WARNING"]
    caplog.clear()
    assert with_engine(store.parent / "new.db", look, worker=False) == []
    assert "migrating" not in caplog.text


def test_a_worker_of_an_older_release_goes_on_beside_looking_commands(store: Path) -> None:
    """Its schema stays what it knows, and what it writes is seen."""
    old_file(store, schema=2)
    older = apsw.Connection(str(store))
    for status in ("running", "waiting"):
        assert [run["id"] for run in invoke_json("ls", store=store)["runs"]] == ["old"]
        older.execute("UPDATE runs SET status = ?", (status,))
        assert invoke_json("show", "old", store=store)["status"] == status
    assert older.pragma("user_version") == 2
    older.close()


def test_a_live_worker_is_seen_by_looking_commands(store: Path) -> None:
    """Beside its connections: what is committed and not copied into the database yet is seen, and it goes on."""

    async def main() -> None:
        writing = SQLiteStore(store)
        await writing.open()
        key = await create(writing, "old", owner=None)
        for seq in (2, 3, 4):
            await accept(writing, turn(key, seq, step_row(seq), epoch=0))
            assert (await asyncio.to_thread(invoke_json, "show", "old", store=store))["records"] == seq
        await accept(writing, finishing(key, 5, epoch=0))
        assert (await asyncio.to_thread(invoke_json, "show", "old", store=store))["status"] == "completed"
        await writing.close()

    run_async(main())
