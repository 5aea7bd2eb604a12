"""`export` and `import`: a run as one file, byte for byte; damaged and foreign files are refused and leave no trace."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from admin.flows import Outside, reaches
from events.kinds import Note, Tick
from perdure import RunNotFound, continue_as, receive, state, step, workflow
from perdure.admin import transfer
from perdure.errors import BadArgument, ExportUnusable, RunConflict
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from perdure.types import Status
from stores.store_kit import everything
from support.lives import Lives, run_async

outside = Outside()


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()


@step
async def act(what: str) -> str:
    return await outside.do(what)


@workflow
async def subscription(month: int = 1) -> str:
    state["month"] = month
    await act(f"bill {month} \N{SNOWMAN}")
    note = await receive(Note)
    if month < 3:
        await continue_as(month + 1)
    await asyncio.gather(act("a"), act("b"))
    return f"ended by {note.text}"


async def half_way(lives: Lives) -> bytes:
    """A run in its second generation, with unread events; exported while it waits."""
    async with lives.engine() as engine:
        await engine.start(subscription(), id="run")
        await engine.send("run", Note("on"))
        await engine.send("run", Tick(1))
        async with asyncio.timeout(20):
            while (view := await engine.status("run")).generation < 2 or view.status is not Status.WAITING:
                await asyncio.sleep(0.005)
        return await engine.admin.export_run("run")


def test_an_imported_run_goes_on_where_it_was(lives: Lives) -> None:
    """Into another store, of another kind; it is paused until somebody says so."""

    async def main() -> None:
        data = await half_way(lives)
        elsewhere = lives.fresh()
        elsewhere.kind = "memory" if lives.kind == "sqlite" else "sqlite"
        outside.reset()
        async with elsewhere.engine() as engine:
            copied = engine.get(await engine.admin.import_run(data, source="run.json"))
            view = await copied.status()
            assert (view.status, view.generation, view.state) == (Status.PAUSED, 2, {"month": 2})
            assert "imported from run.json" in (view.reason or "")
            assert [entry.kind for entry in await engine.admin.history("run", generation=1)][-1] == "continued"
            assert await engine.admin.unpause("run")
            for word in ("on", "bob"):
                await copied.send(Note(word))
            assert await copied.result(timeout=20) == "ended by bob"
        assert outside.done == {"bill 3 \N{SNOWMAN}": 1, "a": 1, "b": 1}, "nothing recorded ran again"

    run_async(main())


def test_a_finished_run_is_the_same_elsewhere(lives: Lives) -> None:
    """Every row, byte for byte, whatever store it came from; exporting the copy gives the same file."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(subscription(3), id="run")
            await engine.send("run", Note("x"))
            await engine.result("run", timeout=20)
            data = await engine.admin.export_run("run")
            _, journals, _ = await everything(engine.store, "run")
        elsewhere = lives.fresh()
        async with elsewhere.engine() as engine:
            await engine.admin.import_run(data)
            assert await engine.result("run", timeout=20) == "ended by x"
            row, copied, inbox = await everything(engine.store, "run")
            assert copied == journals
            assert (row.status, inbox) == (Status.COMPLETED, [])
            assert await engine.admin.export_run("run") == data
            handle = engine.get(await engine.admin.import_run(data, id="copy"))
            assert await handle.result(timeout=20) == "ended by x"

    run_async(main())


def test_importing_again_changes_nothing_and_a_namesake_is_a_conflict(lives: Lives) -> None:
    """Law 6: the repeat of an import whose answer got lost; and the original itself is left alone."""

    async def main() -> None:
        data = await half_way(lives)
        async with lives.engine(worker=False) as client:
            before = await everything(client.store, "run")
            await client.admin.import_run(data)
            assert await everything(client.store, "run") == before
            await client.admin.import_run(data, id="copy")
            await client.admin.import_run(data, id="copy")
            assert len(await client.list()) == 2
            await client.start(subscription(), id="other")
            with pytest.raises(RunConflict, match="'other' already exists"):
                await client.admin.import_run(data, id="other")
            with pytest.raises(BadArgument):
                await client.admin.import_run(data, id="a/b")
            with pytest.raises(RunNotFound):
                await client.admin.export_run("nobody")

    run_async(main())


def test_an_open_run_may_go_on_at_once_if_asked(lives: Lives) -> None:
    async def main() -> None:
        data = await half_way(lives)
        async with lives.fresh().engine() as engine:
            copied = engine.get(await engine.admin.import_run(data, paused=False))
            await reaches(engine, "run", Status.WAITING)
            assert (await copied.status()).waiting[0].detail == "'tests.note'"

    run_async(main())


def damaged(data: bytes) -> list[tuple[str, bytes]]:
    """Every kind of file that is not an export as it was written."""
    file = json.loads(data)

    def sealed(change: Any) -> bytes:
        """A body that was changed by somebody who also made a fitting checksum."""
        body = json.loads(data)["body"]
        change(body)
        raw = msgspec.json.encode(body)
        return msgspec.json.encode({**file, "checksum": transfer._checksum(raw), "body": msgspec.Raw(raw)})

    def cut_journal(body: Any) -> None:
        del body["journals"][0]["records"][1]

    def first_gone(body: Any) -> None:
        del body["journals"][-1]["records"][0]

    def other_data(body: Any) -> None:
        body["journals"][-1]["records"][-1]["data"]["value"] = "forged"

    def future_kind(body: Any) -> None:
        body["journals"][-1]["records"][-1]["kind"] = "teleported"

    def no_journal(body: Any) -> None:
        body["journals"] = []

    def bad_status(body: Any) -> None:
        body["status"] = "confused"

    def half_ended(body: Any) -> None:
        body["status"] = "completed"

    def bad_id(body: Any) -> None:
        body["id"] = "a\0b"

    def bad_item(body: Any) -> None:
        body["inbox"][0]["kind"] = "bomb"

    return [
        ("empty", b""),
        ("not JSON", b"\x89PNG"),
        ("not UTF-8", b'{"format": "\xff"}'),
        ("foreign", b'{"hello": "world"}'),
        ("other format", data.replace(b"perdure-run", b"perdure-cat")),
        ("newer", data.replace(b'"version":1', b'"version":9', 1)),
        ("cut", data[: len(data) // 2]),
        ("reformatted", json.dumps(json.loads(data), indent=1).encode()),
        ("one letter", data.replace(b"bill 2", b"bill 3", 1)),
        ("a record missing", sealed(cut_journal)),
        ("the first record missing", sealed(first_gone)),
        ("a record changed", sealed(other_data)),
        ("a kind of the future", sealed(future_kind)),
        ("no journal", sealed(no_journal)),
        ("no such status", sealed(bad_status)),
        ("ended without an end", sealed(half_ended)),
        ("a bad id", sealed(bad_id)),
        ("a bad item", sealed(bad_item)),
    ]


def test_damaged_and_foreign_files_are_refused_and_leave_no_trace(lives: Lives) -> None:
    """Bad input: a clear error, nothing written."""

    async def main() -> None:
        data = await half_way(lives)
        async with lives.fresh().engine(worker=False) as client:
            for what, wrong in damaged(data):
                with pytest.raises(ExportUnusable, match=r"x\.json .*[Nn]othing was written") as refused:
                    await client.admin.import_run(wrong, source="x.json")
                assert await client.list() == [], what
                assert "Traceback" not in str(refused.value)
            await client.admin.import_run(data)  # the checks do not refuse everything

    run_async(main())


def test_every_bit_of_the_file_is_covered(lives: Lives) -> None:
    """Flipping any byte of the body is noticed."""

    async def main() -> None:
        data = await half_way(lives)
        start = data.index(b'"body":') + 7
        for position in range(start, len(data) - 2, 37):
            wrong = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
            with pytest.raises(ExportUnusable):
                transfer.read(wrong)
        assert transfer.read(data).id == "run"

    run_async(main())


def test_stores_take_a_snapshot_as_it_is(tmp_path: Any) -> None:
    """The two stores hold the same after the same import."""

    async def main() -> None:
        source = Lives("memory", tmp_path)
        data = await half_way(source)
        seen = []
        for store in (MemoryStore(), SQLiteStore(tmp_path / "a.db")):
            await store.open()
            await transfer.import_run(store, data)
            row, journals, inbox = await everything(store, "run")
            seen.append((msgspec.structs.replace(row, key=0, last_item=0), journals, [i.data for i in inbox]))
            await store.close()
        assert seen[0] == seen[1]

    run_async(main())
