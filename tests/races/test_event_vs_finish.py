"""An event that arrives around the turn that finishes is received, a dead letter or refused; never lost."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Tick
from perdure import Engine, RunFinished, receive, step, workflow
from perdure.store.turn import Turn
from support.faulty_stores import DisturbedStore, Hold, any_turn
from support.lives import Lives, run_async


@step
async def look_around() -> None:
    return None


@workflow
async def drain_ticks() -> list[int]:
    await look_around()
    taken: list[int] = []
    while True:
        try:
            taken.append((await receive(Tick, timeout=0)).number)
        except TimeoutError:
            return taken


async def unread(engine: Engine, run_id: str) -> list[int]:
    """Numbers of the ticks that were accepted and never read: dead letters now, and nothing is left in the inbox."""
    row = await engine.store.get(run_id)
    assert row is not None
    assert await engine.store.inbox(row.key, 1000) == []
    return [letter.data["number"] for letter in await engine.admin.dead_letters(limit=1000) if letter.target == run_id]


def test_event_is_received_or_refused_never_lost(lives: Lives) -> None:
    """CONFORMANCE E1, FAULTS C15: each accepted event is read once, in order, or a dead letter; others raised."""

    async def one(engine: Engine, ticks: int) -> None:
        run_id = f"run-{ticks}"
        run = await engine.start(drain_ticks(), id=run_id)
        accepted: list[int] = []
        refused = 0
        for number in range(5):
            for _ in range(ticks if number == 0 else 1):
                await asyncio.sleep(0)
            try:
                await run.send(Tick(number))
                accepted.append(number)
            except RunFinished:
                refused += 1
        taken = await run.result(timeout=10)
        assert taken + await unread(engine, run_id) == accepted
        assert len(accepted) + refused == 5

    async def main() -> None:
        async with lives.engine() as engine:
            for ticks in range(60):
                await one(engine, ticks)

    run_async(main(), patience=60)


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_event_during_the_turn_that_finishes(lives: Lives, after: bool) -> None:
    """CONFORMANCE E1: before the end is durable the event is taken and kept, after it RunFinished is raised."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with Engine(store, sweep_interval=0.02) as engine:
            hold = Hold()
            store.around("commit", hold, any_turn(ends), before=not after, times=1)
            run = await engine.start(drain_ticks(), id="run")
            await hold.reached.wait()
            if after:
                with pytest.raises(RunFinished):
                    await run.send(Tick(1))
            else:
                await run.send(Tick(1))
            hold.release.set()
            assert await run.result() == []
            assert await unread(engine, "run") == ([] if after else [1])

    run_async(main())


def ends(turn: Turn) -> bool:
    return turn.status.terminal
