"""A store may raise when it is called and not only when its answer is awaited: nobody is left waiting for that."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Engine, step, workflow
from perdure.errors import StoreUnavailable
from perdure.store.memory import MemoryStore
from support.faulty_stores import DisturbedStore, unavailable
from support.lives import run_async


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled_twice(number: int) -> int:
    return await double(await double(number))


def test_a_commit_that_raises_at_the_call_is_tried_again() -> None:
    """Store faults are retried with backoff, they never fail a run."""

    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        store.at_the_call("commit", unavailable(), times=2)
        async with Engine(store) as engine:
            run = await engine.start(doubled_twice(1))
            assert await run.result(timeout=20) == 4

    run_async(main())


def test_a_start_that_raises_at_the_call_is_told_to_its_caller() -> None:
    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        store.at_the_call("create_all", unavailable(), times=1)
        async with Engine(store) as engine:
            async with asyncio.timeout(20):
                with pytest.raises(StoreUnavailable):
                    await engine.start(doubled_twice(1), id="a")
                assert await (await engine.start(doubled_twice(1), id="a")).result() == 4

    run_async(main())
