"""Giving a run back never loses a wake-up, and parking never loses anything."""

from __future__ import annotations

import asyncio

from perdure.store.model import Release, Status
from perdure.store.protocol import Store
from perdure.store.turn import Rejected
from perdure.testing.store.kit import World, accept, create, event, everything, row_of, step_row, turn, worker

LATER = 10**9


def check_a_released_run_sleeps_until_it_is_due(world: World) -> None:
    """CONFORMANCE W4: with the reason why nobody runs it, for people to see."""

    async def check(store: Store) -> None:
        key = await create(store, "a", owner=None)
        await store.claim("w1", 5, 1)
        await store.release(
            "w1", [Release(key=key, epoch=1, seen_item=0, ready_at=80, reason="no worker knows 'order'")]
        )
        row = await row_of(store, "a")
        assert (row.owner, row.recoveries, row.reason) == (None, 0, "no worker knows 'order'")
        assert row.status is Status.PENDING
        assert await store.claim("w2", 79, 9) == []
        assert [row.id for row in await store.claim("w2", 80, 9)] == ["a"]

    world.run(check)


def check_only_the_owner_releases(world: World) -> None:
    """FAULTS C3: a zombie's release does not take the run from its successor."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.release("w2", [Release(key=key, epoch=1, seen_item=0, ready_at=1)])
        await store.release("w1", [Release(key=key, epoch=7, seen_item=0, ready_at=1)])
        assert (await row_of(store, "a")).owner == "w1"

    world.run(check)


def check_an_unseen_item_makes_it_due_at_once(world: World) -> None:
    """FAULTS C14, CONFORMANCE E1: an event that came after the worker's last look is not slept over; a seen one is."""

    async def check(store: Store) -> None:
        first, second = await create(store, "a"), await create(store, "b")
        one = (await store.append("a", event(), 9)).delivery
        two = (await store.append("b", event(), 9)).delivery
        assert one is not None
        assert two is not None
        await store.release(
            "w1",
            [
                Release(key=first, epoch=1, seen_item=one.item.id - 1, ready_at=LATER),
                Release(key=second, epoch=1, seen_item=two.item.id, ready_at=LATER),
            ],
        )
        assert [row.id for row in await store.claim("w2", 100, 9)] == ["a"]

    world.run(check)


def check_an_item_for_an_unowned_run_makes_it_due(world: World) -> None:
    """FAULTS C14, O2: the other order of the same race; due at once, also if the clock is set back afterwards."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=LATER)])
        assert await store.claim("w2", 60, 9) == []
        delivery = (await store.append("a", event(at=60), 9)).delivery
        assert delivery is not None
        assert delivery.owner is None
        assert [row.id for row in await store.claim("w2", 1, 9)] == ["a"]

    world.run(check)


def check_an_item_wakes_a_run_whose_worker_died(world: World) -> None:
    """CONFORMANCE W4, FAULTS C14: it waited for ever when its worker died; it is due, and still under suspicion."""

    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        key = await create(store, "a", owner=None)
        (claimed,) = await store.claim("w1", 10, 1)
        waiting = turn(key, 2, status=Status.WAITING, epoch=claimed.epoch, frontier=b"f")
        await accept(store, waiting)
        await world.die(store, "w1")
        assert await other.reap("w2", 20) == 1
        assert await other.claim("w2", LATER, 9, 9) == []
        await other.append("a", event(), 9)
        assert await other.claim("w2", LATER, 9, 0) == []
        assert [(row.id, row.recoveries) for row in await other.claim("w2", LATER, 9, 1)] == [("a", 2)]

    world.run(check)


def check_an_item_does_not_put_off_a_run_that_is_due(world: World) -> None:
    """FAULTS C2: one that gets event after event is not passed by others for ever."""

    async def check(store: Store) -> None:
        await store.register_worker(worker("w2"))
        for run_id in ("a", "b"):
            await create(store, run_id, owner=None)
        await store.append("a", event(), 9)
        assert [row.id for row in await store.claim("w2", LATER, 1, 0)] == ["a"]

    world.run(check)


def check_release_and_append_in_a_race_always_leave_it_due(world: World) -> None:
    """FAULTS C14: two stores on the same data, both orders, no lost wake-up."""

    async def check(store: Store) -> None:
        other = await world.connect()
        for number in range(20):
            key = await create(store, f"r{number}")
            back = Release(key=key, epoch=1, seen_item=0, ready_at=LATER)
            calls = [store.release("w1", [back]), other.append(f"r{number}", event(), 9)]
            await asyncio.gather(*(calls if number % 2 else reversed(calls)))
            assert [row.id for row in await other.claim("w2", 100, 9)] == [f"r{number}"]

    world.run(check)


def check_a_parked_run_waits_for_a_person(world: World) -> None:
    """Law 8: nothing of it is lost, nobody claims it, late turns are refused, `resume` brings it back."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2)))
        await store.append("a", event(), 9)
        assert not await store.park(key, 3, "diverged", 70)
        assert await store.park(key, 1, "diverged", 70)
        assert await store.park(key, 1, "diverged", 70), "the same call again, after a lost answer"
        row, (records,), inbox = await everything(store, "a")
        assert (row.status, row.owner, row.reason) == (Status.PARKED, None, "diverged")
        assert (len(records), len(inbox)) == (2, 1)
        await store.append("a", event(), 9)
        assert await store.claim("w2", LATER, 9) == []
        assert isinstance((await store.commit([turn(key, 3, step_row(3))]))[0], Rejected)
        assert await store.resume("a", 90)
        assert not await store.resume("a", 90)
        (claimed,) = await store.claim("w2", 90, 9)
        assert (claimed.epoch, claimed.recoveries, claimed.reason) == (2, 1, None)

    world.run(check)
