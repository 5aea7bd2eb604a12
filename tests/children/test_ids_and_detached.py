"""Children with an id of their own, and children that are independent."""

from __future__ import annotations

import pytest

from events.kinds import Note
from perdure import Engine, RunCancelled, info, receive, start_child, step, workflow
from perdure.errors import RunConflict
from perdure.types import Status
from support.lives import Lives, run_async, until


@step
async def touch() -> None:
    return None


@workflow
async def patient(number: int) -> str:
    return f"{number} {(await receive(Note)).text}"


@workflow
async def with_an_id(child_id: str) -> str:
    handle = await start_child(patient(1), id=child_id)
    await touch()
    return f"{handle.id}: {await handle}"


@workflow
async def with_a_taken_id(child_id: str) -> str:
    try:
        await start_child(patient(2), id=child_id)
    except RunConflict as error:
        await touch()
        return f"conflict: {error}"
    return "no conflict"


@workflow
async def same_id_twice() -> str:
    await start_child(patient(1), id="same")
    try:
        await start_child(patient(1), id="same")
    except RunConflict:
        await touch()
        return "conflict"
    return "no conflict"


@workflow
async def detaching() -> str:
    handle = await start_child(patient(3), detach=True)
    await touch()
    return handle.id


@workflow
async def detaching_and_waiting() -> None:
    await start_child(patient(3), id="free", detach=True)
    await receive(Note)


@workflow
async def who_is_my_parent() -> str | None:
    return info().parent


@workflow
async def ask_for_parents() -> list[str | None]:
    mine = info().parent
    return [mine, await who_is_my_parent()]


def test_a_child_can_have_an_id_of_its_own(lives: Lives) -> None:
    """CONFORMANCE C7: others find it by that id. With a crash after every record."""

    async def main() -> None:
        async def act(engine: Engine) -> str:
            run = await engine.start(with_an_id("chosen"), id="run")

            async def started() -> bool:
                return bool(await engine.list(id_prefix="chosen"))

            await until(started)
            await engine.send("chosen", Note("hello"), key="hello")
            return await run.result()

        for before in (False, True):
            died, limit = True, 0
            while died:
                limit += 1
                one = lives.fresh()
                died = await one.live_until(limit, act, before=before)
                async with one.engine() as engine:
                    assert await act(engine) == "chosen: 1 hello"

    run_async(main(), patience=60)


def test_a_taken_id_raises_run_conflict_and_the_same_on_replay(lives: Lives) -> None:
    """CONFORMANCE C7: the run that had the id is not disturbed."""

    async def main() -> None:
        async def act(engine: Engine) -> str:
            await engine.start(patient(1), id="taken")
            return await (await engine.start(with_a_taken_id("taken"), id="run")).result()

        for limit in range(1, 8):
            one = lives.fresh()
            await one.live_until(limit, act)
            async with one.engine() as engine:
                assert (await act(engine)).startswith("conflict: a run 'taken' already exists")
                await engine.send("taken", Note("still here"))
                assert await engine.result("taken") == "1 still here"

    run_async(main())


def test_the_same_id_twice_in_one_parent_is_a_conflict(lives: Lives) -> None:
    """CONFORMANCE C7: the second is another child, so it may not silently be the first."""
    assert run_async(lives.crash_at_every_record(same_id_twice)) == "conflict"


def test_a_detached_child_survives_its_parents_end(lives: Lives) -> None:
    """CONFORMANCE C7: it is neither cancelled nor awaited."""

    async def main() -> None:
        async with lives.engine() as engine:
            child_id = await (await engine.start(detaching(), id="run")).result()
            assert child_id == "run/patient"
            await engine.send(child_id, Note("alone"))
            assert await engine.result(child_id) == "3 alone"

    run_async(main())


def test_a_detached_child_survives_the_cancel_of_its_parent(lives: Lives) -> None:
    """CONFORMANCE C7: cancel and terminate of the parent leave it alone."""

    async def main() -> None:
        for end in ("cancel", "terminate"):
            async with lives.fresh().engine() as engine:
                run = await engine.start(detaching_and_waiting(), id="run")

                async def waits(engine: Engine = engine) -> bool:
                    return any(w.kind == "receive" for w in (await engine.status("run")).waiting)

                await until(waits)
                await getattr(engine.admin, end)("run")
                with pytest.raises(RunCancelled):
                    await run.result()
                await engine.send("free", Note("alone"))
                assert await engine.result("free") == "3 alone"
                assert (await engine.status("free")).status is Status.COMPLETED

    run_async(main())


def test_a_child_knows_its_parent(lives: Lives) -> None:
    """CONFORMANCE C7: info().parent."""
    assert run_async(lives.crash_at_every_record(ask_for_parents)) == [None, "run"]
