"""Claims on PostgreSQL: each worker of a fleet gets its share of what is due."""

from __future__ import annotations

import pytest

from perdure.store.model import Release
from perdure.store.postgres import PostgresStore
from perdure.store.turn import NO_EFFECTS, Committed, Rejected
from perdure.testing.store.kit import commit, create, event, new_run, step_row, stepping, worker
from support.lives import STORES, run_async
from support.postgres import server

pytestmark = pytest.mark.skipif("postgres" not in STORES, reason="PostgreSQL is left out of this run")


async def pending(store: PostgresStore, count: int) -> None:
    for number in range(count):
        await store.create(new_run(f"r{number}", owner=None), None)


async def claimed_in_one_look(store: PostgresStore, worker_id: str) -> int:
    """As the sweep does: until nothing comes any more."""
    count = len(await store.claim(worker_id, NOW, 30))
    while found := await store.claim(worker_id, NOW, 30, again=True):
        count += len(found)
    return count


NOW = 4_000_000_000_000_000


def test_a_worker_leaves_the_others_their_share() -> None:
    """Of 100 due runs one of two workers takes 60 in a look: its half, and ten; then the other gets the rest, as due as
    they were."""
    url = server().url(server().fresh_schema())

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        await pending(store, 100)
        assert await claimed_in_one_look(store, "w1") == 60
        assert await claimed_in_one_look(store, "w2") == 30
        assert await claimed_in_one_look(store, "w1") == 10
        assert await claimed_in_one_look(store, "w2") == 0
        await store.close()

    run_async(main(), patience=60)


def test_a_worker_that_is_alone_takes_everything() -> None:
    """Those that are dead get no share."""
    url = server().url(schema := server().fresh_schema())

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        server().declare_dead(schema, "w2")
        await pending(store, 100)
        assert await claimed_in_one_look(store, "w1") == 100
        await store.close()

    run_async(main(), patience=60)


def test_a_look_begins_where_the_last_one_ended_and_now_and_then_at_the_start() -> None:
    """What was due long ago, against all odds, is passed over by looks that begin at a mark, not by each tenth."""
    url = server().url(schema := server().fresh_schema())

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.register_worker(worker("w1"))
        await pending(store, 1)
        assert await claimed_in_one_look(store, "w1") == 1
        assert await claimed_in_one_look(store, "w1") == 0
        server().execute(f'UPDATE "{schema}".runs SET owner = NULL, ready_at = 1')
        found = [await claimed_in_one_look(store, "w1") for _ in range(12)]
        assert found[0] == 0
        assert sum(found) == 1
        await store.close()

    run_async(main(), patience=60)


def test_a_run_that_is_due_later_is_found_when_it_is_due() -> None:
    """The marks pass over the past only."""
    url = server().url(server().fresh_schema())

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.register_worker(worker("w1"))
        await pending(store, 1)
        (row,) = await store.claim("w1", NOW, 10)
        assert await claimed_in_one_look(store, "w1") == 0
        later = NOW + 60_000_000
        await store.release("w1", [Release(key=row.key, epoch=row.epoch, seen_item=0, ready_at=later)])
        assert await store.claim("w1", later - 1, 10) == []
        assert [found.key for found in await store.claim("w1", later, 10)] == [row.key]
        await store.close()

    run_async(main(), patience=60)


def test_a_run_with_many_turns_is_found_by_its_place_also_after_an_event_moved_it() -> None:
    """Turns of a run with hundreds of records are accepted once each, also if its row has moved since the last."""
    url = server().url(server().fresh_schema())

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.register_worker(worker("w1"))
        key = await create(store, "r1")
        for seq in range(2, 520):
            if seq == 510:
                await store.append("r1", event(), 100)
            one = stepping(key, seq)
            assert await commit(store, one) == NO_EFFECTS
            if seq >= 508:
                assert isinstance(again := await commit(store, one), Committed)
                assert again.repeated
                assert isinstance(await commit(store, stepping(key, seq, step_row(seq, b"2"))), Rejected)
        assert [row.seq for row in await store.journal(key, 1)] == list(range(1, 520))
        await store.close()

    run_async(main(), patience=60)
