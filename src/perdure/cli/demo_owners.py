"""Who had which run when: the demo of a fleet looks at the store again and again, and keeps what changed.

A journal does not say which worker wrote it, and need not: only the owner of a run can. Times are of this machine's
clock, and as exact as the time between two looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from perdure.store.model import RunFilter, RunRow
from perdure.store.protocol import Store

LOOK_SECONDS = 0.04
_PAGE = 1_000


class Holding(NamedTuple):
    """A run was a worker's (by its id; None: nobody's) from one look to another."""

    run: str
    owner: str | None
    begin: float
    end: float
    #: The run ended with it.
    is_last: bool = False


class Owners:
    """Looks until it is cancelled. `pids`: of worker processes, to their numbers."""

    def __init__(self, store: Store, pids: Mapping[int, int]) -> None:
        self._store = store
        self._pids = pids
        #: Which worker process an id was of. One that lost its lease goes on under another id.
        self.numbers: dict[str, int] = {}
        self.rows: Mapping[str, RunRow] = {}
        self._holdings: list[Holding] = []
        self._since: dict[str, tuple[str | None, float]] = {}

    async def keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> Mapping[str, RunRow]:
        """How it is now."""
        for worker in await self._store.workers():
            if worker.pid in self._pids:
                self.numbers[worker.id] = self._pids[worker.pid]
        rows = {row.id: row for row in await self._store.list_runs(RunFilter(), _PAGE)}
        now = time.time()
        for row in rows.values():
            owner, since = self._since.get(row.id, (None, 0.0))
            if row.status.terminal:
                if row.id in self._since:
                    del self._since[row.id]
                    self._holdings.append(Holding(row.id, owner, since, now, True))
            elif row.id not in self._since:
                self._since[row.id] = (row.owner, now)
            elif row.owner != owner:
                self._since[row.id] = (row.owner, now)
                self._holdings.append(Holding(row.id, owner, since, now))
        self.rows = rows
        return rows

    async def until(self, condition: Callable[[Mapping[str, RunRow]], bool]) -> float:
        """Look until it holds; the time then."""
        while True:
            if condition(await self.look()):
                return time.time()
            await asyncio.sleep(LOOK_SECONDS)

    def ids_of(self, number: int) -> frozenset[str]:
        return frozenset(owner for owner, each in self.numbers.items() if each == number)

    def holdings(self) -> list[Holding]:
        """In the order of their beginnings, also those that are not over."""
        now = time.time()
        going_on = [Holding(run, owner, since, now) for run, (owner, since) in self._since.items()]
        return sorted(self._holdings + going_on, key=lambda each: (each.begin, each.run))
