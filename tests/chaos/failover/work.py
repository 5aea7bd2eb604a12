"""What the workers of these tests do, in processes of their own and in the test's."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from perdure import Engine, event, receive, step, workflow
from perdure.store.postgres import PostgresStore
from support.effects import Effects


@event
@dataclass
class Parcel:
    number: int


@step
async def leg(path: str, name: str, number: int) -> int:
    """Really done: a line in a file."""
    Effects(Path(path)).add(f"{name} {number}")
    return number


@workflow
async def journey(path: str, name: str, legs: int, parcels: int) -> list[int]:
    """So many steps, then so many events and a step for each. Returns the events in the order in which they came."""
    for number in range(legs):
        await leg(path, name, number)
    received: list[int] = []
    for number in range(parcels):
        parcel = await receive(Parcel)
        received.append(parcel.number)
        await leg(path, name, legs + number)
    return received


def engine_on(url: str, lease: float = 10.0, *, worker: bool = True) -> Engine:
    return Engine(PostgresStore(url), sweep_interval=0.25, lease=lease, worker=worker)


async def serve(url: str, log: str, lease: str = "10") -> None:
    """A worker process: says "ready", and works until it is killed. What it logs goes to a file."""
    logging.basicConfig(filename=log, level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    async with engine_on(url, float(lease)) as engine:
        assert engine.worker is not None
        print("ready", flush=True)
        await asyncio.Event().wait()
