"""Transactions on PostgreSQL take their locks in one order, however their arguments are ordered: types by name, then
runs by key (docs/reference/locks.md). Otherwise two of them wait for each other until the server ends one.

Each lock in turn is held by somebody outside. The transaction then waits there, with everything before it locked and
nothing after it: so no order of arrival can deadlock two of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure.store.model import Release, Status
from perdure.store.postgres import PostgresStore
from perdure.store.turn import NO_EFFECTS, Rejected, Turn
from perdure.testing.store.kit import create, event, finishing, publish, published, send, step_row, stepping, turn
from stores.postgres_holds import free_rows, locked, stores_on, waits_for_a_lock
from support.lives import STORES, run_async
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")

RUNS = 8
#: An order that is neither up nor down.
MIXED = (5, 0, 7, 2, 1, 6, 3, 4)
_HOLD_RUN = "SELECT key FROM runs WHERE key = %s FOR NO KEY UPDATE"
_FREE_RUNS = "SELECT key FROM runs ORDER BY key FOR NO KEY UPDATE SKIP LOCKED"
_HOLD_TYPE = "SELECT type FROM types WHERE type = %s FOR UPDATE"
_FREE_TYPES = "SELECT type FROM types ORDER BY type FOR UPDATE SKIP LOCKED"

Call = Callable[[PostgresStore, Sequence[int]], Any]


def releasing(store: PostgresStore, keys: Sequence[int]) -> Any:
    return store.release("nobody", [Release(key=keys[n], epoch=1, seen_item=0, ready_at=1) for n in MIXED])


def appending(store: PostgresStore, keys: Sequence[int]) -> Any:
    """Calls of many clients, which share a transaction."""
    return asyncio.gather(*[store.append(f"r{n}", event(), 100) for n in MIXED])


def sending(store: PostgresStore, keys: Sequence[int]) -> Any:
    """Refused turns: what they lock is locked before that is known."""
    late = [turn(keys[n], 99, send(99, f"r{MIXED[n]}")) for n in (6, 1, 3)]
    return store.commit([*late, *[turn(keys[n], 99, send(99, "r2")) for n in (7, 0, 4, 5, 2)]])


@pytest.mark.parametrize("call", [releasing, appending, sending], ids=lambda call: call.__name__)
def test_runs_are_locked_by_key(call: Call) -> None:
    schema = server().fresh_schema()

    async def main() -> None:
        async with stores_on(schema, 1) as (store,):
            keys = [await create(store, f"r{n}") for n in range(RUNS)]
            for place, key in enumerate(keys):
                with locked(schema, _HOLD_RUN, (key,)):
                    calling = asyncio.ensure_future(call(store, keys))
                    assert await waits_for_a_lock(schema, calling)
                    assert free_rows(schema, _FREE_RUNS) == keys[place + 1 :]
                await calling

    run_async(main())


STEPS = "steps"
OTHERS = "other turns"
ENDS = "ends"


def _of(kind: str, key: int) -> Turn:
    if kind == STEPS:
        return stepping(key, 2)
    return finishing(key, 2) if kind == ENDS else turn(key, 2, step_row(2), status=Status.WAITING)


@pytest.mark.parametrize("kind", [STEPS, OTHERS, ENDS])
def test_the_lane_locks_the_runs_of_a_statement_by_key(kind: str) -> None:
    """It locks them as it comes to them, while somebody sends events to several of them."""
    schema = server().fresh_schema()

    async def main() -> None:
        async with stores_on(schema, 1) as (store,):
            for place in range(RUNS):
                keys = [await create(store, f"r{place}-{n}") for n in range(RUNS)]
                turns = [_of(kind, keys[n]) for n in MIXED]
                with locked(schema, _HOLD_RUN, (keys[place],)):
                    calling = asyncio.ensure_future(store.commit(turns))
                    assert await waits_for_a_lock(schema, calling)
                    free = [key for key in free_rows(schema, _FREE_RUNS) if key in keys]
                    assert free == keys[place + 1 :]
                assert list(await calling) == [NO_EFFECTS] * RUNS
                assert store.lane_is_open

    run_async(main())


def test_types_are_locked_by_name_and_before_all_runs() -> None:
    """Those that a turn begins to wait for, and those that it publishes."""
    schema = server().fresh_schema()
    names = [f"t{n}" for n in range(RUNS)]

    async def main() -> None:
        async with stores_on(schema, 1) as (store,):
            keys = [await create(store, f"r{n}") for n in range(2)]
            for name in names:
                await store.publish(published(name), 10)
            waited = {names[n]: 1 for n in MIXED[:4]}
            entries = [publish(99, published(names[n])) for n in MIXED[4:]]
            late = turn(keys[1], 99, *entries, status=Status.WAITING, waits=waited)
            for place, name in enumerate(names):
                with locked(schema, _HOLD_TYPE, (name,)):
                    calling = asyncio.ensure_future(store.commit([late]))
                    assert await waits_for_a_lock(schema, calling)
                    assert free_rows(schema, _FREE_TYPES) == names[place + 1 :]
                    assert free_rows(schema, _FREE_RUNS) == keys
                (answer,) = await calling
                assert isinstance(answer, Rejected)

    run_async(main())
