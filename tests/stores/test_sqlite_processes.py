"""Several real processes on one file: death is seen at once, nothing is lost, forks are refused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from perdure.errors import EngineNotOpen
from perdure.store.sqlite import SQLiteStore
from stores.store_kit import create, row_of, worker

HOLD = """
import asyncio, sys
from perdure.store.sqlite import SQLiteStore
from stores.store_kit import create, worker
async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    await store.register_worker(worker("doomed"))
    for number in range(3):
        await create(store, f"r{number}", owner="doomed")
    print("holding", flush=True)
    sys.stdin.readline()
asyncio.run(main())
"""

LEAVE = """
import asyncio, sys
from perdure.store.sqlite import SQLiteStore
from stores.store_kit import create
loop = asyncio.new_event_loop()
store = SQLiteStore(sys.argv[1])
loop.run_until_complete(store.open())
loop.run_until_complete(create(store, "r"))
loop.run_until_complete(store.get("r"))
"""


def start(code: str, path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *options, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


def expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line + "\n"


def test_a_killed_worker_is_seen_at_once(tmp_path: Path) -> None:
    """FAULTS A3, A21: SIGKILL, then the very next reap frees its runs; while it lived, nothing was taken from it."""
    path = tmp_path / "a.db"
    process = start(HOLD, path)
    expect(process, "holding")

    async def check() -> None:
        store = SQLiteStore(path)
        await store.open()
        await store.register_worker(worker("w2"))
        assert await store.reap("w2", 50) == 0
        process.kill()
        process.communicate()
        assert await store.reap("w2", 50) == 3
        assert [info.id for info in await store.workers()] == ["w2"]
        assert len(await store.claim("w2", 50, 9)) == 3
        assert [path.name for path in tmp_path.glob("*.lock")] == ["a.db-worker-w2.lock"]
        await store.unregister_worker("w2", 60)
        await store.close()
        assert list(tmp_path.glob("*.lock")) == []

    asyncio.run(check())


def test_a_stopped_worker_is_not_dead(tmp_path: Path) -> None:
    """FAULTS C3 on SQLite: a process that is only paused keeps its lock, so its runs are not taken."""
    path = tmp_path / "a.db"
    process = start(HOLD, path)
    expect(process, "holding")
    process.send_signal(signal.SIGSTOP)

    async def check() -> None:
        store = SQLiteStore(path)
        await store.open()
        assert await store.reap("w2", 50) == 0
        await store.close()

    asyncio.run(check())
    process.send_signal(signal.SIGCONT)
    process.communicate("go\n")


def test_two_reapers_free_a_run_once(tmp_path: Path) -> None:
    """FAULTS C18: sweeps are idempotent, also two at the same time."""
    path = tmp_path / "a.db"
    process = start(HOLD, path)
    expect(process, "holding")
    process.kill()
    process.communicate()

    async def check() -> None:
        stores = [SQLiteStore(path), SQLiteStore(path)]
        for store in stores:
            await store.open()
        freed = await asyncio.gather(*[store.reap(f"w{n}", 50) for n, store in enumerate(stores)])
        assert sum(freed) + await stores[0].reap("w0", 50) == 3
        for store in stores:
            await store.close()

    asyncio.run(check())


def test_leaving_without_close_is_quiet(tmp_path: Path) -> None:
    """FAULTS O25: the interpreter exits at once, without a traceback, and what was acknowledged is there."""
    process = start(LEAVE, tmp_path / "a.db", "-X", "dev", "-W", "ignore::ResourceWarning")
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")

    async def check() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        await row_of(store, "r")
        await store.close()

    asyncio.run(check())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    """FAULTS C11, O15: an error on the first call; the child's exit harms neither the file nor the parent's lock."""

    async def check() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        await store.register_worker(worker("w1"))
        await create(store, "r")
        child = _fork_without_warning()
        if child == 0:
            os._exit(_child(store))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        other = SQLiteStore(tmp_path / "a.db")
        await other.open()
        assert await other.reap("w2", 50) == 0, "the parent still holds its lock"
        await create(store, "after")
        assert await other.get("after") is not None
        await other.close()
        await store.close()

    asyncio.run(check())


def _fork_without_warning() -> int:
    with warnings.catch_warnings():
        # 3.12 warns about forking with threads, which is the point here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _child(store: SQLiteStore) -> int:
    try:
        store.commit([])
    except EngineNotOpen as error:
        return 0 if "forked child" in str(error) else 2
    except BaseException:
        return 3
    return 1


def test_two_processes_write_side_by_side(tmp_path: Path) -> None:
    """FAULTS O10: single writer by BEGIN IMMEDIATE; every acknowledged run is there."""
    path = tmp_path / "a.db"
    code = HOLD.replace("range(3)", "range(100)")
    process = start(code, path)

    async def check() -> None:
        store = SQLiteStore(path)
        await store.open()
        await asyncio.gather(*[create(store, f"mine{number}") for number in range(100)])
        await asyncio.to_thread(expect, process, "holding")
        assert sum((await store.count_runs()).values()) == 200
        await store.close()

    asyncio.run(check())
    process.communicate("go\n")
