"""The door to the engine: one without a worker, on the store that the user named. Commands use it and its `admin`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import click

from perdure.cli.command import MIGRATE
from perdure.engine.engine import Engine
from perdure.errors import StoreUnusable
from perdure.store import open_store
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore


def store_name(store: Store) -> str:
    """What may be shown of a store: never the URL that was given, which may hold a password (FAULTS S10)."""
    if isinstance(store, SQLiteStore):
        return store.path
    location = getattr(store, "location", None)  # of a PostgreSQL store; others may have none
    return str(getattr(location, "shown", type(store).__name__))


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
        return _elsewhere(store, create=create, look=look)
    if look:
        return SQLiteStore(store.path, store.durability, read_only=True)
    return SQLiteStore(store.path, store.durability, migrate=_may_migrate())


def _elsewhere(store: Store, *, create: bool, look: bool) -> Store:
    """The same for PostgreSQL. A store in memory is as it is."""
    if isinstance(store, MemoryStore):
        return store
    from perdure.store.postgres import PostgresStore  # needs psycopg, which is there if there is such a store

    if not isinstance(store, PostgresStore):
        return store
    return PostgresStore(store.location, migrate=_may_migrate(), make=create, read_only=look)


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
) -> AsyncGenerator[Engine, None]:
    """An open engine that may change the store; without a worker unless asked."""
    async with Engine(find_store(url, create=create, memory=memory), worker=worker) as engine:
        yield engine


@asynccontextmanager
async def look(url: str) -> AsyncGenerator[Engine, None]:
    """An open engine that writes nothing: also for a file that cannot be written, a backup, or one of an older schema
    that a worker of an older perdure uses."""
    async with Engine(find_store(url, create=False, look=True), worker=False) as engine:
        yield engine
