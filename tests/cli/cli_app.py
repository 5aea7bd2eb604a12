"""Workflows for the tests of the CLI. Names begin with `cli_`: the registry is one per process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from decimal import Decimal

from perdure import event, receive, state, status, step, workflow


@event(name="CliApproved")
@dataclass
class CliApproved:
    by: str


@step
async def cli_charge(order_id: str, cents: int) -> str:
    return f"receipt-{order_id}-{cents}"


@step(max_attempts=1)
def cli_explode(text: str) -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ValueError(text) from error


@step
async def cli_nap(path: str, seconds: float) -> str:
    with open(path, "a") as file:
        file.write(f"begin {os.getpid()}\n")
    await asyncio.sleep(seconds)
    return "rested"


@step
def cli_block(path: str, seconds: float) -> str:
    with open(path, "a") as file:
        file.write(f"begin {os.getpid()}\n")
    time.sleep(seconds)
    return "rested"


@step
async def cli_stay(path: str, seconds: float) -> str:
    """Ends neither when it is cancelled nor when the event loop does."""
    with open(path, "a") as file:
        file.write(f"begin {os.getpid()}\n")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds)


@step
async def cli_block_executor(path: str, seconds: float) -> str:
    with open(path, "a") as file:
        file.write(f"begin {os.getpid()}\n")
    await asyncio.to_thread(time.sleep, seconds)
    return "rested"


@workflow
async def cli_order(order_id: str, cents: int = 500) -> str:
    receipt = await cli_charge(order_id, cents)
    status({"stage": "charged"})
    state["receipt"] = receipt
    approval = await receive(CliApproved)
    return f"{receipt} approved by {approval.by}"


@workflow
async def cli_fail(text: str) -> None:
    await cli_explode(text)


@workflow
async def cli_rest(path: str, seconds: float) -> str:
    return await cli_nap(path, seconds)


@workflow
async def cli_rest_in_thread(path: str, seconds: float) -> str:
    return await cli_block(path, seconds)


@workflow
async def cli_rest_stubbornly(path: str, seconds: float) -> str:
    return await cli_stay(path, seconds)


@workflow
async def cli_rest_in_executor(path: str, seconds: float) -> str:
    return await cli_block_executor(path, seconds)


@workflow
async def cli_echo(price: Decimal, tags: list[str], note: str | None = None) -> dict[str, str]:
    status(note)
    return {"price": str(price), "tags": "+".join(tags), "note": repr(note)}


@workflow(name="cli_versioned", version="1")
async def cli_versioned_1() -> str:
    return "one"


@workflow(name="cli_versioned", version="2")
async def cli_versioned_2() -> str:
    return "two"
