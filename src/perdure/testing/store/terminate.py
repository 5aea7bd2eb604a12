"""Ending a run from outside: at once, for good, and everybody concerned is told in the same change."""

from __future__ import annotations

from perdure.kernel.items import read_child_item
from perdure.kernel.journal import Cancelled, from_row
from perdure.store.model import ItemKind, ParentLink, Release, Status
from perdure.store.protocol import Store
from perdure.store.turn import Rejected
from perdure.testing.store.kit import World, accept, commit, create, everything, finishing, row_of, step_row, turn


def check_terminate_ends_a_run_whatever_it_does(world: World) -> None:
    """CONFORMANCE L2: a last record that says so, a higher epoch; the owner's late turn changes nothing."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2), wake_at=900, at=500))
        assert await store.terminate("a", "stuck", 300) == []
        row, (records,), _ = await everything(store, "a")
        assert (row.status, row.epoch, row.next_seq, row.wake_at) == (Status.CANCELLED, 2, 4, None)
        last = from_row(records[-1])
        assert last.body == Cancelled(reason="stuck", terminated=True)
        assert (last.seq, last.at) == (3, 500), "time does not go back within a run"
        before = await everything(store, "a")
        for late in (turn(key, 3, step_row(3)), finishing(key, 3), finishing(key, 4, epoch=2)):
            assert isinstance(await commit(store, late), Rejected)
        assert await store.terminate("a", "again", 600) is None
        assert await everything(store, "a") == before

    world.run(check)


def check_time_does_not_go_back_after_a_park_and_a_resume(world: World) -> None:
    """The clocks of those who park, resume and terminate a run may be behind the one that wrote its last record."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2), at=500))
        assert await store.park(key, 1, "diverged", 400)
        assert (await row_of(store, "a")).updated_at == 500
        assert await store.resume("a", 300)
        assert (await row_of(store, "a")).updated_at == 500
        await store.terminate("a", "stuck", 200)
        _, (records,), _ = await everything(store, "a")
        assert from_row(records[-1]).at == 500

    world.run(check)


def check_the_owner_learns_of_it_until_it_lets_go(world: World) -> None:
    """CONFORMANCE L1: `news` lists the run as ended; `release` clears it; a dead owner's is cleared by reaping."""

    async def check(store: Store) -> None:
        key, other = await create(store, "a"), await create(store, "b")
        cursor = (await store.news("w1", 0)).cursor
        await store.terminate("a", "stuck", 5)
        assert list((await store.news("w1", cursor)).ended) == [key]
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=1)])
        assert list((await store.news("w1", cursor)).ended) == []
        await store.terminate("b", "stuck", 5)
        assert await store.reap("w2", 9) == 1
        assert list((await store.news("w1", cursor)).ended) == []
        assert (await row_of(store, "b")).status is Status.CANCELLED
        assert other != key
        assert await store.claim("w2", 10**9, 9) == []

    world.run(check)


def check_parent_and_children_are_told(world: World) -> None:
    """CONFORMANCE C7: the parent hears of the end, open children are asked to cancel, detached and ended ones are
    not."""

    async def check(store: Store) -> None:
        parent = await create(store, "parent")
        up = ParentLink(key=parent, generation=1, location="middle")
        middle = await create(store, "middle", parent=up)
        down = ParentLink(key=middle, generation=1, location="leaf")
        leaf, ended = await create(store, "leaf", parent=down), await create(store, "ended", parent=down)
        await create(store, "detached")
        await accept(store, finishing(ended, 2))
        told = await store.terminate("middle", "stuck", 50)
        assert told is not None
        assert {delivery.key for delivery in told} == {parent, leaf}
        (notice,) = await store.inbox(parent, 9)
        assert notice.kind is ItemKind.CHILD
        heard = read_child_item(notice.data)
        assert (heard.child_id, heard.generation, heard.location) == ("middle", 1, "middle")
        assert heard.cancelled == "stuck"
        (asked,) = await store.inbox(leaf, 9)
        assert asked.kind is ItemKind.CANCEL
        assert b"'middle' was terminated: stuck" in asked.data
        assert (await row_of(store, "leaf")).cancel_requested

    world.run(check)
