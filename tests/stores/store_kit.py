"""The kit of the store suite, with a world of each of our stores."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

from perdure.store import open_store
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore
from perdure.testing.store import kit
from perdure.testing.store.kit import *  # noqa: F403
from support.postgres import server

memory = functools.cache(lambda directory: MemoryStore())


def sqlite(directory: Path) -> SQLiteStore:
    return SQLiteStore(directory / "store.db")


@functools.cache
def _postgres_url(directory: Path) -> str:
    return server().url(server().fresh_schema(keep_sessions=True))


def postgres(directory: Path) -> Store:
    """On a schema that is this directory's, in this process."""
    return open_store(_postgres_url(directory))


async def crash(store: Store, worker_id: str) -> None:
    """What makes a worker of a store look dead to the others in PostgreSQL (a `Die`)."""
    await cast("Any", store).crash()


class World(kit.World):
    def __init__(self, kind: str, directory: Path) -> None:
        factories: dict[str, kit.Factory] = {"memory": memory, "sqlite": sqlite, "postgres": postgres}
        super().__init__(factories[kind], directory, crash if kind == "postgres" else None)
        self.kind = kind
