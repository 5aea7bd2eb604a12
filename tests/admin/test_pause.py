"""`pause` and `unpause`: a paused run takes no turn and starts no step, hears everything, and goes on where it was."""

from __future__ import annotations

import asyncio

import pytest

from admin.flows import Outside, opened, reaches
from events.kinds import Note
from perdure import Engine, RunNotFound, receive, sleep, step, workflow
from perdure.errors import ActionRefused
from perdure.types import Status
from support.faulty_stores import Call, DisturbedStore
from support.lives import Lives, run_async, until

outside = Outside()


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()


@step
async def act(what: str) -> str:
    return await outside.do(what)


@workflow
async def listening() -> list[str]:
    heard = []
    for _ in range(2):
        heard.append((await receive(Note)).text)
        await act("noted")
    return heard


@workflow
async def working() -> str:
    return await act("long")


@workflow
async def sleeping() -> str:
    await sleep(0.05)
    return await act("woken")


def test_a_paused_run_hears_but_does_not_move(lives: Lives) -> None:
    """CONFORMANCE L4: events arrive and wait; nothing is delivered until it is unpaused, over a restart too."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(listening(), id="run")
            await reaches(engine, "run", Status.WAITING)
            assert await engine.admin.pause("run", by="ann: looking into it")
            assert not await engine.admin.pause("run"), "it is paused already"
            await engine.send("run", Note("one"))
        async with lives.engine() as engine:
            await engine.send("run", Note("two"))
            await engine.start(sleeping(), id="other")
            await engine.result("other", timeout=20)  # time for the worker to make a mistake
            view = await engine.status("run")
            assert (view.status, view.reason) == (Status.PAUSED, "paused by ann: looking into it")
            assert outside.done == {"woken": 1}
            assert await engine.admin.unpause("run")
            assert await engine.result("run", timeout=20) == ["one", "two"]
        assert outside.done == {"woken": 1, "noted": 2}

    run_async(main())


def test_a_running_attempt_is_cancelled_and_runs_again(lives: Lives) -> None:
    """CONFORMANCE L4: as after a crash; the late result of the first attempt is refused."""
    outside.hold = {"long"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(working(), id="run")
            await until(lambda: outside.done["long"] == 1)
            assert await engine.admin.pause("run")
            await until(lambda: engine.worker is not None and not engine.worker.residents.holds("run"))
            outside.hold = set()
            assert (await engine.status("run")).status is Status.PAUSED
            assert (await engine.status("run")).records == 1
            assert await engine.admin.unpause("run")
            assert await engine.result("run", timeout=20) == "long done"
        assert outside.done == {"long": 2}

    run_async(main())


def test_the_worker_of_another_process_lets_go(lives: Lives) -> None:
    """CONFORMANCE L4: notified by its news, it cancels the attempt and gives the run up; nobody claims it."""
    outside.hold = {"long"}

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            await engine.start(working(), id="run")
            await until(lambda: outside.done["long"] == 1)
            assert await client.admin.pause("run")
            await until(lambda: engine.worker is not None and not engine.worker.residents.holds("run"))

            async def given_up() -> bool:
                row = await client.store.get("run")
                return row is not None and row.owner is None

            await until(given_up)
            outside.hold = set()
            assert await client.admin.unpause("run")
            assert await client.result("run", timeout=20) == "long done"

    run_async(main())


def test_a_timer_that_came_due_meanwhile_fires_after_it(lives: Lives) -> None:
    """CONFORMANCE L4, T3: late, once."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(sleeping(), id="run")
            await reaches(engine, "run", Status.WAITING)
            assert await engine.admin.pause("run")
            await asyncio.sleep(0.1)
            assert outside.done == {}
            assert await engine.admin.unpause("run")
            assert await engine.result("run", timeout=20) == "woken done"

    run_async(main())


def test_pausing_and_unpausing_again_and_again_loses_nothing(lives: Lives) -> None:
    """CONFORMANCE L4: however the commands and the worker's turns interleave."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            await engine.start(counting(), id="run")
            for number in range(30):
                await client.send("run", Note(str(number)), key=str(number))
                assert await (client if number % 2 else engine).admin.pause("run")
                assert await (engine if number % 3 else client).admin.unpause("run")
            await client.send("run", Note("30"))
            assert await engine.result("run", timeout=25) == [str(number) for number in range(31)]

    run_async(main())


@workflow
async def counting() -> list[str]:
    return [(await receive(Note)).text for _ in range(31)]


def test_a_worker_that_dies_holding_a_paused_run_leaves_it_paused(lives: Lives) -> None:
    """CONFORMANCE L4: reaping frees it and does not wake it."""
    outside.hold = {"long"}

    async def main() -> None:
        engine = lives.engine(sweep_interval=30)
        await engine.open()
        await engine.start(working(), id="run")
        await until(lambda: outside.done["long"] == 1)
        store = await opened(lives)
        assert await store.pause("run", "paused", 1) is not None
        await lives.crash(engine)
        outside.hold = set()
        async with lives.engine() as later:
            await later.start(sleeping(), id="other")
            await later.result("other", timeout=20)
            assert (await later.status("run")).status is Status.PAUSED
            assert outside.done["long"] == 1
            assert await later.admin.unpause("run")
            assert await later.result("run", timeout=20) == "long done"
        await store.close()

    run_async(main())


def test_paused_between_a_claim_and_its_load(lives: Lives) -> None:
    """CONFORMANCE L4: the worker that claimed it does not begin its step."""

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            await client.start(working(), id="run")
            store = DisturbedStore(lives.store())

            async def pause(_: Call) -> None:
                assert await client.admin.pause("run")

            first = store.before("load", pause, times=1)
            engine = await Engine(store, sweep_interval=0.02).open()
            await engine.start(sleeping(), id="other")
            assert await engine.result("other", timeout=20) == "woken done"
            assert first.hits == 1
            assert outside.done == {"woken": 1}
            assert await client.admin.unpause("run")
            assert await engine.result("run", timeout=20) == "long done"
            await engine.close()

    run_async(main())


def test_a_paused_run_can_be_cancelled_and_ended(lives: Lives) -> None:
    """CONFORMANCE L1: a cancel waits until it goes on; terminate does not wait."""

    async def main() -> None:
        async with lives.engine() as engine:
            for run_id in ("a", "b"):
                await engine.start(listening(), id=run_id)
                await engine.admin.pause(run_id)
            assert await engine.cancel("a", "enough")
            assert (await engine.status("a")).status is Status.PAUSED
            await engine.admin.unpause("a")
            await reaches(engine, "a", Status.CANCELLED)
            assert await engine.admin.terminate("b")
            assert (await engine.status("b")).status is Status.CANCELLED

    run_async(main())


def test_what_cannot_be_paused_is_refused_with_the_reason(lives: Lives) -> None:
    """The caller hears why, and the run stays as it was. CONFORMANCE L4."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(sleeping(), id="run")
            await engine.result("run", timeout=20)
            with pytest.raises(ActionRefused, match="it is completed"):
                await engine.admin.pause("run")
            with pytest.raises(ActionRefused, match="it is completed"):
                await engine.admin.unpause("run")
            await engine.start(listening(), id="open")
            assert not await engine.admin.unpause("open")
            with pytest.raises(RunNotFound):
                await engine.admin.pause("nobody")
            row = await engine.store.get("open")
            assert row is not None
            assert await engine.store.park(row.key, row.epoch, "because", 1)
            with pytest.raises(ActionRefused, match="parked: because"):
                await engine.admin.pause("open")

    run_async(main())
