"""A run that a worker claimed anew while it still has an older claim of it in memory, and the answer is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from perdure import Engine, event, receive, workflow
from perdure.errors import StoreUnavailable
from perdure.store.memory import MemoryStore
from support.lives import run_async


@event
@dataclass
class Go:
    pass


@workflow
async def waits() -> str:
    await receive(Go)
    return "gone"


class _Forgetful:
    """A store whose news can be held back and which does not answer one load or claim."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.news_may_go = asyncio.Event()
        self.news_may_go.set()
        self.news_is_held = asyncio.Event()
        #: The call whose next answer is lost.
        self.loses = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def news(self, *args: Any) -> Any:
        if not self.news_may_go.is_set():
            self.news_is_held.set()
            await self.news_may_go.wait()
        return await self._store.news(*args)

    async def load(self, *args: Any) -> Any:
        return self._answer("load", await self._store.load(*args))

    async def claim(self, *args: Any) -> Any:
        return self._answer("claim", await self._store.claim(*args))

    def _answer(self, name: str, result: Any) -> Any:
        if result and self.loses == name:
            self.loses = ""
            raise StoreUnavailable("the answer was lost")
        return result


async def _waiting(client: Engine, run_id: str) -> None:
    while (await client.status(run_id)).status != "waiting":
        await asyncio.sleep(0)


def test_a_newer_claim_takes_the_place_of_an_older_one_although_its_answer_was_lost() -> None:
    """FAULTS B2, C3: what is in memory has lost its right to commit; without a look at the epochs the worker would
    take the run for one that it has, and nobody else may touch it."""

    async def main(lost: str) -> None:
        memory = MemoryStore()
        store = _Forgetful(memory)
        async with (
            Engine(memory, worker=False) as client,
            Engine(store, sweep_interval=0.01) as engine,  # type: ignore[arg-type]
        ):
            await engine.start(waits(), id="run")
            await _waiting(client, "run")
            store.news_may_go.clear()
            await store.news_is_held.wait()
            # The worker does not hear of it: its copy of the run stays in memory.
            await client.pause("run")
            await client.unpause("run")
            store.loses = lost
            store.news_may_go.set()
            await client.send("run", Go())
            assert await client.result("run", timeout=10) == "gone"
            assert not store.loses

    for lost in ("load", "claim"):
        run_async(main(lost))
