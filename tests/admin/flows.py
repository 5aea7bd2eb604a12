"""Switches that the steps of these tests look at: whether a step fails, and which effects it had."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure import Engine
from perdure.store.protocol import Store
from perdure.types import Status
from support.lives import Lives, until


class Outside:
    """The world outside: broken or not, and what was done to it."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.done: Counter[str] = Counter()
        self.hold: set[str] = set()

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    async def do(self, what: str) -> str:
        self.done[what] += 1
        while what in self.hold:
            await asyncio.sleep(0.005)
        if what in self.broken:
            raise ConnectionError(f"{what} is broken")
        return f"{what} done"


async def reaches(engine: Engine, run_id: str, *statuses: str | Status) -> None:
    """Wait for one of these statuses."""

    async def there() -> bool:
        return (await engine.status(run_id)).status in statuses

    await until(there)


async def kinds(engine: Engine, run_id: str) -> list[str]:
    return [entry.kind for entry in await engine.admin.history(run_id)]


async def opened(lives: Lives) -> Store:
    store = lives.store()
    await store.open()
    return store
