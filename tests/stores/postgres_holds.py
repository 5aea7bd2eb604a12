"""Interleavings of transactions that are chosen, not hoped for: one is held just before its COMMIT, another one is seen
to wait for it.

    with held_before_commit(two) as hold:
        first = asyncio.ensure_future(two.append("a", event(), 9))
        await hold.reached()
        second = asyncio.ensure_future(one.release("w1", releases))
        assert await waits_for_a_lock(schema, second)
    await asyncio.gather(first, second)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest

from perdure.store.postgres import PostgresStore
from perdure.store.postgres.session import Session
from support.lives import PATIENCE_SECONDS, until
from support.postgres import server

_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s AND cardinality(pg_blocking_pids(pid)) > 0
"""


@asynccontextmanager
async def stores_on(schema: str, count: int) -> AsyncIterator[Sequence[PostgresStore]]:
    """So many processes' stores on the same data, as far as PostgreSQL can tell."""
    opened = [PostgresStore(server().url(schema)) for _ in range(count)]
    for store in opened:
        await store.open()
    try:
        yield opened
    finally:
        for store in opened:
            await store.close()


class Hold:
    def __init__(self) -> None:
        self._reached, self._let_go = threading.Event(), threading.Event()

    async def reached(self) -> None:
        """The transaction has done everything but its COMMIT."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_SECONDS)

    def let_go(self) -> None:
        self._let_go.set()

    def stop_here(self) -> None:
        self._reached.set()
        assert self._let_go.wait(PATIENCE_SECONDS)


@contextmanager
def held_before_commit(store: PostgresStore) -> Iterator[Hold]:
    """Transactions of the writer of this store stop before their COMMIT, until the block ends."""
    hold, commit = Hold(), Session.commit

    def stopping(session: Session) -> None:
        if store._writer is not None and session is store._writer.session:
            hold.stop_here()
        commit(session)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "commit", stopping)
        try:
            yield hold
        finally:
            hold.let_go()


async def waits_for_a_lock(schema: str, call: asyncio.Future[Any]) -> bool:
    """Wait until a session of this schema waits for a lock of another, or this call has ended. False: it has ended."""

    def settled() -> bool:
        return call.done() or bool(server().execute(_WAITING, (f"{schema}%",)).fetchone()[0])

    await until(settled)
    return not call.done()


@contextmanager
def locked(schema: str, statement: str, parameters: Sequence[Any]) -> Iterator[None]:
    """Somebody outside holds the rows that this statement locks."""
    with psycopg.connect(server().admin_url) as outside:
        outside.execute(f'SET search_path TO "{schema}"')
        assert outside.execute(statement, parameters).fetchall()
        try:
            yield
        finally:
            outside.rollback()


def free_rows(schema: str, statement: str) -> list[Any]:
    """What a statement with SKIP LOCKED finds: the rows that nobody has locked."""
    with psycopg.connect(server().admin_url) as outside:
        outside.execute(f'SET search_path TO "{schema}"')
        found = [value for (value,) in outside.execute(statement).fetchall()]
        outside.rollback()
        return found
