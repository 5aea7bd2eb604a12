"""A store's life that goes through every way of committing, and all that a file holds, to compare."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from perdure.errors import StoreUnavailable
from perdure.store.protocol import Store
from perdure.store.sqlite.migrate import migrate
from perdure.store.sqlite.session import Session, connect_writer, prepare_file
from perdure.store.turn import Created
from perdure.testing.store.kit import (
    accept,
    event,
    finishing,
    new_run,
    send,
    spawn,
    step_row,
    turn,
)

#: Enough for the bulk path (`store.sqlite.bulk.BULK_ROWS_MIN`).
MANY = 20

Dump: TypeAlias = dict[str, list[tuple[Any, ...]]]
Call: TypeAlias = Callable[[Store, dict[str, int]], Awaitable[Any]]


async def _create(store: Store, keys: dict[str, int]) -> None:
    created = await store.create(new_run("a"), turn(0, 2))
    keys["a"] = created.key if isinstance(created, Created) else created.row.key


async def _one_turn(store: Store, keys: dict[str, int]) -> None:
    await accept(store, turn(keys["a"], 2, step_row(2)))


async def _create_many(store: Store, keys: dict[str, int]) -> None:
    wanted = [(new_run(f"m{number}"), turn(0, 2)) for number in range(MANY)]
    for number, created in enumerate(await store.create_all(wanted)):
        keys[f"m{number}"] = created.key if isinstance(created, Created) else created.row.key


async def _many_turns(store: Store, keys: dict[str, int]) -> None:
    value = b'"' + b"v" * 700 + b'"'
    for result in await store.commit([turn(keys[f"m{n}"], 2, step_row(2, value)) for n in range(MANY)]):
        assert result is not None


async def _append(store: Store, keys: dict[str, int]) -> None:
    await store.append("a", event(dedup="once"), 100)


async def _rich_turn(store: Store, keys: dict[str, int]) -> None:
    """A message to another run, a child, and a value of several pages, in one turn."""
    big = b'"' + b"x" * 20_000 + b'"'
    await accept(store, turn(keys["a"], 3, send(3, "m1"), spawn(4, new_run("a/child")), step_row(5, big)))


async def _finish_many(store: Store, keys: dict[str, int]) -> None:
    await store.commit([finishing(keys[f"m{number}"], 3) for number in range(MANY)])


async def _finish(store: Store, keys: dict[str, int]) -> None:
    await accept(store, finishing(keys["a"], 6))


CALLS: dict[str, Call] = {
    "create": _create,
    "one turn": _one_turn,
    "create many": _create_many,
    "many turns": _many_turns,
    "append": _append,
    "rich turn": _rich_turn,
    "finish many": _finish_many,
    "finish": _finish,
}


async def insist(call: Callable[[], Awaitable[Any]], failed: Callable[[], None] = lambda: None) -> Any:
    """What every caller may do after `StoreUnavailable`: repeat."""
    for _ in range(50):
        try:
            return await call()
        except StoreUnavailable:
            failed()
            await asyncio.sleep(0)
    raise AssertionError("the store never recovered")


def dump(path: Path) -> Dump:
    """Open a file as a store would, and read everything. Fails if SQLite finds the file damaged."""
    prepare_file(str(path))
    session = connect_writer(str(path), "full")
    session.execute("PRAGMA synchronous = OFF")  # nothing fails here any more, and there are hundreds of files
    try:
        migrate(session, str(path))
        assert session.rows("PRAGMA integrity_check") == [("ok",)]
        assert session.rows("PRAGMA foreign_key_check") == []
        tables = session.rows(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'identity'"
        )
        ids = dict(session.rows("SELECT key, id FROM runs"))
        return {str(name): _rows(session, str(name), ids) for (name,) in tables}
    finally:
        session.close()


#: Numbers that the database draws: a call that is repeated may use up one more of them.
_DRAWN = {"key", "last_item", "previous"}


def _rows(session: Session, table: str, ids: dict[Any, Any]) -> list[tuple[Any, ...]]:
    """The rows of a table, with the ids of runs in the place of their keys."""
    cursor = session.connection.execute(f'SELECT * FROM "{table}"')
    rows = [dict(zip([column[0] for column in cursor.get_description()], row, strict=True)) for row in cursor]
    return sorted(
        (
            tuple(
                ids[value] if name == "run_key" else value
                for name, value in row.items()
                if name not in _DRAWN and not (table == "inbox" and name == "id")
            )
            for row in rows
        ),
        key=repr,
    )


def difference(found: Dump, expected: Dump) -> str:
    return ", ".join(
        f"{name}: {len(found.get(name, []))} rows, not {len(rows)}"
        for name, rows in expected.items()
        if found.get(name) != rows
    )
