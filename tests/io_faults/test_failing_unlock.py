"""The system fails to free a lock of the file: the process that had it does not keep itself out for ever."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.store.sqlite import SQLiteStore, session, writer
from perdure.store.sqlite.queries import SQL
from stores.store_kit import accept, create, step_row, turn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the calling convention of Linux for fcntl")

_C = ctypes.CDLL(None, use_errno=True)
_FCNTL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, use_errno=True)


#: Where SQLite has its locks in the -shm file.
LOCKS = {"write": 120, "checkpoint": 121}


class Unlocks:
    """SQLite's `fcntl`, of which calls that free this lock of a -shm file fail while there are `failures` left."""

    def __init__(self) -> None:
        self.lock = 0
        self.failures = 0
        self.failed = 0
        self.pointer = _FCNTL(self._call)

    def _call(self, descriptor: int, command: int, argument: Any) -> int:
        if self.failures and command == fcntl.F_SETLK and self._frees(argument) and self._is_shm(descriptor):
            self.failures -= 1
            self.failed += 1
            ctypes.set_errno(errno.EIO)
            return -1
        return int(_C.fcntl(descriptor, command, ctypes.c_void_p(argument)))

    def _frees(self, argument: int) -> bool:
        # struct flock: the type, where the start counts from, the start.
        kind, start = ctypes.c_short.from_address(argument).value, ctypes.c_int64.from_address(argument + 8).value
        return kind == fcntl.F_UNLCK and start == self.lock

    def _is_shm(self, descriptor: int) -> bool:
        return os.readlink(f"/proc/self/fd/{descriptor}").endswith("-shm")


@pytest.fixture
def unlocks() -> Iterator[Unlocks]:
    found = Unlocks()
    vfs = apsw.VFS("perdure-unlocks", "unix")
    assert vfs.xSetSystemCall("fcntl", ctypes.cast(found.pointer, ctypes.c_void_p).value or 0)
    try:
        yield found
    finally:
        vfs.xSetSystemCall("fcntl", 0)
        vfs.unregister()


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("stores", [1, 2])
def test_a_lock_that_was_not_freed_is_forgotten(
    tmp_path: Path, unlocks: Unlocks, monkeypatch: pytest.MonkeyPatch, stores: int, lock: str
) -> None:
    """FAULTS B6: the next commit of this process is made, though it may take a moment; also with two stores on the
    file, and with connections that only read or listen."""
    monkeypatch.setattr(writer, "SQLITE_BUSY_SECONDS", 0.2)
    monkeypatch.setattr(session.connect, "__defaults__", (0.2, None))

    async def main() -> None:
        opened = [SQLiteStore(tmp_path / "a.db") for _ in range(stores)]
        for store in opened:
            await store.open()
            store.watch(lambda: None)
        store = opened[0]
        key = await create(store, "a")
        assert await opened[-1].get("a") is not None  # its reader has a connection, too
        unlocks.lock, unlocks.failures = LOCKS[lock], 1
        await accept(store, turn(key, 2, step_row(2)))
        store.writer.wal.checkpoint(SQL["checkpoint"])
        assert unlocks.failed == 1
        for seq in (3, 4):
            await asyncio.wait_for(accept(opened[-1], turn(key, seq, step_row(seq))), 10)
        assert [row.seq for row in await store.journal(key, 1)] == [1, 2, 3, 4]
        for store in opened:
            await store.close()

    asyncio.run(main())
