"""What is known of workers: what they say of themselves, what they hold, whether they leave."""

from __future__ import annotations

import msgspec

from perdure.store.model import Release, Standing, Status
from perdure.store.protocol import Store
from perdure.testing.store.kit import World, accept, create, finishing, turn, without_leases, worker


def check_what_a_worker_runs_comes_back(world: World) -> None:
    """CONFORMANCE W1: its release, and each workflow with its versions, in the order in which it said them."""
    definitions = (("order", "1"), ("order", "2"), ("Bestellung-\u00e4\U0001f4e6", "2026-01"))

    async def check(store: Store) -> None:
        told = msgspec.structs.replace(worker("w1"), release="0.1.0", definitions=definitions)
        await store.register_worker(told)
        await store.register_worker(worker("w2"))
        other = await world.connect()
        found = {info.id: info for info in await other.workers()}
        assert (found["w1"].release, found["w1"].definitions) == ("0.1.0", definitions)
        assert (found["w2"].release, found["w2"].definitions) == ("", ())
        await store.register_worker(msgspec.structs.replace(told, definitions=definitions[:1]))
        (again,) = [info for info in await other.workers() if info.id == "w1"]
        assert again.definitions == definitions[:1], "registering again says it anew"

    world.run(check)


def check_others_see_that_a_worker_leaves(world: World) -> None:
    """CONFORMANCE W1: since when, by the first call; it goes on owning what it has until it gives that back."""

    async def check(store: Store) -> None:
        other = await world.connect()
        for name in ("w1", "w2"):
            await store.register_worker(worker(name))
        key = await create(store, "a")
        await store.drain_worker("w1", 70)
        await store.drain_worker("w1", 90)
        await store.drain_worker("nobody", 70)
        assert without_leases(await other.standings()) == {"w1": Standing(held=1, draining_since=70), "w2": Standing()}
        assert (await store.renew("w1", 95)).alive
        await store.register_worker(worker("w1"))
        assert (await other.standings())["w1"].draining_since == 70, "a renewal does not take it back"
        await accept(store, turn(key, 2, status=Status.WAITING))
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=1)])
        await store.unregister_worker("w1", 99)
        assert set(await other.standings()) == {"w2"}

    world.run(check)


def check_a_namesake_of_a_worker_that_left_is_not_leaving(world: World) -> None:
    """What was known of a worker goes with it, whether it left or was found dead."""

    async def check(store: Store) -> None:
        await store.register_worker(worker("w1"))
        await store.drain_worker("w1", 70)
        await store.unregister_worker("w1", 80)
        assert await store.standings() == {}
        await store.register_worker(worker("w1"))
        assert (await store.standings())["w1"].draining_since is None

    world.run(check)


def check_standings_count_the_open_runs_of_each_worker(world: World) -> None:
    """CONFORMANCE W1: neither ended nor paused ones; of a dead worker as long as they are its own."""

    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        for name in ("a", "b", "paused"):
            await create(store, name)
        await create(store, "c", owner="w2")
        await create(store, "free", owner=None)
        await accept(store, finishing(await create(store, "ended"), 2))
        await store.pause("paused", "by ann", 60)
        assert {name: one.held for name, one in (await other.standings()).items()} == {"w1": 2, "w2": 1}
        await world.die(store, "w1")
        before = await other.standings()
        assert before["w1"].held == 2
        assert without_leases(await other.standings()) == without_leases(before), "looking changes nothing"
        await other.reap("w2", 80)
        assert {name: one.held for name, one in (await other.standings()).items()} == {"w2": 1}

    world.run(check)
