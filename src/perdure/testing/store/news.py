"""A worker hears of what arrives for its runs: each item once, none missed, hints before polls."""

from __future__ import annotations

import asyncio

from perdure.store.protocol import Store
from perdure.testing.store.kit import World, accept, create, event, turn


def check_news_are_what_arrived_since_the_cursor(world: World) -> None:
    """From the first cursor of an empty store on, nothing is missed. What comes a second time came before: a store with
    several writers reads again what was written while it read."""

    async def check(store: Store) -> None:
        cursor = (await store.news("w1", 0)).cursor
        assert cursor != 0, "0 means 'from now on': returned as a cursor, it would lose the first item"
        key = await create(store, "a")
        await create(store, "b", owner="w2")
        await store.append("a", event(data=b"1"), 9)
        await store.append("b", event(), 9)
        await store.append("a", event(data=b"2"), 9)
        news = await store.news("w1", cursor)
        assert [(found.key, found.owner, found.item.data) for found in news.items] == [
            (key, "w1", b"1"),
            (key, "w1", b"2"),
        ]
        assert [found.item for found in news.items] == list(await store.inbox(key, 9))
        assert {found.item.id for found in (await store.news("w1", news.cursor)).items} <= {
            found.item.id for found in news.items
        }
        await accept(store, turn(key, 2, consumed=[found.item.id for found in news.items]))
        again = await store.news("w1", news.cursor)
        assert again.cursor >= news.cursor, "items that were read do not move the cursor back"
        assert list(again.items) == list((await store.news("w1", 0)).items) == []

    world.run(check)


def check_news_of_ends_are_of_ones_own_runs(world: World) -> None:
    """CONFORMANCE L1: whatever the others are called."""

    async def check(store: Store) -> None:
        keys = {owner: await create(store, owner, owner=owner) for owner in ("w0", "w1", "w2")}
        for name in keys:
            await store.terminate(name, "why", 200)
        for name, key in keys.items():
            assert list((await store.news(name, 0)).ended) == [key]

    world.run(check)


def check_a_watcher_is_called_for_the_changes_of_others(world: World) -> None:
    """CONFORMANCE W6: the hint comes by itself, and stops when asked to."""

    async def check(store: Store) -> None:
        other = await world.connect()
        called = asyncio.Event()
        stop = store.watch(called.set)
        await create(other, "a", owner=None)
        await asyncio.wait_for(called.wait(), 10)
        stop()
        stop()

    world.run(check)


def check_a_watcher_hears_others_also_while_its_own_store_writes(world: World) -> None:
    """CONFORMANCE W6: our own commits do not hide those of others."""

    async def check(store: Store) -> None:
        other = await world.connect()
        called = asyncio.Event()
        stop = store.watch(called.set)
        for number in range(3):
            called.clear()
            await create(store, f"mine{number}")
            await create(other, f"theirs{number}", owner=None)
            await create(store, f"mine-too{number}")
            await asyncio.wait_for(called.wait(), 10)
        stop()

    world.run(check)
