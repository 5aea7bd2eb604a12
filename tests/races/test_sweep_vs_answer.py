"""A run that is stored as this worker's while the answer of the call that stored it is under way.

The sweep, which looks for such runs after an outage, leaves it to the answer: else it could end first, and begin again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Engine, StoreUnavailable, step, workflow
from perdure.store.base import Spawn
from support.lives import Lives, run_async

begun: list[str] = []


@step
async def note(name: str) -> str:
    begun.append(name)
    return name


@workflow
async def leaf() -> str:
    return await note("leaf")


@workflow
async def parent() -> str:
    await note("parent")
    return await leaf()


class _Late:
    """The answer of the call that creates a run comes after several sweeps, each of which had an outage before."""

    def __init__(self, store: Any, call: str) -> None:
        self._store = store
        self._call = call
        self._late = False
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, *args: Any) -> Any:
        if self._late:
            raise StoreUnavailable("the test said so")
        return await self._store.claim(*args)

    async def held(self, worker_id: str) -> Any:
        self.looks += 1
        return await self._store.held(worker_id)

    async def create_all(self, creations: Any) -> Any:
        return await self._answer(self._store.create_all(creations), self._call == "create_all")

    async def commit(self, turns: Any) -> Any:
        spawns = any(isinstance(entry.effect, Spawn) for turn in turns for entry in turn.entries)
        return await self._answer(self._store.commit(turns), self._call == "commit" and spawns)

    async def _answer(self, call: Any, late: bool) -> Any:
        result = await call
        if late:
            self._late = True
            looks = self.looks
            while self.looks < looks + 3:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)  # what the sweep would have begun has time to end
            self._late = False
        return result


@pytest.mark.parametrize("call", ["create_all", "commit"])
def test_a_run_whose_answer_is_under_way_is_not_begun_twice(lives: Lives, call: str) -> None:
    """FAULTS B2, B24: each step runs once, however late the answer comes."""

    async def main() -> None:
        begun.clear()
        store: Any = _Late(lives.store(), call)
        async with Engine(store, sweep_interval=0.001) as engine:
            handle = await engine.start(parent() if call == "commit" else leaf(), id="run")
            assert await handle.result(timeout=10) == "leaf"
            await asyncio.sleep(0.05)
        assert begun == (["parent", "leaf"] if call == "commit" else ["leaf"])

    run_async(main())
