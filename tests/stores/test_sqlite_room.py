"""The WAL has its length before it is needed: nobody can tell, except by the clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore, wal
from perdure.store.sqlite.session import Session
from stores.store_kit import accept, create, step_row, turn

FULL_LENGTH = wal.CHECKPOINT_PAGES * (4_096 + 24)


async def _write(store: Store, turns: int) -> list[int]:
    """A life of so many commits; how long the WAL was after each."""
    key = await create(store, "a")
    lengths: list[int] = []
    for seq in range(2, turns + 2):
        await accept(store, turn(key, seq, step_row(seq)))
        lengths.append(Path(store.path + "-wal").stat().st_size)  # type: ignore[attr-defined]
    return lengths


def _lengths(path: Path, turns: int, durability: str = "full") -> list[int]:
    async def main() -> list[int]:
        store = SQLiteStore(path, durability=durability)
        await store.open()
        try:
            return await _write(store, turns)
        finally:
            await store.close()

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks come with every fourth transaction or the one after it, wherever a slow disk had those committed."""
    monkeypatch.setattr(wal, "CHECKPOINT_LOOK_TRANSACTIONS", 4)
    monkeypatch.setattr(wal, "CHECKPOINT_LOOK_FACTOR_MAX", 1)


def test_a_busy_writer_overwrites_what_is_there(tmp_path: Path) -> None:
    """FAULTS O14: made once, not with every look; the file it leaves behind holds the runs and nothing else."""
    path = tmp_path / "a.db"
    after = _lengths(path, 40)[11:]  # the first look is over: no commit overtakes it
    assert FULL_LENGTH <= after[0] < 2 * FULL_LENGTH
    assert set(after) == {after[0]}
    with apsw.Connection(str(path)) as connection:
        assert connection.pragma("integrity_check") == "ok"
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        assert "scratch" not in names
        assert connection.execute("SELECT count(*) FROM journal").fetchall() == [(41,)]


def test_a_store_that_writes_little_needs_little(tmp_path: Path) -> None:
    assert _lengths(tmp_path / "a.db", 1)[-1] < FULL_LENGTH / 10


def test_without_syncs_there_is_nothing_to_gain(tmp_path: Path) -> None:
    assert _lengths(tmp_path / "a.db", 12, "relaxed")[-1] < FULL_LENGTH / 2


def test_another_process_that_writes_is_not_waited_for(tmp_path: Path) -> None:
    """The room is made at another look; commits go on."""
    path = tmp_path / "a.db"

    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        try:
            await _write(store, 1)
            other = apsw.Connection(str(path))
            session = store.writer.session
            assert session is not None
            with other:
                other.execute("DELETE FROM inbox")
                store.writer.wal.preallocate(session)
            assert Path(f"{path}-wal").stat().st_size < FULL_LENGTH
            assert not session.connection.in_transaction
            store.writer.wal.preallocate(session)
            assert Path(f"{path}-wal").stat().st_size >= FULL_LENGTH
            await create(store, "b")
            other.close()
        finally:
            await store.close()

    asyncio.run(main())


def test_a_connection_that_breaks_while_room_is_made_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS B6: the look that found it broken ends there, and the next commit opens another one."""
    broken: list[object] = []
    usual = wal.Wal.preallocate

    class Broken:
        def __init__(self, session: Session) -> None:
            self.connection = session.connection

        def execute(self, *_: object) -> None:
            broken.append(self)
            raise apsw.IOError("disk I/O error")

    def make_room(self: wal.Wal, session: Any) -> None:
        usual(self, session if broken else Broken(session))

    monkeypatch.setattr(wal.Wal, "preallocate", make_room)

    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        key = await create(store, "a")
        for seq in range(2, 14):
            await accept(store, turn(key, seq, step_row(seq)))
        assert [row.seq for row in await store.journal(key, 1)] == list(range(1, 14))
        await store.close()

    asyncio.run(main())
    assert broken
    assert [record.message for record in caplog.records if record.levelname == "CRITICAL"] == []


def test_a_disk_without_room_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS B5: an error while making room is nobody's business, and it is not tried again."""
    monkeypatch.setattr(wal, "ROOM_EXTRA_PAGES", 10**9)  # larger than any row may be
    assert _lengths(tmp_path / "a.db", 12)[-1] < FULL_LENGTH / 2
