"""A store whose answers a test holds back: the way to put something exactly between a decision and its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from perdure.store.base import CommitResult, Store, Turn


class Hold:
    """One commit that is held. `reached` is set when it is; the commit goes on when `release` is."""

    def __init__(self, wanted: Callable[[Turn], bool], *, after: bool) -> None:
        self.wanted = wanted
        self.after = after
        self.reached = asyncio.Event()
        self.release = asyncio.Event()


class HeldStore:
    """Passes everything on. `hold(...)` names the next commit to keep back, before or after it is durable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hold: Hold | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def hold(self, wanted: Callable[[Turn], bool], *, after: bool) -> Hold:
        self._hold = Hold(wanted, after=after)
        return self._hold

    async def commit(self, turns: Sequence[Turn]) -> Sequence[CommitResult]:
        hold = self._hold
        if hold is None or not any(hold.wanted(turn) for turn in turns):
            return await self._store.commit(turns)
        self._hold = None
        if hold.after:
            results = await self._store.commit(turns)
            hold.reached.set()
            await hold.release.wait()
            return results
        hold.reached.set()
        await hold.release.wait()
        return await self._store.commit(turns)
