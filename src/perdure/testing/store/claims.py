"""A run has one owner at a time; the due ones find one, oldest first."""

from __future__ import annotations

import asyncio

from perdure.store.model import Acquittal, Release, Status
from perdure.store.protocol import Store
from perdure.store.turn import Rejected
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import World, accept, create, event, row_of, step_row, turn, worker


def check_ten_claimers_get_ten_different_runs(world: World) -> None:
    """FAULTS C1, CONFORMANCE W1: 10 claimers on two stores, 10 runs, many rounds: each run is claimed once a round."""
    rounds = 30

    async def check(store: Store) -> None:
        other = await world.connect()
        keys = [await create(store, f"r{number}", owner=None) for number in range(10)]
        for number in range(1, rounds + 1):
            claimers = [(store, other)[index % 2].claim(f"w{index}", 100, 1) for index in range(10)]
            claimed = [row for rows in await asyncio.gather(*claimers) for row in rows]
            assert sorted(row.key for row in claimed) == keys
            assert {row.epoch for row in claimed} == {number}
            for row in claimed:
                assert row.owner is not None
                back = Release(key=row.key, epoch=row.epoch, seen_item=0, ready_at=1)
                await store.release(row.owner, [back])

    world.run(check)


@cases([0, 1])
def check_runs_of_unknown_workflows_are_left_whatever_comes_before_and_after(world: World, trusted: int) -> None:
    """CONFORMANCE W4: a worker gets those that it knows, wherever in the store's order of workflows they are."""

    async def check(store: Store) -> None:
        await store.register_worker(worker("w2"))
        for workflow in ("first", "known", "last"):
            await create(store, workflow, owner=None, workflow=workflow)
        unknown = [("first", "1"), ("last", "1")]
        assert [row.id for row in await store.claim("w2", 100, 9, 9, unknown, trusted)] == ["known"]
        assert [row.id for row in await store.claim("w2", 100, 9, 9, (), trusted)] == ["first", "last"]

    world.run(check)


def check_only_what_has_something_to_do_is_due_when_its_worker_died(world: World) -> None:
    """FAULTS C3, C14: of runs that wait, the one with an unread item; not those created before and after it."""

    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        for run_id in ("before", "unread", "later"):
            key = await create(store, run_id)
            await accept(store, turn(key, 2, step_row(2), status=Status.WAITING))
        await other.append("unread", event(), 9)
        await world.die(store, "w1")
        assert await other.reap("w2", 20) == 3
        assert [row.id for row in await other.claim("w2", 10**9, 9, 9)] == ["unread"]

    world.run(check)


def check_none_only_if_there_is_none(world: World) -> None:
    """FAULTS C2: a claimer that competes for the first candidate still gets another one."""

    async def check(store: Store) -> None:
        other = await world.connect()
        for number in range(6):
            await create(store, f"r{number}", owner=None)
        first, second = await asyncio.gather(store.claim("w1", 9, 3), other.claim("w2", 9, 3))
        assert (len(first), len(second)) == (3, 3)
        assert await store.claim("w1", 9, 3) == []

    world.run(check)


def check_due_runs_come_oldest_first(world: World) -> None:
    """FAULTS O2: a run is due when its time has come and nobody owns it; new ones are due whatever the clock says."""

    async def check(store: Store) -> None:
        for number, ready_at in enumerate([30, 10, 20, 99]):
            key = await create(store, f"r{number}", owner="w1", at=500)
            await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=ready_at)])
        await create(store, "new", owner=None, at=500)
        await create(store, "owned", owner="w1", at=1)
        assert [row.id for row in await store.claim("w2", 30, 3)] == ["new", "r1", "r2"]
        assert [row.id for row in await store.claim("w2", 30, 9)] == ["r0"]

    world.run(check)


def check_the_dead_workers_runs_are_claimable_again(world: World) -> None:
    """FAULTS A3, CONFORMANCE W1: running ones at once, waiting ones when they are due or have something to read."""

    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        busy, idle = await create(store, "busy"), await create(store, "idle")
        timed, told = await create(store, "timed"), await create(store, "told")
        for key, wake_at in ((idle, None), (timed, 900), (told, None)):
            await accept(store, turn(key, 2, status=Status.WAITING, wake_at=wake_at))
        await store.append("told", event(), 9)
        assert await other.reap("w2", 200) == 0
        await world.die(store, "w1")
        assert await other.reap("w2", 200) == 4
        assert [info.id for info in await other.workers()] == ["w2"]
        assert {row.key for row in await other.claim("w2", 200, 9)} == {busy, told}
        assert {row.key for row in await other.claim("w2", 900, 9)} == {timed}
        assert (await row_of(other, "idle")).status is Status.WAITING
        assert await other.reap("w2", 200) == 0

    world.run(check)


def check_a_late_turn_is_accepted_only_if_nobody_took_over(world: World) -> None:
    """FAULTS C3, C5: the epoch decides, not who is believed dead."""

    async def check(store: Store) -> None:
        key = await create(store, "a", owner="ghost")
        assert await store.reap("w2", 50) == 1  # an owner that was never registered
        await accept(store, turn(key, 2, step_row(2)))
        (row,) = await store.claim("w2", 200, 9)
        assert row.epoch == 2
        (late,) = await store.commit([turn(key, 3, step_row(3))])
        assert isinstance(late, Rejected)
        assert "epoch" in late.reason

    world.run(check)


async def _die_with(world: World, store: Store, deaths: int, *ids: str) -> Store:
    """Claim these runs and die, several times over. Returns the connection of a worker that has found the last one."""
    for number in range(deaths):
        await store.register_worker(worker(f"dying-{number}"))
        claimed = await store.claim(f"dying-{number}", 50, 99, 99)
        assert {row.id for row in claimed} == set(ids)
        await world.die(store, f"dying-{number}")
        store = await world.connect()
        await store.reap("w2", 50)
    return store


def check_suspects_come_apart_from_the_others_and_the_worst_first(world: World) -> None:
    """CONFORMANCE W4: after more deaths than are trusted; as many as are wanted, besides all the others."""

    async def check(store: Store) -> None:
        await create(store, "twice", owner=None)
        store = await _die_with(world, store, 1, "twice")
        await create(store, "once", owner=None)
        store = await _die_with(world, store, 1, "twice", "once")
        await create(store, "never", owner=None)
        assert [row.id for row in await store.claim("w2", 60, 9, 0, (), 0)] == ["never"]
        assert [row.id for row in await store.claim("w2", 60, 9, 0, (), 1)] == ["once"]
        assert await store.claim("w2", 60, 9, 0, (), 1) == []
        (row,) = await store.claim("w2", 60, 9, 1, (), 1)
        assert (row.id, row.recoveries) == ("twice", 3)

    world.run(check)


def check_the_worst_suspects_are_claimed_first(world: World) -> None:
    """Whatever was due before them."""

    async def check(store: Store) -> None:
        await create(store, "b", owner=None)
        store = await _die_with(world, store, 1, "b")
        await create(store, "a", owner=None)
        store = await _die_with(world, store, 1, "a", "b")
        assert [row.id for row in await store.claim("w2", 60, 9, 1)] == ["b"]
        assert [row.id for row in await store.claim("w2", 60, 9, 1)] == ["a"]

    world.run(check)


def check_a_trusted_run_keeps_its_place(world: World) -> None:
    """The oldest first, whether or not a worker died with it once: new ones must not keep it waiting for ever."""

    async def check(store: Store) -> None:
        await create(store, "old", owner=None)
        store = await _die_with(world, store, 1, "old")
        await create(store, "new", owner=None)
        assert [row.id for row in await store.claim("w2", 60, 1, 0, (), 1)] == ["old"]
        assert [row.id for row in await store.claim("w2", 60, 1, 0, (), 1)] == ["new"]

    world.run(check)


def check_an_acquittal_lowers_the_count_of_its_own_claim_only(world: World) -> None:
    """Never raises it, and leaves a run alone that somebody else has claimed since."""

    async def check(store: Store) -> None:
        key = await create(store, "a", owner=None)
        store = await _die_with(world, store, 2, "a")
        (row,) = await store.claim("w2", 60, 9)
        assert (row.epoch, row.recoveries) == (3, 3)
        for worker_id, epoch in (("w2", 2), ("other", 3)):
            await store.acquit(worker_id, [Acquittal(key, epoch, 0)])
            assert (await row_of(store, "a")).recoveries == 3
        for recoveries, left in ((2, 2), (5, 2), (0, 0)):
            await store.acquit("w2", [Acquittal(key, 3, recoveries)])
            assert (await row_of(store, "a")).recoveries == left

    world.run(check)


def check_a_worker_hears_whether_it_counts_as_alive(world: World) -> None:
    """FAULTS C3: until it has left, or somebody has reaped it. What it does later must be done under another id."""

    async def check(store: Store) -> None:
        other = await world.connect()
        for at_the_store, worker_id in ((store, "w1"), (store, "leaving"), (other, "w2")):
            await at_the_store.register_worker(worker(worker_id))
        assert (await store.renew("w1", 50)).alive
        assert not (await store.renew("nobody", 50)).alive
        assert [info.id for info in await other.workers()].count("nobody") == 0
        await store.unregister_worker("leaving", 60)
        assert not (await store.renew("leaving", 60)).alive
        await create(store, "a", owner="w1")
        await other.reap("w2", 60)
        assert (await store.renew("w1", 60)).alive  # the others have looked, and found nothing wrong
        await world.die(store, "w1")
        assert await other.reap("w2", 70) == 1
        assert not (await other.renew("w1", 70)).alive
        assert (await other.renew("w2", 70)).alive

    world.run(check)


def check_the_stores_time_goes_on(world: World) -> None:
    """FAULTS C9: a store that has a clock of its own tells it each time, and it does not go backwards."""

    async def check(store: Store) -> None:
        await store.register_worker(worker("w1"))
        # The times that the callers give are of no importance for it.
        told = [(await store.renew("w1", at)).now for at in (50, 60, 55, 2**53)]
        if None in told:
            assert told == [None] * 4
        else:
            moments = [moment for moment in told if moment is not None]
            assert moments == sorted(moments)

    world.run(check)


def check_leaving_in_order_frees_everything(world: World) -> None:
    """FAULTS O16: whatever the worker still held is claimable by the others."""

    async def check(store: Store) -> None:
        await store.register_worker(worker("w1"))
        await store.register_worker(worker("w1"))  # the same call again, after a lost answer
        await create(store, "a")
        await store.unregister_worker("w1", 70)
        assert list(await store.workers()) == []
        assert (await row_of(store, "a")).owner is None
        assert [row.id for row in await store.claim("w2", 70, 9)] == ["a"]

    world.run(check)


def check_claims_whose_answer_got_lost_are_still_known(world: World) -> None:
    """CONFORMANCE W2: a worker can ask what it holds, so that a run claimed "in vain" is not held for ever."""

    async def check(store: Store) -> None:
        key = await create(store, "a", owner=None)
        await store.claim("w1", 10, 9)
        assert await store.held("w1") == {key: 1}
        assert await store.held("w2") == {}

    world.run(check)
