"""A bug in a store, or in ours, does not end the sweep for ever: what was let go of is found again."""

from __future__ import annotations

import logging

import pytest

from perdure import Engine, step, workflow
from perdure.store.memory import MemoryStore
from support.faulty_stores import DisturbedStore, raising
from support.lives import run_async


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled(number: int) -> int:
    return await double(number)


def test_a_run_is_picked_up_again_after_bugs_in_the_sweep(caplog: pytest.LogCaptureFixture) -> None:
    """Law 8: nothing is left hanging, and what happened is said with its traceback."""

    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        async with Engine(store), Engine(store, worker=False) as client:
            bugs = store.at_the_call("news", raising(AttributeError, "a bug in news"), times=2)
            run = await client.start(doubled(1), id="a")  # for the sweep of the other to find
            assert await run.result(timeout=20) == 2
            assert bugs.hits == 2, "the sweep met the bugs"

    with caplog.at_level(logging.CRITICAL, "perdure"):
        run_async(main())
    assert any("the sweep" in record.message and record.exc_info for record in caplog.records)
