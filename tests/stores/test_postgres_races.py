"""Several processes change the same rows of PostgreSQL at once, and each order of their commits ends right: what reads,
what gives back and what publishes misses nothing that is under way (docs/reference/locks.md)."""

from __future__ import annotations

import asyncio
import time

import pytest

from perdure.kernel.definitions import EventPolicy
from perdure.store.model import Release, Status
from perdure.store.postgres import PostgresStore
from perdure.testing.store.kit import SHARED, accept, create, event, finishing, published, row_of, turn, worker
from stores.postgres_holds import held_before_commit, stores_on, waits_for_a_lock
from support.lives import STORES, run_async
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")

LATER = 10**9
SINGLE = EventPolicy()


@pytest.fixture
def schema() -> str:
    return server().fresh_schema()


async def make_known(store: PostgresStore, kind: str) -> None:
    """There is a row for the type: adding it would be a lock, too, but only once."""
    key = await create(store, "made it known")
    await accept(store, turn(key, 2, status=Status.WAITING, waits={kind: 1}))
    await accept(store, finishing(key, 2))


async def types_in(store: PostgresStore, key: int) -> list[str]:
    return [item.type for item in await store.inbox(key, 10)]


# -- news ------------------------------------------------------------------------------------------------


def test_news_has_what_was_written_before_it_was_read_and_committed_afterwards(schema: str) -> None:
    """CONFORMANCE E1, FAULTS C14: transactions become visible in another order than they begin, so a cursor that is the
    newest item, or the newest transaction, steps over the slower one for ever."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            slow, quick = await create(one, "slow"), await create(one, "quick")
            cursor = (await one.news("w1", 0)).cursor
            with held_before_commit(two) as hold:
                late = asyncio.ensure_future(two.append("slow", event(data=b"late"), 9))
                await hold.reached()
                await one.append("quick", event(data=b"early"), 9)
                news = await one.news("w1", cursor)
                assert [(found.key, found.item.data) for found in news.items] == [(quick, b"early")]
            await late
            news = await one.news("w1", news.cursor)
            assert (slow, b"late") in [(found.key, found.item.data) for found in news.items]

    run_async(main())


def test_news_that_nobody_disturbs_is_told_once(schema: str) -> None:
    """The cursor moves: otherwise every look would read all that is unread."""

    async def main() -> None:
        async with stores_on(schema, 1) as (one,):
            key = await create(one, "a")
            cursor = (await one.news("w1", 0)).cursor
            await one.append("a", event(), 9)

            async def told() -> list[int]:
                nonlocal cursor
                news = await one.news("w1", cursor)
                cursor = news.cursor
                return [found.key for found in news.items]

            assert await told() == [key]
            # Transactions of other databases of the server count, too: once they have ended nothing comes again.
            async with asyncio.timeout(20):
                while await told():
                    await asyncio.sleep(0.01)

    run_async(main())


# -- giving a run back -----------------------------------------------------------------------------------


def test_a_run_that_is_released_while_an_item_arrives_is_due_at_once(schema: str) -> None:
    """CONFORMANCE E1, FAULTS C14: the item is written and not committed; a look into the inbox would not see it."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            key = await create(one, "a")
            with held_before_commit(two) as hold:
                arriving = asyncio.ensure_future(two.append("a", event(), 9))
                await hold.reached()
                releasing = asyncio.ensure_future(
                    one.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=LATER)])
                )
                assert await waits_for_a_lock(schema, releasing)
            await asyncio.gather(arriving, releasing)
            assert [row.id for row in await two.claim("w2", 100, 9)] == ["a"]

    run_async(main())


def test_an_item_that_arrives_while_its_run_is_released_makes_it_due_at_once(schema: str) -> None:
    """The other order of the same race."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            key = await create(one, "a")
            with held_before_commit(one) as hold:
                releasing = asyncio.ensure_future(
                    one.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=LATER)])
                )
                await hold.reached()
                arriving = asyncio.ensure_future(two.append("a", event(), 9))
                assert await waits_for_a_lock(schema, arriving)
            await asyncio.gather(arriving, releasing)
            assert [row.id for row in await two.claim("w2", 100, 9)] == ["a"]

    run_async(main())


def test_a_dead_workers_run_that_is_freed_while_an_item_arrives_is_due_at_once(schema: str) -> None:
    """FAULTS C3, C14: reaping looks into the inbox, in a statement of its own after it has the lock."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            await one.register_worker(worker("w2"))
            key = await create(one, "a", owner="gone")
            await accept(one, turn(key, 2, status=Status.WAITING, worker="gone"))
            with held_before_commit(two) as hold:
                arriving = asyncio.ensure_future(two.append("a", event(), 9))
                await hold.reached()
                reaping = asyncio.ensure_future(one.reap("w2", 100))
                assert await waits_for_a_lock(schema, reaping)
            assert (await arriving).delivery is not None
            assert await reaping == 1
            assert [row.id for row in await one.claim("w2", 100, 9)] == ["a"]

    run_async(main())


# -- publishing and waiting ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [SINGLE, SHARED], ids=["for one", "for all"])
def test_an_event_published_while_a_run_begins_to_wait_reaches_it(policy: EventPolicy, schema: str) -> None:
    """CONFORMANCE E1, E6: the publisher does not see the wait yet, and the run has looked at the log already: only the
    lock of the type makes one of them come second."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            await make_known(one, "ping")
            key = await create(one, "a")
            with held_before_commit(one) as hold:
                waiting = asyncio.ensure_future(one.commit([turn(key, 2, status=Status.WAITING, waits={"ping": 1})]))
                await hold.reached()
                publishing = asyncio.ensure_future(two.publish(published("ping", policy, 200), 10))
                assert await waits_for_a_lock(schema, publishing)
            await asyncio.gather(waiting, publishing)
            assert await types_in(one, key) == ["ping"]

    run_async(main())


@pytest.mark.parametrize("policy", [SINGLE, SHARED], ids=["for one", "for all"])
def test_a_run_that_begins_to_wait_while_an_event_is_published_gets_it(policy: EventPolicy, schema: str) -> None:
    """The other order: the run waits for the publisher's commit, and finds the event in the log."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            await make_known(one, "ping")
            key = await create(one, "a")
            with held_before_commit(two) as hold:
                publishing = asyncio.ensure_future(two.publish(published("ping", policy, 200), 10))
                await hold.reached()
                waiting = asyncio.ensure_future(one.commit([turn(key, 2, status=Status.WAITING, waits={"ping": 1})]))
                assert await waits_for_a_lock(schema, waiting)
            await asyncio.gather(waiting, publishing)
            assert await types_in(one, key) == ["ping"]

    run_async(main())


def test_runs_that_begin_to_wait_do_not_wait_for_each_other(schema: str) -> None:
    """The lock is shared by those who wait: a crowd that waits for one type is not a queue."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            first, second = await create(one, "a"), await create(one, "b")
            await make_known(one, "ping")
            with held_before_commit(one) as hold:
                waiting = asyncio.ensure_future(one.commit([turn(first, 2, status=Status.WAITING, waits={"ping": 1})]))
                await hold.reached()
                await two.commit([turn(second, 2, status=Status.WAITING, waits={"ping": 1})])
            await waiting

    run_async(main())


# -- leases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-24, 24], ids=["a day behind", "a day ahead"])
def test_the_clock_of_a_worker_does_not_say_who_is_dead(
    hours: int, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS C9: a lease is time by the database's clock, whatever that of the worker says that looks."""

    async def main() -> None:
        async with stores_on(schema, 2) as (one, two):
            await one.register_worker(worker("w1"))
            await create(one, "a", owner="w1")
            server().execute(
                f"UPDATE \"{schema}\".workers SET expires_at = clock_timestamp() + interval '1 hour', silence = "
                "interval '1 hour'"
            )
            here = time.time
            monkeypatch.setattr(time, "time", lambda: here() + hours * 3600)
            await two.register_worker(worker("w2"))
            assert await two.reap("w2", time.time_ns() // 1000) == 0
            assert (await row_of(two, "a")).owner == "w1"
            server().execute(f"UPDATE \"{schema}\".workers SET expires_at = clock_timestamp() WHERE id = 'w1'")
            assert await two.reap("w2", time.time_ns() // 1000) == 1
            assert (await row_of(two, "a")).owner is None

    run_async(main())
