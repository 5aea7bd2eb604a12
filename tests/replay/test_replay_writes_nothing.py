"""Loading and replaying a run performs no write until something new happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Engine, event, receive, sleep, start_child, state, status, step, workflow
from perdure.types import Invocation
from support.faulty_stores import DisturbedStore
from support.lives import Lives, run_async, until


@event
@dataclass
class Wanted:
    pass


@event
@dataclass
class Unwanted:
    pass


@step
async def quick(value: int) -> int:
    return value


@workflow
async def idle_receiver() -> int:
    total = await quick(1)
    state["total"] = total
    status("receiving")
    await receive(Wanted)
    return total


@workflow
async def idle_sleeper() -> None:
    await quick(1)
    await sleep("30 days")


@workflow
async def idle_parent() -> int:
    return await idle_receiver()


@workflow
async def idle_parent_with_handle() -> int:
    handle = await start_child(idle_receiver())
    await quick(2)
    return await handle


@workflow
async def idle_parent_at_once() -> int:
    return await (await start_child(idle_receiver()))


async def _settled(engine: Engine) -> bool:
    views = await engine.list()
    worker = engine.worker
    assert worker is not None
    return all(view.status == "waiting" for view in views) and all(r.is_idle for r in worker.residents)


DESCRIBED = [idle_receiver, idle_sleeper, idle_parent, idle_parent_with_handle, idle_parent_at_once]


@pytest.mark.parametrize("described", DESCRIBED, ids=lambda w: w.name)
def test_loading_a_waiting_run_writes_nothing(lives: Lives, described: Any) -> None:
    """CONFORMANCE R9: a run that is loaded and only replayed commits no turn and grows by no record.

    An event nobody receives makes the claim: it is loaded, and there is nothing to do.
    """
    invocation: Invocation[Any] = described()

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(invocation, id="run")
            await until(lambda: _settled(engine))
            before = {view.id: view.records for view in await engine.list()}
        async with lives.engine(worker=False) as client:
            for run_id in before:
                await client.send(run_id, Unwanted())
        store = DisturbedStore(lives.store())
        turns = store.note_turns(created=False)
        async with Engine(store, sweep_interval=0.02) as engine:
            worker = engine.worker
            assert worker is not None
            await until(lambda: len(worker.residents) == len(before))
            await until(lambda: _settled(engine))
            assert {view.id: view.records for view in await engine.list()} == before
        assert turns == []

    run_async(main())
