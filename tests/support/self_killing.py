"""A store that kills its own process at a chosen record. Without workflows: every module has a registry of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from perdure.store.base import CommitResult, Created, Creation, Existing, Turn
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

    def create_all(self, creations: Sequence[Creation]) -> Any:
        return self._create_all(creations)

    async def _create_all(self, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
        created = await super().create_all(creations)
        self._written(sum(1 + (len(turn.entries) if turn is not None else 0) for _, turn in creations))
        return created

    def commit(self, turns: Sequence[Turn]) -> Any:
        return self._commit(turns)

    async def _commit(self, turns: Sequence[Turn]) -> Sequence[CommitResult]:
        results = await super().commit(turns)
        self._written(sum(len(turn.entries) for turn in turns))
        return results
