"""A store that kills its own process at a chosen record. Without workflows: every module has a registry of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from perdure.store.base import CommitResult, Created, Existing, NewRun, Turn
from perdure.store.sqlite import SQLiteStore


class SelfKillingStore(SQLiteStore):
    """SIGKILLs its own process as soon as `limit` records are durable."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(path)
        self._left = limit

    def _written(self, rows: int) -> None:
        self._left -= rows
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async def create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        created = await super().create(new, turn)
        self._written(1 + (len(turn.entries) if turn is not None else 0))
        return created

    def commit(self, turns: Sequence[Turn]) -> Any:
        return self._commit(turns)

    async def _commit(self, turns: Sequence[Turn]) -> Sequence[CommitResult]:
        results = await super().commit(turns)
        self._written(sum(len(turn.entries) for turn in turns))
        return results
