"""Committing on the loop's own thread is a shortcut that nobody can tell, except by the clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from perdure.store.sql import job_thread
from perdure.store.sqlite import SQLiteStore, inline_commit, wal
from perdure.store.sqlite.session import Session
from perdure.testing.store.batches import create_many
from stores.store_kit import accept, create, row_of, step_row, turn


def on_store(tmp_path: Path, test: Callable[[SQLiteStore], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(main())


def thread(session: Session) -> int:
    return threading.get_ident()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk must not decide these tests."""
    monkeypatch.setattr(inline_commit, "INLINE_SECONDS_MAX", 60.0)


def test_a_lone_commit_stays_on_its_thread(tmp_path: Path) -> None:
    async def check(store: SQLiteStore) -> None:
        assert await store._write_inline(thread) == threading.get_ident()

    on_store(tmp_path, check)


def test_a_busy_loop_is_not_held_up(tmp_path: Path) -> None:
    """When the loop has other things to do, the writer thread commits."""

    async def check(store: SQLiteStore) -> None:
        asyncio.get_running_loop().call_soon(lambda: None)
        assert await store._write_inline(thread) != threading.get_ident()

    on_store(tmp_path, check)


class Clock:
    """Stands for the module `time`; each commit takes what it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_slow_disk_is_left_to_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS B24: slow commits take the loop's thread a twentieth of its time; a hiccup changes nothing."""
    clock = Clock()
    monkeypatch.setattr(inline_commit, "time", clock)
    monkeypatch.setattr(wal, "CHECKPOINT_LOOK_TRANSACTIONS", 10**9)
    monkeypatch.setattr(inline_commit, "INLINE_SECONDS_MAX", 0.003)

    def commit(session: Session, seconds: float) -> int:
        clock.now += seconds
        return threading.get_ident()

    async def check(store: SQLiteStore) -> None:
        async def is_here(seconds: float) -> bool:
            return await store._write_inline(commit, seconds) == threading.get_ident()

        for _ in range(20):  # a good disk that hesitates now and then
            assert await is_here(0.010)
            for _ in range(1_000):
                assert await is_here(0.0003)
        slow, last = 0.0, clock.now
        for _ in range(1_000):  # a bad one
            if await is_here(0.010):
                slow += 0.010
        assert slow < (clock.now - last) / 20 + 0.1
        clock.now += 2.0
        assert await is_here(0.0003), "and it is tried again"

    on_store(tmp_path, check)


def test_the_order_of_calls_is_kept(tmp_path: Path) -> None:
    """A turn that could be committed here waits behind those already queued for the writer."""

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        asyncio.get_running_loop().call_soon(lambda: None)
        futures = [store.commit([turn(key, seq, step_row(seq))]) for seq in range(2, 40)]
        await asyncio.gather(*futures)
        assert (await row_of(store, "a")).next_seq == 40

    on_store(tmp_path, check)


def test_a_chain_of_commits_starves_nobody(tmp_path: Path) -> None:
    """Others on the loop get their turn between any two commits, however fast they follow each other."""

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        ticks = 0
        seq = 2

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.0001)

        ticking = asyncio.create_task(tick())
        while ticks < 20:
            await accept(store, turn(key, seq, step_row(seq)))
            seq += 1
            assert seq < 20_000, "the other task never ran"
        ticking.cancel()

    on_store(tmp_path, check)


@pytest.mark.parametrize("here_seconds_max", [30.0, 0.0], ids=["committed-here", "committed-by-the-writer"])
def test_the_wal_is_copied_back_by_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here_seconds_max: float
) -> None:
    """FAULTS O14: the WAL does not grow for ever, although SQLite's own checkpointing is replaced."""
    monkeypatch.setattr(inline_commit, "INLINE_SECONDS_MAX", here_seconds_max)
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(wal, "CHECKPOINT_PUT_OFF_FACTOR", 1)
    monkeypatch.setattr(wal, "CHECKPOINT_LOOK_TRANSACTIONS", 4)

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        for seq in range(2, 300):
            await accept(store, turn(key, seq, step_row(seq)))
        assert Path(store.path + "-wal").stat().st_size < 100 * 4096

    on_store(tmp_path, check)


def test_under_load_copying_is_put_off_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS O14: with a writer that is never idle, the WAL has its limit all the same."""
    monkeypatch.setattr(wal, "CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(wal, "CHECKPOINT_LOOK_TRANSACTIONS", 4)
    monkeypatch.setattr(job_thread, "IDLE_SECONDS", 1_000.0)  # no moment is long enough

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        for seq in range(2, 600):
            await accept(store, turn(key, seq, step_row(seq)))
        assert 20 * 4096 < Path(store.path + "-wal").stat().st_size < 300 * 4096

    on_store(tmp_path, check)


def test_large_groups_after_small_ones_are_seen_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS O14: what small transactions wrote says nothing about those that follow."""
    monkeypatch.setattr(wal, "CHECKPOINT_PUT_OFF_FACTOR", 1)
    monkeypatch.setattr(job_thread, "IDLE_SECONDS", 1_000.0)

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        for seq in range(2, 80):
            await accept(store, turn(key, seq, step_row(seq)))
        assert store.writer.wal.until_look > 100, "nothing was due for long"
        keys = await create_many(store, count=300)
        for seq in range(2, 90):
            assert all(await store.commit([turn(each, seq, step_row(seq)) for each in keys]))
        assert Path(store.path + "-wal").stat().st_size < 2 * wal.CHECKPOINT_PAGES * 4096

    on_store(tmp_path, check)
