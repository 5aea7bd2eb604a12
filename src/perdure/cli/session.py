"""The door to the engine: a client-only session on the store the user named, and what commands ask of it.

Only this module reaches behind the engine's public face; when the engine offers one of these calls itself, it
goes here.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import click
import msgspec

from perdure.admin.views import HistoryEntry, history_entry
from perdure.cli.command import MIGRATE
from perdure.engine.engine import Engine
from perdure.errors import RunNotFound, StoreUnusable
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.store import open_store
from perdure.store.base import InboxItem, RunRow, Status, Store, WorkerInfo
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore

#: Unread items looked at for `show`: a full inbox is a number, not a list.
INBOX_SHOWN_MAX = 1_000


class Session:
    """An open engine, seen by the CLI."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def _store(self) -> Store:
        return self.engine._store

    async def counts(self) -> dict[Status, int]:
        counts = await self._store.count_runs()
        return {status: counts[status] for status in Status if counts.get(status)}

    async def row(self, run_id: str) -> RunRow:
        """Raises `RunNotFound`, `BadArgument`."""
        await self.engine.status(run_id)  # checks the id
        row = await self._store.get(run_id)
        if row is None:
            raise RunNotFound(f"no run has the id {run_id!r}.")
        return row

    async def entry(self, row: RunRow, seq: int) -> HistoryEntry | None:
        """One record of the current generation. Raises `CorruptRecord`."""
        rows = await self._store.journal(row.key, row.generation, seq - 1, 1)
        return history_entry(rows[0]) if rows else None

    async def history(self, run_id: str, generation: int | None) -> Sequence[HistoryEntry]:
        entries: Any = await self.engine.history(run_id, generation=generation)
        return cast("Sequence[HistoryEntry]", entries)

    async def inbox(self, row: RunRow) -> list[InboxItem]:
        return list(await self._store.inbox(row.key, INBOX_SHOWN_MAX))

    async def workers(self) -> Mapping[str, WorkerInfo]:
        return {worker.id: worker for worker in await self._store.workers()}

    def prune(
        self, older_than: float, statuses: Iterable[Status], workflow: str | None, *, dry_run: bool
    ) -> AsyncIterator[int]:
        """Remove old runs, or only count them; tells how many as it goes."""
        return self.engine._people().prune(older_than, statuses, workflow, dry_run=dry_run)

    async def send_raw(
        self, run_id: str, event_name: str, data: bytes, key: str | None, policy: EventPolicy = DEFAULT_POLICY
    ) -> None:
        """Send an event given as JSON. Durable when this returns."""
        await self.engine._checked().send_raw(run_id, event_name, data, key, policy)

    async def publish_raw(self, event_name: str, data: bytes, key: str | None, policy: EventPolicy) -> None:
        """Publish an event given as JSON. Durable when this returns."""
        await self.engine._events().publish_raw(event_name, data, key, policy)

    async def expired_events(self) -> Mapping[str, int]:
        return await self._store.expired_events()

    async def raw_result(self, run_id: str, timeout: float | None) -> Any:
        """Wait for the end, and give the result as its JSON values, whatever class it was."""
        client = self.engine._checked()
        record = await (client.end_of(run_id) if timeout is None else client.end_within(run_id, timeout))
        return msgspec.json.decode(client.value_of(run_id, record))


def store_name(store: Store) -> str:
    """What may be shown of a store: never a URL, which may hold a password (FAULTS S10)."""
    return store.path if isinstance(store, SQLiteStore) else type(store).__name__


def find_store(url: str, *, create: bool, memory: bool = False, look: bool = False) -> Store:
    """The store of a URL. `create=False` refuses one that is not there. `look`: only to be looked at; otherwise it is
    brought to the schema of this release if the command line, or the person in front of it, says so."""
    store = open_store(url)
    if isinstance(store, MemoryStore) and not memory:
        raise StoreUnusable("a store in memory is seen by one process only. Name a file with --store or PERDURE_STORE.")
    if not create and isinstance(store, SQLiteStore) and _is_missing(store.path):
        raise StoreUnusable(
            f"there is no store at {store.path}. Name another with --store or PERDURE_STORE; "
            "`perdure start` and `perdure worker` create one."
        )
    if not isinstance(store, SQLiteStore):
        return store
    if look:
        return SQLiteStore(store.path, store.durability, read_only=True)
    return SQLiteStore(store.path, store.durability, migrate=_may_migrate())


def _may_migrate() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(MIGRATE))


def _is_missing(path: str) -> bool:
    try:
        return not os.path.exists(path) or (os.path.isfile(path) and os.path.getsize(path) == 0)
    except OSError:
        return False  # let the store say what is wrong


@asynccontextmanager
async def session(
    url: str, *, create: bool = False, memory: bool = False, worker: bool = False
) -> AsyncGenerator[Session, None]:
    """An open session that may change the store; without a worker unless asked."""
    async with Engine(find_store(url, create=create, memory=memory), worker=worker) as engine:
        yield Session(engine)


@asynccontextmanager
async def look(url: str) -> AsyncGenerator[Session, None]:
    """An open session that writes nothing: also for a file that cannot be written, a backup, or one of an older schema
    that a worker of an older perdure uses."""
    async with Engine(find_store(url, create=False, look=True), worker=False) as engine:
        yield Session(engine)
