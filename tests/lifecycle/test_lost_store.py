"""A file of the store is deleted or replaced while it is open: nothing hangs, it is said once, and what was
acknowledged is not lost where that can be helped."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, event, receive, step, workflow
from perdure.errors import StoreLost
from perdure.store.model import Status
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore, presence
from perdure.store.sqlite.queries import SQL
from stores.store_kit import accept, create, row_of, step_row, turn
from support.lives import run_async


@step
async def waits_in_a_step() -> None:
    await asyncio.Event().wait()


@workflow
async def in_a_step() -> None:
    await waits_in_a_step()


@event
@dataclass
class Awaited:
    number: int


@workflow
async def for_an_event() -> Awaited:
    return await receive(Awaited)


def _delete(name: str) -> Callable[[Path], None]:
    return lambda path: Path(f"{path}{name}").unlink()


def _replace(name: str) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        shutil.copy(f"{path}{name}", f"{path}.copy")
        os.replace(f"{path}.copy", f"{path}{name}")

    return replace


ACCIDENTS = {
    f"{what} {name or 'database'}": make(name)
    for name in ("", "-wal", "-shm")
    for what, make in (("deleted", _delete), ("replaced", _replace))
}


@pytest.fixture(autouse=True)
def _looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "FILE_CHECK_SECONDS", 0.0)


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_nothing_more_is_acknowledged(tmp_path: Path, accident: str) -> None:
    """FAULTS B7: neither a commit, alone or among others, nor a read takes such a file for the store; and closing is
    quiet."""

    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        key = await create(store, "a")
        assert await store.get("a") is not None
        ACCIDENTS[accident](tmp_path / "a.db")
        for _ in range(2):
            with pytest.raises(StoreLost, match=r"a\.db.* was deleted or replaced while it was open"):
                await store.commit([turn(key, 2, step_row(2))])
            with pytest.raises(StoreLost):
                await store.release("w1", [])
            with pytest.raises(StoreLost):
                await store.get("a")
        await store.close()

    run_async(main())


def test_what_was_acknowledged_before_is_in_the_database(tmp_path: Path) -> None:
    """A -wal file that is deleted takes with it what was committed since the last checkpoint, unless the process that
    still has it copies it into the database: as soon as it notices, for it may be killed before it closes."""
    path = tmp_path / "a.db"

    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        await accept(store, turn(await create(store, "a"), 2, step_row(2)))
        _delete("-wal")(path)
        with pytest.raises(StoreLost):
            await create(store, "b")
        # What a process that starts after a kill finds: the database, and no -wal.
        shutil.copy(path, tmp_path / "found.db")
        await store.close()
        found = SQLiteStore(tmp_path / "found.db")
        await found.open()
        assert (await row_of(found, "a")).next_seq == 3
        await found.close()

    run_async(main())


#: Another process on the same database; it may go when it has closed.
FINISHES = """
import asyncio, sys
from perdure.store.sqlite import SQLiteStore
from perdure.testing.store.kit import accept, finishing
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    await accept(store, finishing(1, 2))
    await store.close()
asyncio.run(main())
"""


def test_what_another_process_wrote_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """It began with a -wal and a -shm of its own: this process, which still has the old ones, copies nothing over what
    the other one committed, neither when it notices nor when it closes."""
    path = tmp_path / "a.db"

    async def main() -> None:
        store = SQLiteStore(path)
        await store.open()
        key = await create(store, "a")
        store.writer.wal.checkpoint(SQL["checkpoint"])
        await accept(store, turn(key, 2, step_row(2)))
        for name in ("-wal", "-shm"):
            _delete(name)(path)
        subprocess.run([sys.executable, "-c", FINISHES, path], check=True, timeout=30)
        with pytest.raises(StoreLost):
            await create(store, "b")
        await store.close()
        found = SQLiteStore(path)
        await found.open()
        assert (await row_of(found, "a")).status == "completed"
        await found.close()

    run_async(main())


@pytest.mark.parametrize("accident", ["deleted database", "deleted -wal", "replaced database"])
@pytest.mark.parametrize("waiting", [in_a_step, for_an_event], ids=["in a step", "for an event"])
def test_every_waiter_hears_of_it(
    tmp_path: Path, accident: str, waiting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`result()` of a run in memory, of one elsewhere, and `start` raise; the log says it once; the engine closes."""

    async def main() -> None:
        async with Engine(tmp_path / "a.db") as engine, Engine(tmp_path / "a.db", worker=False) as client:
            run = await engine.start(waiting(), id="a")
            waits = [asyncio.ensure_future(each.result()) for each in (run, client.get("a"))]
            await asyncio.sleep(0)
            assert (await run.status()).status in (Status.RUNNING, Status.WAITING)
            ACCIDENTS[accident](tmp_path / "a.db")
            for each in waits:
                with pytest.raises(StoreLost):
                    await each
            await engine.lost.wait()
            with pytest.raises(StoreLost):
                await engine.start(waiting(), id="b")
            with pytest.raises(StoreLost):
                await run.result()

    with caplog.at_level(logging.INFO, "perdure"):
        run_async(main())
    said = [record for record in caplog.records if "deleted or replaced" in record.getMessage()]
    assert [record.levelname for record in said] == ["CRITICAL"]


def test_a_commit_that_finds_out_ends_the_worker(tmp_path: Path) -> None:
    """Not only a sweep, which may come later: a turn that cannot be stored is not tried again and again."""
    began = asyncio.Event()

    @step
    async def goes_on() -> None:
        began.set()

    @workflow
    async def steps_without_end() -> None:
        while True:
            await goes_on()

    async def main() -> None:
        async with Engine(tmp_path / "a.db", sweep_interval=600) as engine:
            engine.parts.sweep.hint = lambda: None  # type: ignore[method-assign, union-attr]
            run = await engine.start(steps_without_end(), id="a")
            await began.wait()
            _delete("")(tmp_path / "a.db")
            with pytest.raises(StoreLost):
                await run.result()

    run_async(main())


def test_closing_the_last_connection_is_no_accident(tmp_path: Path) -> None:
    """SQLite itself removes -wal and -shm with the last connection: a writer that had to give its connection up goes
    on with new ones."""

    async def main() -> None:
        store: Store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        key = await create(store, "a")
        store.writer.drop()
        assert not (tmp_path / "a.db-wal").exists()
        await accept(store, turn(key, 2, step_row(2)))
        assert (await row_of(store, "a")).next_seq == 3
        await store.close()

    run_async(main())
