"""Stores that go wrong at a chosen moment. Each wraps a real one and passes everything else on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

from perdure.errors import StoreUnavailable
from perdure.store.model import NewRun
from perdure.store.protocol import Store
from perdure.store.turn import CommitResult, Created, Creation, Existing, Turn

T = TypeVar("T")


class CrashingStore:
    """Passes everything on, until `limit` records (or commits) are durable; then the process is as good as dead.

    The fatal commit is durable, but nobody ever hears its answer. `before=True` dies just before it instead. `dead` is
    set when it has happened; the test that runs the engine then abandons it.
    """

    def __init__(
        self,
        store: Store,
        limit: int | None,
        *,
        before: bool = False,
        unit: Literal["records", "commits"] = "records",
    ) -> None:
        #: The store that this one stands before; code that looks for a store in memory looks there.
        self.wrapped = store
        self._limit = limit
        self._before = before
        self._unit = unit
        self.records = 0
        self.commits = 0
        #: The last record of the fatal commit, for reports: its kind and location.
        self.last = ("", "")
        self.dead = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def _count(self, rows: int) -> bool:
        """Whether this commit is the one to die at."""
        self.records += rows
        self.commits += 1
        reached = self.records if self._unit == "records" else self.commits
        return self._limit is not None and reached >= self._limit

    async def _die(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if not self._before:
            await call()
        self.dead.set()
        await self._never()

    async def _never(self) -> None:
        """What a caller hears of a dead process."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)  # held here: nobody else knows it, and it must not be collected
        await future

    def let_go(self) -> None:
        """Cancel the calls that were never answered, once their engine is abandoned."""
        for future in self._waiting:
            future.cancel()

    async def create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        fatal = self._count(1 + (len(turn.entries) if turn is not None else 0))
        if self.dead.is_set() or fatal:
            self.last = ("started", "")
            return await self._die(lambda: self.wrapped.create(new, turn))  # type: ignore[no-any-return]
        return await self.wrapped.create(new, turn)

    async def create_all(self, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
        fatal = self._count(sum(1 + (len(turn.entries) if turn is not None else 0) for _, turn in creations))
        if self.dead.is_set() or fatal:
            self.last = ("started", "")
            return await self._die(lambda: _wait(self.wrapped.create_all(creations)))  # type: ignore[no-any-return]
        return await self.wrapped.create_all(creations)

    async def commit(self, turns: Sequence[Turn]) -> Sequence[CommitResult]:
        if self.dead.is_set():
            await self._never()
        if self._count(sum(len(turn.entries) for turn in turns)):
            rows = [entry.row for turn in turns for entry in turn.entries]
            self.last = (rows[-1].kind, rows[-1].location) if rows else ("no record", "")
            return await self._die(lambda: _wait(self.wrapped.commit(turns)))  # type: ignore[no-any-return]
        return await self.wrapped.commit(turns)


async def _wait(awaitable: Awaitable[T]) -> T:
    return await awaitable


#: Calls that a store may fail to answer.
CALLS = frozenset(
    {
        "create", "create_all", "append", "request_cancel", "terminate", "resume", "register_worker", "drain_worker",
        "unregister_worker", "renew", "reap", "claim", "acquit", "held", "load", "commit", "release", "park", "news",
        "get", "list_runs", "count_runs", "journal", "inbox", "workers", "pause", "unpause", "reopen", "restore",
        "delete", "dead_workers", "standings", "publish", "spread", "reply", "replay_dead_letter",
        "remove_dead_letters", "tidy_events", "publications", "dead_letters", "expired_events",
        "identity", "departure", "depart", "stay", "leave", "pack", "remainder", "receive", "confirm", "received",
        "withdraw", "arrive", "has_arrived",
    }
)  # fmt: skip


class FaultyStore:
    """Counts calls; the one with number `fail_at` raises `StoreUnavailable`. 0: none does.

    `after=True` performs the call first: the dangerous fault, "raised but committed". With `only`, calls of that name
    are counted by themselves. `times` makes a row of calls fail. `failed` names those that did.
    """

    calls = CALLS

    def __init__(self, store: Store, fail_at: int, *, after: bool, only: str | None = None, times: int = 1) -> None:
        self.wrapped = store
        self.fail_at = range(fail_at, fail_at + times if fail_at else 0)
        self.after = after
        self.only = only
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.wrapped, name)
        if name not in self.calls:
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] += 1
            number = self.counts[name] if self.only else self.counts.total()
            fatal = number in self.fail_at and self.only in (None, name)
            if fatal:
                self.failed.append(name)
            if fatal and not self.after:
                raise StoreUnavailable("the test said so, before")
            result = await target(*args, **kwargs)
            if fatal:
                raise StoreUnavailable("the test said so, after")
            return result

        return call
