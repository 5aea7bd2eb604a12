"""Which statements a store executes for turns: plain ones go by the fast path, whatever their runs are called, and one
that is watched does not slow down the others. A fast path that is never taken would answer right, and be no use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure.store.model import CLAIMABLE, Status
from perdure.store.protocol import Store
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite.queries import SQL
from perdure.store.turn import Turn
from perdure.testing.store.checks import Check
from perdure.testing.store.fences import DUE, NOT_CLAIMABLE, abandoned, not_claimable
from perdure.testing.store.kit import World, accept, create, finishing, new_run, step_row, stepping, turn, watch, worker

#: What turns that take the general path execute.
_LONG_WAY = {SQL[name] for name in ("advance_run", "finish_run", "continue_run", "add_record")}
#: Enough turns for a store to carry them out at once.
_MANY = 20


def _make(kind: str, key: int) -> Turn:
    match kind:
        case "step":
            return stepping(key, 3)
        case "end":
            return finishing(key, 3)
        case _:
            return turn(key, 3, step_row(3))


async def _executed(store: SQLiteStore, turns: Sequence[Turn]) -> set[str]:
    """The statements of a commit, which is accepted."""
    session: Any = store.writer.session
    texts: set[str] = set()
    session.connection.exec_trace = lambda cursor, text, bindings: texts.add(text.strip().removesuffix(";")) or True
    try:
        if len(turns) > 1:
            asyncio.get_running_loop().call_soon(int)
        results = await store.commit(turns)
    finally:
        session.connection.exec_trace = None
    assert [type(result).__name__ for result in results] == ["Committed"] * len(turns)
    return texts


def _check(world: World, kind: str, count: int, status: Status) -> None:
    async def check(store: Store) -> None:
        assert isinstance(store, SQLiteStore)
        watched, watcher = await create(store, "watched"), await create(store, "watcher")
        made = await store.create_all([(new_run(f"r{number}"), None) for number in range(count)])
        later = await create(store, "watched too")
        await accept(store, turn(watcher, 2, watch(2, "watched"), watch(3, "watched too")))
        keys = [one.key for one in made]
        assert [*sorted([watched, *keys]), later] == [watched, *keys, later]
        for key in keys:
            await accept(store, turn(key, 2, step_row(2), status=status))
        texts = await _executed(store, [_make(kind, key) for key in keys])
        assert texts, "nothing was traced"
        assert not texts & _LONG_WAY, sorted(texts & _LONG_WAY)

    world.run(check)


def _check_idle(world: World, deaths: int, what: str) -> None:
    """A look that finds nothing does not write: most sweeps do, and a write would get in the way of others."""

    async def check(store: Store) -> None:
        assert isinstance(store, SQLiteStore)
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        await not_claimable(store, deaths, what)
        before = store.writer.transactions
        assert await store.claim("w1", DUE, 100, 100) == []
        assert store.writer.transactions == before

    world.run(check)


def _check_due(world: World, status: Status, deaths: int) -> None:
    """And one run that is due is found by it."""

    async def check(store: Store) -> None:
        await store.register_worker(worker("w1"))
        await abandoned(store, "a", deaths, status)
        assert [row.id for row in await store.claim("w1", DUE, 100, 100)] == ["a"]

    world.run(check)


_STATUSES = sorted(CLAIMABLE)
FAST_PATH = [
    *[
        Check(f"fast-path[{kind}-{count}-{status}]", _check, (kind, count, status))
        for kind, count in (("step", 1), ("step", _MANY), ("record", _MANY), ("end", _MANY))
        for status in _STATUSES
    ],
    *[Check(f"idle[{deaths}-{what}]", _check_idle, (deaths, what)) for deaths in (0, 1) for what in NOT_CLAIMABLE],
    *[Check(f"due[{status}-{deaths}]", _check_due, (status, deaths)) for status in _STATUSES for deaths in (0, 1)],
]
