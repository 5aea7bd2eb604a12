"""Opening a SQLite store: a usable file, or a clear reason and the fix; nobody else's file is touched."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import BadArgument, EngineNotOpen, StoreUnusable
from perdure.store.sqlite import SQLiteStore, liveness
from stores.store_kit import create, worker


def opened(path: Any) -> None:
    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        await store.close()

    asyncio.run(main())


def test_a_new_file_belongs_to_its_user_alone(tmp_path: Path) -> None:
    """FAULTS S14: the database, -wal, -shm and the worker's lock file are 0600, whatever the umask."""

    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        await store.register_worker(worker("w1"))
        await create(store, "r")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes == dict.fromkeys(["a.db", "a.db-wal", "a.db-shm", "a.db-worker-w1.lock"], 0o600)
        await store.close()
        assert [path.name for path in tmp_path.iterdir()] == ["a.db"], "one tidy file is left"

    before = os.umask(0)
    try:
        asyncio.run(main())
    finally:
        os.umask(before)


def test_a_file_open_to_others_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """FAULTS S14: it is the user's file, so it is not changed."""
    opened(tmp_path / "a.db")
    (tmp_path / "a.db").chmod(0o644)
    with caplog.at_level(logging.WARNING):
        opened(tmp_path / "a.db")
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize(("durability", "expected"), [("full", 2), ("relaxed", 1)])
def test_the_promised_durability_is_set(tmp_path: Path, durability: Any, expected: int) -> None:
    """On the connection that commits, also after it was reopened: 2 is FULL, 1 is NORMAL."""

    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db", durability)
        await store.open()
        assert await store.writer.submit(lambda session: session.value("PRAGMA synchronous"), ()) == expected
        assert await store.writer.submit(lambda session: session.value("PRAGMA journal_mode"), ()) == "wal"
        store.writer.drop()
        assert await store.writer.submit(lambda session: session.value("PRAGMA synchronous"), ()) == expected
        await store.close()

    asyncio.run(main())


def test_bad_paths_say_what_to_do(tmp_path: Path) -> None:
    """FAULTS O13: a missing directory, a directory, a file in place of one, an empty path."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnusable, match=r"none.*does not exist\. Create it"):
        opened(tmp_path / "none" / "a.db")
    with pytest.raises(StoreUnusable, match=r"is a directory\. Name a file in it"):
        opened(tmp_path)
    with pytest.raises(StoreUnusable, match="does not exist"):
        opened(tmp_path / "file" / "a.db")
    for empty in ("", "  "):
        with pytest.raises(StoreUnusable, match="empty"):
            SQLiteStore(empty)
    with pytest.raises(StoreUnusable, match="MemoryStore"):
        SQLiteStore(":memory:")
    with pytest.raises(BadArgument, match="'full' or 'relaxed'"):
        SQLiteStore("a.db", "none")  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_says_so(tmp_path: Path) -> None:
    """FAULTS O13: both for a new file and for one that is there."""
    opened(tmp_path / "a.db")
    tmp_path.chmod(0o500)
    try:
        for name in ("a.db", "b.db"):
            with pytest.raises(StoreUnusable, match=r"write|created"):
                opened(tmp_path / name)
    finally:
        tmp_path.chmod(0o700)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """FAULTS O13: text, another program's database: refused, not a byte changed."""
    text, foreign, empty = tmp_path / "notes.txt", tmp_path / "foreign.db", tmp_path / "empty.db"
    text.write_text("not a database, but long enough to have a header of sixteen bytes" * 20)
    connection = apsw.Connection(str(foreign))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    for path, reason in ((text, "not a SQLite database"), (foreign, "another program")):
        before = path.read_bytes()
        with pytest.raises(StoreUnusable, match=reason):
            opened(path)
        assert path.read_bytes() == before
    empty.touch(mode=0o600)
    opened(empty)


def test_an_old_sqlite_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS O12: before 3.51.3 two writers could corrupt a WAL; said once when the file is opened, and not of newer
    ones."""
    opened(tmp_path / "a.db")
    assert "upgrade apsw" not in caplog.text
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    opened(tmp_path / "a.db")
    assert "SQLite 3.51.2 can corrupt a WAL file; upgrade apsw." in caplog.text


def test_symlinks_are_resolved_once(tmp_path: Path) -> None:
    """FAULTS S15: two names of one file share its -wal and its locks."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "a.db")
    opened(tmp_path / "link.db")
    assert SQLiteStore(tmp_path / "link.db").path == os.path.realpath(tmp_path / "real" / "a.db")
    assert (tmp_path / "real" / "a.db").exists()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """FAULTS F14, F15: before open and after close every call is an error; close twice is fine; it opens again."""

    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        with pytest.raises(EngineNotOpen, match="not open"):
            await store.get("r")
        await store.open()
        await store.open()
        await create(store, "r")
        await store.close()
        await store.close()
        for call in (store.get, store.held):
            with pytest.raises(EngineNotOpen):
                await call("r")
        with pytest.raises(EngineNotOpen):
            store.commit([])
        with pytest.raises(EngineNotOpen):
            store.watch(lambda: None)
        await store.open()
        assert await store.get("r") is not None
        await store.close()

    asyncio.run(main())


def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    """FAULTS F15: calls made before `close` are durable and answered."""

    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        calls = [asyncio.ensure_future(create(store, f"r{number}")) for number in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert len(set(await asyncio.gather(*calls))) == 50

    asyncio.run(main())


def test_a_copy_without_write_ahead_log_can_be_shared(tmp_path: Path) -> None:
    """FAULTS O10, O22: VACUUM INTO makes such copies; the first to open one must not keep the others out."""

    async def main() -> None:
        original = SQLiteStore(tmp_path / "a.db")
        await original.open()
        await create(original, "r")
        connection = apsw.Connection(str(tmp_path / "a.db"))
        connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
        connection.close()
        await original.close()
        (tmp_path / "copy.db").chmod(0o600)
        first, second = SQLiteStore(tmp_path / "copy.db"), SQLiteStore(tmp_path / "copy.db")
        await first.open()
        await asyncio.wait_for(second.open(), 5)
        assert await second.get("r") is not None
        await second.close()
        await first.close()

    asyncio.run(main())


def test_a_file_system_that_cannot_lock_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the store, not of the system; no lock file and no descriptor are left, and a worker that
    cannot be judged counts as alive."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    def fails(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        await store.register_worker(worker("alive"))
        lock = tmp_path / "a.db-worker-alive.lock"
        with monkeypatch.context() as patched:
            patched.setattr("fcntl.flock", fails)
            with pytest.raises(StoreUnusable, match="does not lock files"):
                await store.register_worker(worker("w1"))
            assert liveness.take_if_dead(store.path, "alive") is False
        assert list(tmp_path.glob("*.lock")) == [lock]
        await store.close()

    asyncio.run(main())
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before
