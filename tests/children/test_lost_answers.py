"""Children of a turn whose answer got lost: they belong to this worker, which must not forget them."""

from __future__ import annotations

import asyncio

from events.kinds import Note
from perdure import Engine, join, receive, sleep, workflow
from perdure.types import Status
from support.faulty_stores import Call, DisturbedStore, lose_answer, spawns
from support.lives import Lives, run_async, until


@workflow
async def leaf(number: int) -> int:
    await sleep(0.001)
    return number


@workflow
async def parent() -> list[int]:
    """Asks for both children in its first turn."""
    found = await join(a=leaf(1), b=leaf(2))
    return list(found.values())


@workflow
async def waits() -> str:
    return (await receive(Note)).text


@workflow
async def parent_of_waiting() -> str:
    await sleep(0.001)
    return await waits()


def test_children_of_a_first_turn_whose_answer_got_lost_are_run(lives: Lives) -> None:
    """FAULTS A2, B2: the start raised, but run and children are stored as this worker's."""

    async def main() -> None:
        for call in ("create_all", "create"):
            other = lives.fresh()
            store = DisturbedStore(other.store())
            store.after(call, lose_answer, times=1)
            async with Engine(store, sweep_interval=0.02) as engine:
                try:
                    await engine.start(parent(), id="run")
                except Exception:
                    await engine.start(parent(), id="run")
                assert await engine.get("run").result(timeout=10) == [1, 2]

    run_async(main())


def test_children_of_a_parent_that_was_terminated_meanwhile_are_cancelled(lives: Lives) -> None:
    """CONFORMANCE C7; FAULTS C16: they hear of it, in whatever order the answers come."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        async with Engine(store, sweep_interval=0.02) as engine:

            async def terminate(_: Call) -> None:
                """While the answer is under way: the turn is durable, the parent has left memory."""
                await engine.admin.terminate("run")
                await asyncio.sleep(0)

            store.after("commit", terminate, spawns, times=1)
            await engine.start(parent_of_waiting(), id="run")

            async def over() -> bool:
                runs = await engine.list()
                return len(runs) == 2 and all(run.status is Status.CANCELLED for run in runs)

            await until(over, patience=5)

    run_async(main())
