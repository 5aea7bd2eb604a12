"""A lone turn on PostgreSQL: the loop that has nothing else to do waits a moment for the answer, and never longer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

import psycopg
import pytest

from perdure.store.postgres import PostgresStore, lane
from perdure.store.sql.inline_commit import INLINE_STREAK_MAX
from perdure.store.turn import Committed
from perdure.testing.store.kit import create, step_row, stepping, worker
from support.lives import STORES, run_async
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")


@contextlib.asynccontextmanager
async def a_run(url: str) -> AsyncGenerator[tuple[PostgresStore, int]]:
    """A store with a run of a worker of its own."""
    store = PostgresStore(url)
    await store.open()
    await store.register_worker(worker("w1"))
    yield store, await create(store, "r", owner="w1")
    await store.close()


def test_a_lone_turn_is_answered_on_the_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller may run on without a round of the loop, except for each fourth time: others get their turn."""
    monkeypatch.setattr(lane, "INLINE_WAIT_SECONDS_MAX", 60.0)  # however slow the server is just now
    url = server().url(server().fresh_schema())

    async def main() -> None:
        async with a_run(url) as (store, key):
            at_once = 0
            for seq in range(2, 42):
                answer = store.commit([stepping(key, seq, step_row(seq), worker="w1")])
                at_once += answer.done()
                assert isinstance((await answer)[0], Committed)
            assert at_once == 40 - 40 // INLINE_STREAK_MAX

    run_async(main(), patience=60)


def test_a_busy_loop_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "INLINE_WAIT_SECONDS_MAX", 60.0)
    url = server().url(server().fresh_schema())

    async def main() -> None:
        async with a_run(url) as (store, key):
            for seq in range(2, 12):
                asyncio.get_running_loop().call_soon(int)
                answer = store.commit([stepping(key, seq, step_row(seq), worker="w1")])
                assert not answer.done()
                assert isinstance((await answer)[0], Committed)

    run_async(main(), patience=60)


def test_an_answer_that_does_not_come_is_left_to_the_loop() -> None:
    """FAULTS B24: while somebody else has the lock of the run the loop goes on, and the answer comes all the same."""
    url = server().url(schema := server().fresh_schema())

    async def main() -> None:
        async with a_run(url) as (store, key):
            with psycopg.connect(url.partition("?")[0]) as other:
                other.execute(psycopg.sql.SQL("SELECT FROM {}.runs FOR UPDATE").format(psycopg.sql.Identifier(schema)))
                began = time.monotonic()
                answer = store.commit([stepping(key, 2, step_row(2), worker="w1")])
                assert not answer.done()
                assert time.monotonic() - began < 1
                await asyncio.sleep(0)
                assert not answer.done()
            assert isinstance((await answer)[0], Committed)

    run_async(main(), patience=60)
