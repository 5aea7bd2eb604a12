"""Commands that only look change nothing on PostgreSQL: no schema is made or migrated, and nothing can be written."""

from __future__ import annotations

from typing import Any

import pytest

from cli.cli_kit import APP, invoke
from perdure.errors import StoreUnusable
from perdure.store.postgres import PostgresStore, migrate
from stores.store_kit import create
from support.lives import run_async
from support.postgres import server

LOOKS = [("ls",), ("show", "old"), ("history", "old"), ("why", "old"), ("events",), ("dead-letters", "list")]
CHANGES = [("pause", "old"), ("cancel", "old"), ("send", "old", "CliApproved", "--data", '{"by": "ann"}', "--app", APP)]


def made(schema: str) -> None:
    async def main() -> None:
        store = PostgresStore(server().url(schema))
        await store.open()
        await create(store, "old", owner=None, workflow="cli_order")
        await store.close()

    run_async(main())


def is_there(schema: str) -> bool:
    return bool(server().execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall())


@pytest.mark.parametrize("command", [*LOOKS, *CHANGES], ids=lambda command: command[0])
def test_a_schema_that_is_not_there_is_refused_and_not_made(command: tuple[str, ...]) -> None:
    """A schema that was spelled wrongly would otherwise be an empty store that all is well with. Only `start` and
    `worker` make one."""
    schema = server().fresh_schema(recycle=False)
    result = invoke(*command, "--store", server().url(schema))
    assert (result.exit_code, f"there is no store in the schema '{schema}'" in result.output) == (1, True)
    assert "`perdure start` and `perdure worker` make one" in result.output
    assert not is_there(schema)


@pytest.mark.parametrize("command", LOOKS, ids=lambda command: command[0])
def test_looking_shows_what_is_there(command: tuple[str, ...]) -> None:
    schema = server().fresh_schema()
    made(schema)
    result = invoke(*command, "--store", server().url(schema))
    assert result.exit_code == 0, result.output
    if command[0] in ("ls", "show", "history", "why"):
        assert "old" in result.output or "started" in result.output


def test_start_makes_the_schema() -> None:
    schema = server().fresh_schema(recycle=False)
    result = invoke(
        "start", "cli_order", "--input", '{"order_id": "o-1"}', "--app", APP, "--store", server().url(schema)
    )
    assert result.exit_code == 0, result.output
    assert is_there(schema)


@pytest.mark.parametrize(("command", "code"), [(("ls",), 8), (("pause", "old"), 8), (("pause", "old", "--migrate"), 0)])
def test_migrating_is_asked_for(command: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS O8: as for a file; a worker of an older perdure may be using it."""
    schema = server().fresh_schema(recycle=False)
    made(schema)
    following = migrate.newest() + 1  # there is no older one yet: this release is made the next one
    monkeypatch.setattr(migrate, "MIGRATIONS", (*migrate.MIGRATIONS, (following, "SELECT 1")))
    result = invoke(*command, "--store", server().url(schema))
    assert result.exit_code == code, result.output
    number = server().execute(f'SELECT number FROM "{schema}".perdure_schema').fetchall()
    assert number == [(following if not code else following - 1,)]


def test_a_store_that_was_opened_for_looking_changes_nothing() -> None:
    schema = server().fresh_schema()
    made(schema)

    async def main() -> None:
        store: Any = PostgresStore(server().url(schema), read_only=True)
        await store.open()
        try:
            row = await store.get("old")
            assert row is not None
            for change in (
                lambda: store.pause("old", "", 1),
                lambda: store.create_all([]),
                lambda: store.commit([]),
                lambda: store.delete([row.key]),
            ):
                with pytest.raises(StoreUnusable, match="was opened for looking only"):
                    await change()
            assert await store.get("old") == row
        finally:
            await store.close()
            await store.close()

    run_async(main())
