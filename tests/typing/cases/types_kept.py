"""What comes back from runs, children, steps and waits has the type that was declared."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

import perdure
from perdure import (
    ChildHandle,
    EndedRun,
    Engine,
    Err,
    Ok,
    RunHandle,
    continue_as,
    event,
    receive,
    sleep,
    start_child,
    step,
    wait_for_any,
    workflow,
)
from perdure.types import Invocation


@event
@dataclass
class Paid:
    cents: int


@event(name="refused")
@dataclass
class Refused:
    why: str


@event
@dataclass
class Late:
    days: int


@dataclass
class Receipt:
    number: int


@step
async def charge_card(cents: int) -> Receipt:
    return Receipt(cents)


@step(max_attempts=None, timeout="5 s")
def charge_in_a_thread(cents: int) -> Receipt:
    return Receipt(cents)


@step
async def give_nothing() -> None: ...


@workflow
async def child_of(number: int) -> list[Receipt]:
    return [await charge_card(number)]


@workflow(version="2", cancel_grace=3)
async def parent_of(number: int) -> Receipt | None:
    assert_type(await charge_card(number), Receipt)
    assert_type(await charge_in_a_thread(number), Receipt)
    assert_type(await charge_card.options(timeout=5, name="other")(number), Receipt)
    assert_type(await charge_in_a_thread.options(max_attempts=1)(cents=number), Receipt)
    assert_type(await receive(Paid), Paid)
    assert_type(await receive(Paid, Refused), Paid | Refused)
    assert_type(await receive(Paid, Refused, Late, timeout="3 days"), Paid | Refused | Late)
    assert_type(await child_of(number), list[Receipt])
    handle = await start_child(child_of(number), id="child")
    assert_type(handle, ChildHandle[list[Receipt]])
    assert_type(await handle, list[Receipt])
    assert_type(await handle.result(), list[Receipt])
    assert_type(child_of(number), Invocation[list[Receipt]])
    receipts, receipt = await asyncio.gather(child_of(number), charge_card(number))
    assert_type(receipts, list[Receipt])
    assert_type(receipt, Receipt)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(charge_card(number))
        other = group.create_task(child_of(number))
    assert_type(task.result(), Receipt)
    assert_type(other.result(), list[Receipt])
    assert_type(await asyncio.wait_for(charge_card(number), 3), Receipt)
    assert_type(await wait_for_any(["a", "b"]), EndedRun[Any])
    ended = await wait_for_any(("a", "b"), result=Receipt)
    assert_type(ended, EndedRun[Receipt])
    assert_type(ended.run_id, str)
    assert_type(ended.outcome, Ok[Receipt] | Err)
    assert_type(ended.result(), Receipt)
    await sleep("5 minutes")
    await give_nothing()
    if number:
        await continue_as(parent_of(number - 1))
    return None


async def outside() -> None:
    async with Engine(":memory:", residents_max=10) as engine:
        run = await engine.start(parent_of(3))
        assert_type(run, RunHandle[Receipt | None])
        assert_type(await run.result(), Receipt | None)
        assert_type(await run.result(timeout=3), Receipt | None)
        assert_type(await charge_card(3), Receipt)
        assert_type(engine.get("other"), RunHandle[Any])


def script() -> None:
    assert_type(perdure.run(parent_of(3)), Receipt | None)
