"""Pairs of stores to move between, filled with runs of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from perdure.admin.move import Mover, Progress
from perdure.store.model import CLAIMABLE, RunFilter, RunRow, Status
from perdure.store.protocol import Store
from stores.store_kit import World
from support.lives import STORES

#: From where to where: each kind on both sides, and one to its own kind.
PAIRS = [
    (old, new)
    for old, new in [
        ("memory", "sqlite"), ("sqlite", "memory"), ("sqlite", "sqlite"), ("sqlite", "postgres"),
        ("postgres", "sqlite"), ("postgres", "memory"), ("memory", "postgres"),
    ]
    if old in STORES and new in STORES
]  # fmt: skip
TARGET = "postgresql://shop@db/orders"


@asynccontextmanager
async def opened(kinds: tuple[str, str], directory: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores with nothing in them."""
    worlds: list[World] = []
    stores: list[Store] = []
    for side, kind in zip(("old", "new"), kinds, strict=True):
        folder = directory / side
        folder.mkdir(parents=True)
        world = World(kind, folder)
        worlds.append(world)
        stores.append(await world.connect())
    try:
        yield stores[0], stores[1]
    finally:
        for world in worlds:
            await world.close()


class Clock:
    """A microsecond at each look."""

    def __init__(self) -> None:
        self.at = 10**12

    def __call__(self) -> int:
        self.at += 1
        return self.at


def mover(old: Any, new: Any, **more: Any) -> Mover:
    return Mover(old, new, TARGET, now=Clock(), **{"retry_seconds": 0.0, **more})


async def rows_of(store: Store) -> dict[str, RunRow]:
    return {row.id: row for row in await store.list_runs(RunFilter(), 10_000)}


async def claimable(store: Store) -> set[str]:
    """What a worker could get, now or later."""
    rows = (await rows_of(store)).values()
    return {row.id for row in rows if row.status in CLAIMABLE or row.status in (Status.PARKED, Status.PAUSED)}


def told(into: list[Progress]) -> Any:
    return into.append
