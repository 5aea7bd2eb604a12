"""CONFORMANCE W1: whatever is done to runs in whatever order, SQLite answers and shows what the memory store does."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from stores.lives import Life, parts_of
from stores.store_kit import World


@pytest.mark.parametrize("seed", range(12))
def test_memory_and_sqlite_do_the_same_in_random_lives(tmp_path: Path, seed: int) -> None:
    """150 calls of clients, people and workers, late and repeated ones among them. More: `make mutants`."""

    async def check(store: Store) -> None:
        with parts_of(2):
            await Life(MemoryStore(), store, seed).live(150)

    World("sqlite", tmp_path).run(check)
