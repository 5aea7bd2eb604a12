"""A run that is stored as this worker's while the answer of the call that stored it is under way.

The sweep, which looks for such runs after an outage, leaves it to the answer: else it could end first, and begin again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Engine, step, workflow
from support.faulty_stores import Call, DisturbedStore, always, nothing, spawns, unavailable
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


def late(store: Any, call: str) -> DisturbedStore:
    """The answer of the call that creates a run comes after several sweeps, each of which had an outage before."""
    disturbed = DisturbedStore(store)
    looks = disturbed.before("held", nothing)
    is_late = False

    async def answer_late(_: Call) -> None:
        nonlocal is_late
        is_late = True
        before = looks.hits
        while looks.hits < before + 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)  # what the sweep would have begun has time to end
        is_late = False

    disturbed.before("claim", unavailable(), lambda _: is_late)
    disturbed.after(call, answer_late, spawns if call == "commit" else always)
    return disturbed


@pytest.mark.parametrize("call", ["create_all", "commit"])
def test_a_run_whose_answer_is_under_way_is_not_begun_twice(lives: Lives, call: str) -> None:
    """FAULTS B2, B24: each step runs once, however late the answer comes."""

    async def main() -> None:
        begun.clear()
        store = late(lives.store(), call)
        async with Engine(store, sweep_interval=0.001) as engine:
            handle = await engine.start(parent() if call == "commit" else leaf(), id="run")
            assert await handle.result(timeout=10) == "leaf"
            await asyncio.sleep(0.05)
        assert begun == (["parent", "leaf"] if call == "commit" else ["leaf"])

    run_async(main())
