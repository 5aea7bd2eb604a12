"""The workflows of `perdure demo`: an order, from payment to parcel.

Ordinary async Python. Nothing here knows of crashes, restarts or databases: that is the point. The only special
thing is `work`, which writes a line to a file when a step's body begins and ends, so that the demo can count what
really ran instead of asking perdure.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass

from perdure import current_step, event, receive, step, workflow

LOG_VARIABLE = "PERDURE_DEMO_LOG"


@event
@dataclass
class Approved:
    by: str


@step
async def charge(order_id: str, cents: int) -> str:
    await work(0.4)
    return f"receipt-{order_id}-{cents}"


@step
async def reserve(order_id: str) -> None:
    await work(0.3)


@step
async def ship(order_id: str) -> str:
    await work(0.5)
    return f"parcel-{order_id}"


@step
async def notify(order_id: str, parcel: str) -> None:
    await work(0.25)


@workflow
async def deliver(order_id: str) -> str:
    """A child of every order."""
    return await ship(order_id)


@workflow
async def fulfil(order_id: str, cents: int) -> str:
    receipt = await charge(order_id, cents)
    async with asyncio.timeout(7 * 86400):
        approval = await receive(Approved)
    await reserve(order_id)
    await asyncio.sleep(1.5)  # the warehouse packs
    parcel = await deliver(order_id)
    await notify(order_id, parcel)
    return f"{receipt}, approved by {approval.by}, {parcel}"


def expected_result(order_id: str, cents: int, by: str) -> str:
    """What `fulfil` has to return, computed without it."""
    return f"receipt-{order_id}-{cents}, approved by {by}, parcel-{order_id}"


# -- counting --------------------------------------------------------------------------------------------------


async def work(seconds: float) -> None:
    """What a step does here: pretend, and leave a trace that survives any kill."""
    _note("begin")
    await asyncio.sleep(seconds)
    _note("done")


def _note(what: str) -> None:
    here = current_step()
    line = {"what": what, "run": here.run_id, "step": here.location, "pid": os.getpid(), "at": time.time()}
    descriptor = os.open(os.environ[LOG_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{json.dumps(line)}\n".encode())
    finally:
        os.close(descriptor)
