"""Deadlines are kept to the microsecond and found when they are due, never before."""

from __future__ import annotations

from perdure.limits import AT_ONCE, NEVER
from perdure.store.model import Release, Status
from perdure.store.protocol import Store
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import World, accept, create, event, row_of, step_row, turn, worker

MOMENTS = [1, 1_000_000, 2**31, 2**32 + 1, 1_900_000_000_000_001, 2**53 + 1, NEVER - 1, NEVER]


@cases(MOMENTS)
def check_a_deadline_is_stored_exactly(world: World, at: int) -> None:
    """CONFORMANCE T3: as `wake_at` for people, and as the moment from which a released run can be claimed."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, status=Status.WAITING, wake_at=at))
        assert (await row_of(store, "a")).wake_at == at
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=at)])
        assert list(await store.claim("w2", at - 1, 9)) == []
        assert [row.id for row in await store.claim("w2", at, 9)] == ["a"]

    world.run(check)


def check_the_earliest_deadline_comes_first(world: World) -> None:
    """CONFORMANCE T1: also when they were stored in another order."""

    async def check(store: Store) -> None:
        for number, at in enumerate([50, 10, 40, 20, 30]):
            key = await create(store, f"r{number}")
            await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=at)])
        found: list[str] = []
        for now in (10, 30, 50):
            found += [row.id for row in await store.claim("w2", now, 9)]
        assert found == ["r1", "r3", "r4", "r2", "r0"]

    world.run(check)


def check_a_dead_workers_timer_still_comes(world: World) -> None:
    """CONFORMANCE T3, FAULTS A11: fires late after downtime, never early: the deadline of the last turn decides."""

    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        key = await create(store, "a")
        await accept(store, turn(key, 2, status=Status.WAITING, wake_at=500))
        await accept(store, turn(key, 2, step_row(2), status=Status.WAITING, wake_at=700))
        await world.die(store, "w1")
        assert await other.reap("w2", 100) == 1
        assert list(await other.claim("w2", 699, 9)) == []
        assert [row.id for row in await other.claim("w2", 700, 9)] == ["a"]

    world.run(check)


def check_a_turn_without_deadline_takes_the_old_one_away(world: World) -> None:
    """CONFORMANCE T4: no stray wake-up after an event won the race."""

    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        key = await create(store, "a")
        await accept(store, turn(key, 2, status=Status.WAITING, wake_at=500))
        await accept(store, turn(key, 2, step_row(2), status=Status.WAITING, wake_at=None))
        await world.die(store, "w1")
        await other.reap("w2", 100)
        assert list(await other.claim("w2", NEVER - 1, 9)) == []

    world.run(check)


def check_an_event_does_not_wait_for_the_deadline(world: World) -> None:
    """CONFORMANCE E1: a released run with a far deadline is due at once when something arrives."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=NEVER)])
        await store.append("a", event(), 9)
        assert [row.id for row in await store.claim("w2", AT_ONCE + 1, 9)] == ["a"]

    world.run(check)


def check_records_and_deadlines_survive_the_end_of_the_store_object(world: World) -> None:
    """Law 1: what was answered is there for the next process."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2), status=Status.WAITING, wake_at=77))
        await store.close()
        again = await world.connect()
        row = await row_of(again, "a")
        assert (row.wake_at, row.status, row.next_seq) == (77, Status.WAITING, 3)
        assert list(await again.journal(key, 1))[1:] == [step_row(2)]

    world.run(check)
