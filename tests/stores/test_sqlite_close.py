"""Closing the SQLite store: it needs nobody's threads, and a disk that hangs does not keep the process."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure import Engine, limits
from perdure.errors import StoreUnavailable
from perdure.store.sqlite import SQLiteStore
from support.lives import run_async
from support.processes import Process


def test_it_opens_and_closes_while_the_executor_of_the_loop_is_busy(tmp_path: Path) -> None:
    """Blocking calls of the user's own have all the threads there are."""
    gate, before = threading.Event(), set(threading.enumerate())

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        blocked = asyncio.ensure_future(asyncio.to_thread(gate.wait))
        try:
            async with asyncio.timeout(10):
                store = SQLiteStore(tmp_path / "test.db")
                await store.open()
                await store.close()
        finally:
            gate.set()
            await blocked

    run_async(main())
    left = set(threading.enumerate()) - before
    assert not [one.name for one in left if one.name.startswith("perdure-sqlite")]


def test_a_writer_that_hangs_keeps_neither_the_engine_nor_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller hears of it; other workers see that this one is gone, and the thread ends when the disk answers."""
    monkeypatch.setattr(limits, "CLOSE_SECONDS_MAX", 0.2)
    gate = threading.Event()

    async def main() -> None:
        store = SQLiteStore(tmp_path / "test.db")
        engine = await Engine(store).open()
        writer = store.writer
        assert writer is not None
        hanging = store.writer.submit(lambda _: gate.wait(), ())
        try:
            with pytest.raises(StoreUnavailable, match="did not answer"):
                await engine.close(grace=0.1)
            assert writer._thread.is_alive()
            async with Engine(tmp_path / "test.db", worker=False) as other:
                assert len(await other.store.dead_workers()) == 1
        finally:
            gate.set()
        assert await hanging is True
        await asyncio.to_thread(writer._thread.join, 10)
        assert not writer._thread.is_alive()

    run_async(main())


def test_a_process_ends_although_its_disk_hangs(tmp_path: Path) -> None:
    """A real one: the interpreter waits for no thread of the store's when it exits."""
    with Process("stores.closing:close_with_a_writer_that_hangs", str(tmp_path / "test.db")) as process:
        process.expect("StoreUnavailable")
        assert process.wait(20) == 0
