"""The kit of the store suite, with a world of each of our stores."""

from __future__ import annotations

import functools
from pathlib import Path

from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing.store import kit
from perdure.testing.store.kit import *  # noqa: F403

memory = functools.cache(lambda directory: MemoryStore())


def sqlite(directory: Path) -> SQLiteStore:
    return SQLiteStore(directory / "store.db")


class World(kit.World):
    def __init__(self, kind: str, directory: Path) -> None:
        super().__init__(memory if kind == "memory" else sqlite, directory)
        self.kind = kind
