"""A whole program, as a user writes it: accepted by type checkers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import assert_type

from perdure import Engine, event, receive, step, workflow


@event
@dataclass
class Approved:
    by: str


@step(max_attempts=5)
async def charge(order_id: str, cents: int) -> str:
    return f"receipt of {order_id} for {cents}"


@step
async def refund(receipt: str) -> None: ...


@step
async def ship(order_id: str) -> str:
    return order_id


@step
def notify(who: str) -> None: ...


@step
async def survey(order_id: str) -> None: ...


@workflow
async def fulfil(order_id: str, cents: int) -> str:
    receipt = await charge(order_id, cents)
    try:
        async with asyncio.timeout(7 * 86400):
            approval = await receive(Approved)
    except TimeoutError:
        await refund(receipt)
        return "expired"
    tracking, _ = await asyncio.gather(ship(order_id), notify(approval.by))
    await asyncio.sleep(30 * 86400)
    await survey(order_id)
    assert_type(tracking, str)
    return tracking


async def main() -> None:
    async with Engine("orders.db") as engine:
        run = await engine.start(fulfil("o-1", 1999), id="order-1")
        await engine.send("order-1", Approved(by="ann"))
        print(await run.result())
        assert_type(await run.result(), str)
