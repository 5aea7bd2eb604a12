"""Many calls, few transactions, and each call keeps its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import RunNotFound, StoreUnavailable, StoreUnusable
from perdure.store.model import Status
from perdure.store.sqlite import SQLiteStore, presence, writer
from perdure.store.sqlite.session import Session
from perdure.store.turn import Committed, Entry, Send
from stores.store_kit import accept, create, event, finishing, outcome, row_of, send, step_row, turn


def on_store(tmp_path: Path, test: Callable[[SQLiteStore], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = SQLiteStore(tmp_path / "a.db")
        await store.open()
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(main())


def transactions(store: SQLiteStore) -> int:
    return store.writer.transactions


def test_concurrent_calls_share_transactions(tmp_path: Path) -> None:
    """A step costs a share of an fsync: 200 commits at once need far fewer transactions."""

    async def check(store: SQLiteStore) -> None:
        keys = await asyncio.gather(*[create(store, f"r{number}") for number in range(200)])
        before = transactions(store)
        results = await asyncio.gather(*[store.commit([turn(key, 2, step_row(2))]) for key in keys])
        assert all(isinstance(result, Committed) for (result,) in results)
        assert transactions(store) - before < 20

    on_store(tmp_path, check)


def test_a_common_turn_writes_three_pages(tmp_path: Path) -> None:
    """The run, the record, its place in the index; a change of status touches no other index."""

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        wal = Path(store.path + "-wal")
        for seq, status in enumerate((Status.WAITING, Status.RUNNING, Status.RUNNING), 2):
            before = wal.stat().st_size
            await accept(store, turn(key, seq, step_row(seq), status=status, wake_at=seq, frontier=b"{}"))
            assert (wal.stat().st_size - before) / (4096 + 24) == 3

    on_store(tmp_path, check)


def test_a_failing_call_does_not_disturb_its_neighbours(tmp_path: Path) -> None:
    """One raises before it writes, one in the middle: both leave nothing, the others are durable."""

    def half(session: Session) -> None:
        session.execute("UPDATE runs SET status = 'broken'")
        raise LookupError("half way")

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        broken_send = Send(target="nobody", item=event(), refused={})
        results = await asyncio.gather(
            outcome(store.commit([turn(key, 2, step_row(2))])),
            outcome(store.append("nobody", event(), 1)),
            outcome(store.writer.submit(half, ())),
            outcome(store.commit([turn(key, 3, Entry(step_row(3), broken_send))])),
            outcome(store.append("a", event(), 1)),
        )
        assert isinstance(results[0], list)
        assert isinstance(results[1], RunNotFound)
        assert isinstance(results[2], LookupError)
        assert isinstance(results[3], KeyError)
        assert not isinstance(results[4], Exception)
        row = await row_of(store, "a")
        assert (row.status, row.next_seq) == ("running", 3)
        assert len(await store.inbox(key, 9)) == 1
        await accept(store, turn(key, 3, step_row(3)))

    on_store(tmp_path, check)


def test_a_locked_file_is_an_outage_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS B4: beyond the busy timeout calls fail and write nothing; the same calls succeed afterwards."""
    monkeypatch.setattr(writer, "SQLITE_BUSY_SECONDS", 0.05)

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        await create(store, "b")  # on the loop's thread: leaves the short timeout behind
        foreign = apsw.Connection(store.path)
        foreign.execute("BEGIN IMMEDIATE")
        one = turn(key, 2, step_row(2))
        with pytest.raises(StoreUnavailable, match="locked by another process"):
            await store.commit([one])
        foreign.execute("COMMIT")
        foreign.close()
        assert not (await accept(store, one)).repeated

    on_store(tmp_path, check)


def test_a_full_disk_is_an_outage_that_ends(tmp_path: Path) -> None:
    """FAULTS B5: the error names the path and the free bytes, no part of a turn is kept, and work goes on after."""

    async def check(store: SQLiteStore) -> None:
        key, target = await create(store, "a"), await create(store, "b")
        pages: int = await store.writer.submit(lambda session: session.value("PRAGMA page_count"), ())
        await store.writer.submit(lambda session: session.execute(f"PRAGMA max_page_count = {pages + 2}"), ())
        big = turn(key, 2, send(2, "b"), step_row(3, b'"' + b"x" * 100_000 + b'"'))
        with pytest.raises(StoreUnavailable, match=r"no space left for .*a\.db: [\d]+ bytes are free"):
            await store.commit([big])
        assert list(await store.inbox(target, 9)) == []
        assert (await row_of(store, "a")).next_seq == 2
        await store.writer.submit(lambda session: session.execute("PRAGMA max_page_count = 1000000"), ())
        await accept(store, big)

    on_store(tmp_path, check)


def test_after_an_io_error_the_connection_is_new(tmp_path: Path) -> None:
    """FAULTS B6: everything in the group has an unknown outcome, and nothing of the old connection is trusted."""

    def broken(session: Session) -> None:
        raise apsw.IOError("disk I/O error")

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        old = store.writer.session
        results = await asyncio.gather(
            outcome(store.writer.submit(broken, ())), outcome(store.commit([turn(key, 2, step_row(2))]))
        )
        assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
        await accept(store, turn(key, 2, step_row(2)))
        assert store.writer.session is not old

    on_store(tmp_path, check)


def test_a_replaced_file_stops_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS B7: what is written to a deleted file is lost, so nothing more is accepted."""
    monkeypatch.setattr(presence, "FILE_CHECK_SECONDS", 0.0)

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        Path(store.path).rename(tmp_path / "moved.db")
        for _ in range(2):
            with pytest.raises(StoreUnusable, match="deleted or replaced"):
                await store.commit([turn(key, 2, step_row(2))])
        (tmp_path / "moved.db").rename(store.path)
        await accept(store, turn(key, 2, step_row(2)))

    on_store(tmp_path, check)


def test_a_cancelled_caller_changes_nothing_for_the_others(tmp_path: Path) -> None:
    """The change happens all the same; asking again is safe (law 6)."""

    async def check(store: SQLiteStore) -> None:
        keys = [await create(store, f"r{number}") for number in range(3)]
        futures = [store.commit([finishing(key, 2)]) for key in keys]
        futures[1].cancel()
        await asyncio.gather(futures[0], futures[2])
        assert (await accept(store, finishing(keys[1], 2))).repeated

    on_store(tmp_path, check)


@pytest.mark.parametrize("where", ["carry_out", "after_round"])
def test_a_bug_in_a_round_is_heard_and_does_not_end_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Nothing hangs without a word: the waiter gets the error, and the next call is served."""

    async def check(store: SQLiteStore) -> None:
        key = await create(store, "a")
        thread = writer.Writer
        usual = getattr(thread, where)

        def fails_once(self: writer.Writer, *args: Any) -> Any:
            monkeypatch.setattr(thread, where, usual)
            raise RecursionError("a bug")

        monkeypatch.setattr(thread, where, fails_once)
        calls = [store.release("w1", []) for _ in range(3)]
        heard = [await outcome(call) for call in calls]
        assert isinstance(heard[0], StoreUnavailable) is (where == "carry_out")
        await accept(store, turn(key, 2, step_row(2)))

    on_store(tmp_path, check)
