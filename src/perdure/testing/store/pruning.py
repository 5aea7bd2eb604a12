"""Records that no replay needs go in the commit that says so, and are counted."""

from __future__ import annotations

from perdure.store.protocol import Store
from perdure.store.turn import Committed, NextGeneration, Rejected
from perdure.testing.store.kit import World, accept, commit, create, everything, row_of, started_row, step_row, turn


def check_pruned_records_go_with_the_turn_and_are_counted(world: World) -> None:
    """CONFORMANCE C4, W1: the others stay, in order, and positions are not given again."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2), step_row(3), step_row(4)))
        await accept(store, turn(key, 5, step_row(5), pruned=[2, 4]))
        row, (records,), _ = await everything(store, "a")
        assert [record.seq for record in records] == [1, 3, 5]
        assert (row.next_seq, row.pruned) == (6, 2)
        await accept(store, turn(key, 6, step_row(6), pruned=[3]))
        assert [record.seq for record in await store.journal(key, 1)] == [1, 5, 6]
        assert [record.seq for record in await store.journal(key, 1, after_seq=5)] == [6]
        (loaded,) = await store.load([key])
        assert [record.seq for record in loaded.rows] == [1, 5, 6]
        assert loaded.run.pruned == 3

    world.run(check)


def check_a_turn_without_records_may_prune(world: World) -> None:
    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2)))
        await accept(store, turn(key, 3, pruned=[2]))
        assert (await row_of(store, "a")).pruned == 1

    world.run(check)


def check_a_turn_without_records_that_comes_again_prunes_once(world: World) -> None:
    """FAULTS B2: nothing in the journal tells the repeat from the first, so what is there is deleted and counted."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2), step_row(3), step_row(4)))
        again = turn(key, 5, pruned=[2, 3])
        await accept(store, again)
        await accept(store, again)
        row, (records,), _ = await everything(store, "a")
        assert [record.seq for record in records] == [1, 4]
        assert row.pruned == 2

    world.run(check)


def check_a_refused_turn_prunes_nothing(world: World) -> None:
    """Law 3: all or nothing."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2)))
        assert isinstance(await commit(store, turn(key, 9, step_row(9), pruned=[2])), Rejected)
        row, (records,), _ = await everything(store, "a")
        assert [record.seq for record in records] == [1, 2]
        assert row.pruned == 0

    world.run(check)


def check_a_turn_that_comes_again_prunes_once(world: World) -> None:
    """Law 6: raised but committed. The repeat is recognised although the journal has gaps before it."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2), step_row(3)))
        again = turn(key, 4, step_row(4), pruned=[2, 3])
        await accept(store, again)
        repeated = await commit(store, again)
        assert isinstance(repeated, Committed)
        assert repeated.repeated
        row, (records,), _ = await everything(store, "a")
        assert [record.seq for record in records] == [1, 4]
        assert row.pruned == 2

    world.run(check)


def check_several_turns_of_one_batch_prune_their_own(world: World) -> None:
    async def check(store: Store) -> None:
        keys = [await create(store, name) for name in ("a", "b", "c")]
        for key in keys:
            await accept(store, turn(key, 2, step_row(2)))
        turns = [turn(key, 3, step_row(3), pruned=[2] if key != keys[1] else []) for key in keys]
        assert all(isinstance(result, Committed) for result in await store.commit(turns))
        assert [[r.seq for r in await store.journal(key, 1)] for key in keys] == [[1, 3], [1, 2, 3], [1, 3]]
        assert [(await row_of(store, name)).pruned for name in ("a", "b", "c")] == [1, 0, 1]

    world.run(check)


def check_the_next_generation_counts_anew(world: World) -> None:
    """CONFORMANCE C6."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2)))
        following = NextGeneration(workflow="order", version="1", started=started_row())
        await accept(store, turn(key, 3, step_row(3), pruned=[2]))
        await accept(store, turn(key, 4, step_row(4), pruned=[3], continued=following))
        row = await row_of(store, "a")
        assert (row.generation, row.next_seq, row.pruned) == (2, 2, 0)

    world.run(check)
