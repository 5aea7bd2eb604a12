"""The store suite: what every store must do, as checks that run under pytest for any of them.

    from perdure.testing.store import store_suite
    from my_store import MyStore

    TestMyStore = store_suite(lambda directory: MyStore(directory / "data"))

The factory makes a store, not yet opened, on the data in a directory; called again with the same directory it stands
for another process on the same data. See "Write a store" in the how-to guides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.store import (
    batches,
    claims,
    effects,
    engines,
    events,
    fences,
    hostile,
    inbox,
    late,
    listing,
    moving,
    news,
    opening,
    people,
    pruning,
    reading,
    release,
    repeated,
    terminate,
    timers,
    turns,
    workers,
)
from perdure.testing.store.checks import Check as Check
from perdure.testing.store.checks import checks_of
from perdure.testing.store.kit import Die as Die
from perdure.testing.store.kit import Factory as Factory
from perdure.testing.store.kit import World as World
from perdure.testing.store.opening import old_data_is_understood

_MODULES = (
    opening, turns, late, fences, batches, pruning, effects, inbox, events, claims, workers, release, timers, terminate,
    people, news, reading, listing, hostile, repeated, moving,
    engines,
)  # fmt: skip

CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in checks_of(module))


def store_suite(
    factory: Factory, *, die: Die | None = None, old_data: Mapping[str, Callable[[Path], None]] | None = None
) -> type:
    """A pytest class that runs every check on a store. Give it a name that begins with `Test`.

    `die(store, worker_id)` makes a worker look dead to the others; without it `store.kill_worker(worker_id)` is called
    if there is one, else the store is closed, which must free whatever tells that a worker lives.

    `old_data`: for a store whose format has changed. Each function puts data into a directory as an earlier release
    left it, with an open run called "old" in it; the store must open it, however many do so at once, and go on.
    """

    class Suite:
        @pytest.mark.parametrize("check", CHECKS, ids=[check.id for check in CHECKS])
        def test_store(self, check: Any, tmp_path: Path) -> None:
            check(World(factory, tmp_path, die))

        @pytest.mark.parametrize("release", old_data or (), ids=list(old_data or ()))
        def test_old_data(self, release: str, tmp_path: Path) -> None:
            (old_data or {})[release](tmp_path)
            old_data_is_understood(World(factory, tmp_path, die))

    if not old_data:
        del Suite.test_old_data
    return Suite
