"""A store may raise when it is called and not only when its answer is awaited: nobody is left waiting for that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import Engine, step, workflow
from perdure.errors import StoreUnavailable
from perdure.store.base import Creation, Turn
from perdure.store.memory import MemoryStore
from support.lives import run_async


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled_twice(number: int) -> int:
    return await double(await double(number))


class RaisesAtTheCall(MemoryStore):
    """Out of reach for the first call of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.left = {"create_all": 0, "commit": 0}

    def _reach(self, what: str) -> None:
        self.left[what] -= 1
        if self.left[what] >= 0:
            raise StoreUnavailable("the test said so")

    def create_all(self, creations: Sequence[Creation]) -> Any:
        self._reach("create_all")
        return super().create_all(creations)

    def commit(self, turns: Sequence[Turn]) -> Any:
        self._reach("commit")
        return super().commit(turns)


def test_a_commit_that_raises_at_the_call_is_tried_again() -> None:
    """DESIGN section 6: store faults are retried with backoff, they never fail a run."""

    async def main() -> None:
        store = RaisesAtTheCall()
        store.left["commit"] = 2
        async with Engine(store) as engine:
            run = await engine.start(doubled_twice(1))
            assert await run.result(timeout=20) == 4

    run_async(main())


def test_a_start_that_raises_at_the_call_is_told_to_its_caller() -> None:
    async def main() -> None:
        store = RaisesAtTheCall()
        store.left["create_all"] = 1
        async with Engine(store) as engine:
            async with asyncio.timeout(20):
                with pytest.raises(StoreUnavailable):
                    await engine.start(doubled_twice(1), id="a")
                assert await (await engine.start(doubled_twice(1), id="a")).result() == 4

    run_async(main())
