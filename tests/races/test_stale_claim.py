"""A run that a worker claimed anew while it still has an older claim of it in memory, and the answer is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from perdure import Engine, event, receive, workflow
from perdure.store.memory import MemoryStore
from support.faulty_stores import DisturbedStore, Hold, answered, lose_answer
from support.lives import run_async


@event
@dataclass
class Go:
    pass


@workflow
async def waits() -> str:
    await receive(Go)
    return "gone"


async def _waiting(client: Engine, run_id: str) -> None:
    while (await client.status(run_id)).status != "waiting":
        await asyncio.sleep(0)


def test_a_newer_claim_takes_the_place_of_an_older_one_although_its_answer_was_lost() -> None:
    """FAULTS B2, C3: what is in memory has lost its right to commit; without a look at the epochs the worker would
    take the run for one that it has, and nobody else may touch it."""

    async def main(lost: str) -> None:
        memory = MemoryStore()
        store = DisturbedStore(memory)
        async with (
            Engine(memory, worker=False) as client,
            Engine(store, sweep_interval=0.01) as engine,
        ):
            await engine.start(waits(), id="run")
            await _waiting(client, "run")
            store.before("news", news := Hold())
            await news.reached.wait()
            # The worker does not hear of it: its copy of the run stays in memory.
            await client.admin.pause("run")
            await client.admin.unpause("run")
            answer = store.after(lost, lose_answer, answered, times=1)
            news.release.set()
            await client.send("run", Go())
            assert await client.result("run", timeout=10) == "gone"
            assert answer.hits == 1

    for lost in ("load", "claim"):
        run_async(main(lost))
