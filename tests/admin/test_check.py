"""`check`: every open run replayed against the code on disk, and nothing written."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from change.lives_of_a_file import workflow_name
from change.versions_of_a_file import SourceFile
from events.kinds import Note
from perdure import Engine
from perdure.admin import Checked
from perdure.authoring.registry import Registry
from perdure.types import Status
from stores.store_kit import accept, everything, finishing, new_run, turn
from support.effects import Effects
from support.lives import Lives, run_async, until


@pytest.fixture
def source(tmp_path: object, effects: Effects) -> SourceFile:
    return SourceFile(effects.path.parent / "orders.py", effects)


OLD = """
    @workflow
    async def NAME(kind: str) -> str:
        await charge()
        if kind == "long":
            await reserve()
        await receive(Note)
        return await ship()
    """


async def all_wait(engine: Engine, count: int) -> None:
    async def there() -> bool:
        views = await engine.list(status="waiting", limit=1000)
        return len([view for view in views if any(wait.kind == "receive" for wait in view.waiting)]) == count

    await until(there)


async def checked(engine: Engine) -> dict[str, Checked]:
    return {run.id: run async for run in engine.admin.check()}


def test_runs_that_would_break_are_named_with_both_lines(lives: Lives, source: SourceFile, effects: Effects) -> None:
    """Bar 6, FAULTS O5: the fine ones are fine, the others say where; nothing runs and nothing is written."""
    name = workflow_name()
    old = OLD.replace("NAME", name)

    async def main() -> None:
        module = source.load(old)
        async with lives.engine() as engine:
            for number in range(6):
                await engine.start(module[name]("long" if number % 3 == 0 else "short"), id=f"run-{number}")
            await engine.start(module[name]("short"), id="ended")
            await engine.send("ended", Note("x"))
            await engine.result("ended", timeout=20)
            await all_wait(engine, 6)
            recorded = source.line_of("await reserve()")
        done = effects.lines()
        source.load(old.replace("await reserve()", "await notify()"), above="# moved down\n")
        async with lives.engine(worker=False) as client:
            before = [await everything(client.store, f"run-{number}") for number in range(6)]
            found = await checked(client)
            assert [await everything(client.store, f"run-{number}") for number in range(6)] == before
        assert effects.lines() == done
        assert set(found) == {f"run-{number}" for number in range(6)}
        bad = {run_id for run_id, run in found.items() if not run.is_fine}
        assert bad == {"run-0", "run-3"}
        text = found["run-3"].text
        assert found["run-3"].verdict == "diverged"
        assert "step 'reserve'" in text
        assert f"orders.py:{recorded}" in text
        assert "step 'notify'" in text
        assert f"orders.py:{source.line_of('await notify()')}" in text
        assert found["run-3"].status is Status.WAITING
        assert "The run would be parked, with nothing lost." in text
        assert "is parked" not in text
        assert "perdure resume" not in text

    run_async(main())


def test_other_ways_to_break(lives: Lives, source: SourceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bar 6: an unknown workflow, a type that no longer fits, a record that is damaged; and a warning that is none."""
    name = workflow_name()
    old = OLD.replace("NAME", name)

    async def main() -> None:
        module = source.load(old)
        async with lives.engine() as engine:
            await engine.start(module[name]("short"), id="run")
            await all_wait(engine, 1)
        async with lives.engine(worker=False) as client:
            assert (await checked(client))["run"].is_fine
            async with lives.engine(worker=False, registry=Registry()) as other:
                assert (await checked(other))["run"].verdict == "unknown"
            source.load(old.replace("kind: str", "kind: int"))
            assert (await checked(client))["run"].verdict == "undecodable"
            source.load(old.replace("await charge()", "await charge(2)"))
            warned = (await checked(client))["run"]
            assert warned.is_fine
            assert "other arguments" in warned.warnings[0]
            source.load(old.replace("await charge()", "1 / 0"))
            assert (await checked(client))["run"].verdict == "diverged"
            source.load(old.replace("await charge()", "await asyncio.get_running_loop().create_future()"))
            assert (await checked(client))["run"].verdict == "broken"
            source.load(old)
            assert (await checked(client))["run"].is_fine

    run_async(main())


def test_parked_and_paused_runs_are_checked_too(lives: Lives, source: SourceFile) -> None:
    """Bar 6: would they go on now?"""
    name = workflow_name()
    old = OLD.replace("NAME", name)

    async def main() -> None:
        module = source.load(old)
        async with lives.engine() as engine:
            for run_id in ("parked", "paused"):
                await engine.start(module[name]("short"), id=run_id)
            await all_wait(engine, 2)
            await engine.admin.pause("paused")
            row = await engine.store.get("parked")
            assert row is not None
            await engine.store.park(row.key, row.epoch, "because", 1)
            found = await checked(engine)
            assert {run.status for run in found.values()} == {Status.PARKED, Status.PAUSED}
            assert all(run.is_fine for run in found.values())
            assert [run async for run in engine.admin.check("another workflow")] == []
            source.load(old.replace("await charge()", "await notify()"))
            found = await checked(engine)
            assert "The run is parked and nothing was lost." in found["parked"].text
            assert "The run would be parked" in found["paused"].text

    run_async(main())


def test_runs_that_move_while_they_are_checked_raise_no_false_alarm(lives: Lives, source: SourceFile) -> None:
    """CONFORMANCE L5: each is seen as it was at one moment."""
    name = workflow_name()

    async def main() -> None:
        module = source.load(OLD.replace("NAME", name))
        async with lives.engine() as engine:
            for number in range(60):
                await engine.start(module[name]("long"), id=f"run-{number}")
            seen = []
            async for run in engine.admin.check():
                seen.append(run)
                await engine.send(f"run-{len(seen) - 1}", Note("on"), key="on")
            assert [run.text for run in seen if not run.is_fine] == []
            for number in range(60):
                await engine.send(f"run-{number}", Note("on"), key="on")
                assert await engine.result(f"run-{number}", timeout=20) == "shipped"

    run_async(main())


def test_5000_open_runs_take_less_than_30_seconds(lives: Lives, source: SourceFile) -> None:
    """Bar 6"""
    name = workflow_name()

    async def main() -> None:
        module = source.load(OLD.replace("NAME", name))
        async with lives.engine() as engine:
            await engine.start(module[name]("long"), id="run")
            await all_wait(engine, 1)
            store = engine.store
            row, (journal,), _ = await everything(store, "run")
        await store.open()
        first = turn(0, 2, *journal[1:], status=Status.WAITING, frontier=row.frontier, at=row.updated_at)
        copies = (new_run(f"copy-{number}", workflow=name) for number in range(4_999))
        await asyncio.gather(*(store.create(msgspec.structs.replace(one, started=journal[0]), first) for one in copies))
        await store.close()
        async with lives.engine(worker=False) as client:
            began = time.monotonic()
            found = await checked(client)
            took = time.monotonic() - began
        assert len(found) == 5_000
        assert all(run.is_fine for run in found.values())
        assert took < 30

    run_async(main(), patience=120)


def test_nothing_open(lives: Lives) -> None:
    async def main() -> None:
        store = lives.store()
        await store.open()
        from stores.store_kit import create

        key = await create(store, "ended")
        await accept(store, finishing(key, 2))
        await store.close()
        async with lives.engine(worker=False) as client:
            assert await checked(client) == {}

    run_async(main())
