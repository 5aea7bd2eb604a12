"""The load of the kill test: what its workers run, in processes that are killed at any moment."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from perdure import Engine, current_step, event, receive, sleep, step, workflow
from support.effects import Effects


@event(name="tests.go")
@dataclass(frozen=True)
class Go:
    number: int


def begin(path: str) -> str:
    """Write down that an attempt begins. Its nonce is new for every execution, whatever was recorded before."""
    nonce = uuid.uuid4().hex
    context = current_step()
    moment = time.time_ns() // 1000
    Effects(Path(path)).add(f"begin {context.run_id} {context.location} {nonce} {context.attempt} {moment}")
    return nonce


def end(path: str, nonce: str) -> str:
    context = current_step()
    Effects(Path(path)).add(f"end {context.run_id} {context.location} {nonce} {context.attempt} 0")
    return nonce


@step
async def on_the_loop(path: str) -> str:
    nonce = begin(path)
    await asyncio.sleep(0.002)
    return end(path, nonce)


@step
def in_a_thread(path: str) -> str:
    nonce = begin(path)
    time.sleep(0.002)
    return end(path, nonce)


@step(max_attempts=4, initial_delay=0.005, max_delay=0.01)
async def on_the_third_attempt(path: str) -> str:
    nonce = begin(path)
    if current_step().attempt < 3:
        raise LookupError("not yet")
    return end(path, nonce)


async def several(path: str) -> int:
    await on_the_loop(path)
    await sleep(0.005)
    await in_a_thread(path)
    return 2


@workflow
async def killed_child(path: str, number: int) -> int:
    await on_the_loop(path)
    await sleep(0.003)
    await in_a_thread(path)
    return 2 * number


@workflow
async def killed_order(path: str, number: int) -> list[int]:
    await on_the_loop(path)
    _, _, one, two = await asyncio.gather(in_a_thread(path), on_the_third_attempt(path), several(path), several(path))
    await sleep(0.002 * (number % 5))
    go = await receive(Go)
    child = await killed_child(path, number)
    await on_the_loop(path)
    return [number, one + two, go.number, child]


#: What one undisturbed run of `killed_order` records as done, its child included.
STEPS_PER_RUN = 1 + 2 + 4 + 2 + 1


def expected(number: int) -> list[int]:
    return [number, 4, 1000 + number, 2 * number]


async def work(database: str) -> None:
    """A worker, until it is killed."""
    # Kills without any progress in between are the point here, not a poisoned run.
    async with Engine(database, sweep_interval=0.05, recoveries_max=1000):
        print("ready", flush=True)
        await asyncio.Event().wait()
