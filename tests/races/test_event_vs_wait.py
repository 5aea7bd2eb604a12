"""An event that arrives around the turn that waits for it is received once, whatever the order."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note
from perdure import Engine, receive, step, workflow
from perdure.store.model import Status
from perdure.store.turn import Turn
from support.faulty_stores import DisturbedStore, Hold, any_turn
from support.lives import Lives, run_async


@step
async def before_the_wait() -> None:
    return None


@workflow
async def wait_for_a_note() -> str:
    await before_the_wait()
    return (await receive(Note)).text


def waits(turn: Turn) -> bool:
    return turn.status is Status.WAITING


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_event_during_the_turn_that_waits_is_received_once(lives: Lives, after: bool) -> None:
    """CONFORMANCE E1, FAULTS C14: the event lands while the commit of the waiting turn is under way."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with Engine(store, sweep_interval=0.02) as engine:
            hold = Hold()
            store.around("commit", hold, any_turn(waits), before=not after, times=1)
            run = await engine.start(wait_for_a_note(), id="run")
            await hold.reached.wait()
            await run.send(Note("now"))
            hold.release.set()
            assert await run.result() == "now"
            kinds = [entry.kind for entry in await engine.admin.history("run")]
            assert kinds.count("event_received") == 1

    run_async(main())


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_event_from_another_engine_during_the_turn_that_waits(lives: Lives, after: bool) -> None:
    """CONFORMANCE E1: the sender shares only the store with the worker, so nobody hands the event over."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with (
            Engine(store, sweep_interval=0.02) as engine,
            lives.engine(worker=False) as client,
        ):
            hold = Hold()
            store.around("commit", hold, any_turn(waits), before=not after, times=1)
            run = await engine.start(wait_for_a_note(), id="run")
            await hold.reached.wait()
            await client.send("run", Note("now"))
            hold.release.set()
            assert await run.result() == "now"

    run_async(main())


def test_event_at_every_moment_of_a_short_run(lives: Lives) -> None:
    """CONFORMANCE E1, FAULTS C14: sent after 0, 1, 2 ... ticks of the loop, so every interleaving is met."""

    async def main() -> None:
        async with lives.engine() as engine:
            for ticks in range(40):
                run = await engine.start(wait_for_a_note(), id=f"run-{ticks}")
                for _ in range(ticks):
                    await asyncio.sleep(0)
                await run.send(Note(str(ticks)))
                assert await run.result(timeout=10) == str(ticks)

    run_async(main())
