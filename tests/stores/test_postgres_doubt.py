"""Commits of which PostgreSQL does not say that they are safe: in doubt, and found out by repeating the call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

import psycopg
import pytest

from perdure.errors import StoreUnavailable
from perdure.store.postgres import PostgresStore
from perdure.store.turn import Committed
from perdure.testing.store.kit import commit, create, event, stepping, worker
from support.lives import STORES, run_async, until
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")

#: Those that wait for the confirmation of a standby.
_WAITING = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND wait_event = 'SyncRep'"


@contextlib.contextmanager
def no_standby_answers(schema: str) -> Iterator[Callable[[], Awaitable[None]]]:
    """Commits wait for a standby that is not there. Gives what cancels the wait of the next one, as an administrator
    would who wants to get things moving."""
    with psycopg.connect(server(replicating=True).admin_url, autocommit=True) as outside:

        def waiting() -> list[int]:
            return [pid for (pid,) in outside.execute(_WAITING, (f"{schema}%",))]

        async def cancel_the_wait() -> None:
            await until(lambda: bool(waiting()))
            for pid in waiting():
                outside.execute("SELECT pg_cancel_backend(%s)", (pid,))

        def set_standbys(names: str) -> None:
            outside.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            outside.execute("SELECT pg_reload_conf()")

        set_standbys("nobody")
        try:
            yield cancel_the_wait
        finally:
            set_standbys("")


def test_a_commit_whose_wait_for_the_standby_is_cancelled_is_in_doubt() -> None:
    """FAULTS B13, B15: the server answers as if all were well, and warns that the change may be lost with it. The
    caller hears that nobody knows; the repeat is recognised, and nothing is doubled. By the lane, and the general
    way."""
    replicating = server(replicating=True)
    schema = replicating.fresh_schema()

    async def main() -> None:
        store = PostgresStore(f"{replicating.url(schema)}&durability=full")
        await store.open()
        await store.register_worker(worker("w1"))
        key = await create(store, "a")
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: commit(store, stepping(key, 2)),
            lambda: store.append("a", event(dedup="once"), 9),
        ]
        for call in calls:
            with no_standby_answers(schema) as cancel_the_wait:
                await until(lambda: _shows(schema, "nobody"))
                calling = asyncio.ensure_future(call())
                await cancel_the_wait()
                with pytest.raises(StoreUnavailable, match="standby did not confirm"):
                    await calling
            await until(lambda: _shows(schema, ""))
            await call()
        assert isinstance(again := await commit(store, stepping(key, 2)), Committed)
        assert again.repeated
        assert [row.seq for row in await store.journal(key, 1)] == [1, 2]
        assert len(await store.inbox(key, 9)) == 1
        await store.close()

    run_async(main())


def _shows(schema: str, names: str) -> bool:
    """Whether new sessions see the setting; those that are there take it before their next statement."""
    with psycopg.connect(server(replicating=True).admin_url) as outside:
        return outside.execute("SHOW synchronous_standby_names").fetchone() == (names,)
