"""What a turn does to other runs happens in the turn's own change, or is refused on record."""

from __future__ import annotations

from perdure.kernel.items import ChildNotice, child_item, read_child_item
from perdure.store.model import ItemKind, ParentLink, Release, Status
from perdure.store.protocol import Store
from perdure.testing.store.kit import (
    World,
    accept,
    cancel,
    child_row,
    create,
    event,
    finishing,
    new_run,
    row_of,
    send,
    sent_row,
    spawn,
    step_row,
    turn,
)


def check_a_send_arrives_with_the_record_of_it(world: World) -> None:
    """FAULTS A13, CONFORMANCE E9: the item is in the target's inbox, and the delivery names the owner to tell."""

    async def check(store: Store) -> None:
        key, target = await create(store, "a"), await create(store, "b", owner="w2")
        done = await accept(store, turn(key, 2, step_row(2), send(3, "b"), step_row(4)))
        assert list(done.effects) == [sent_row(3, "b")]
        (delivery,) = done.deliveries
        assert (delivery.key, delivery.owner) == (target, "w2")
        assert [delivery.item] == list(await store.inbox(target, 9))
        assert [row.seq for row in await store.journal(key, 1)] == [1, 2, 3, 4]

    world.run(check)


def check_refused_sends_are_recorded_as_such(world: World) -> None:
    """FAULTS F9: unknown, ended and full targets each have their own record, and the turn goes through."""

    async def check(store: Store) -> None:
        key, ended, full = await create(store, "a"), await create(store, "ended"), await create(store, "full")
        await accept(store, finishing(ended, 2))
        await store.append("full", event(), 1)
        entries = [send(2, "nobody"), send(3, "ended"), send(4, "full"), send(5, "full", event("pong"))]
        done = await accept(store, turn(key, 2, *entries, pending_max=1))
        assert list(done.effects) == [
            sent_row(2, "nobody", "not_found"),
            sent_row(3, "ended", "finished"),
            sent_row(4, "full", "full"),
            sent_row(5, "full"),
        ]
        assert list(await store.journal(key, 1))[1:] == list(done.effects)
        assert [item.type for item in await store.inbox(full, 9)] == ["ping", "pong"]

    world.run(check)


def check_a_run_can_send_to_itself(world: World) -> None:
    """CONFORMANCE E9: its own inbox is an inbox like any other, until the turn that ends the run."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        done = await accept(store, turn(key, 2, send(2, "a")))
        assert [delivery.key for delivery in done.deliveries] == [key]
        done = await accept(store, turn(key, 3, send(3, "a"), *finishing(key, 4).entries, status=Status.COMPLETED))
        assert list(done.effects) == [sent_row(3, "a", "finished")]

    world.run(check)


def check_a_cancel_is_sent_once(world: World) -> None:
    """CONFORMANCE L1: the second request is accepted and changes nothing; unread events never stand in its way."""

    async def check(store: Store) -> None:
        key, target = await create(store, "a"), await create(store, "b")
        done = await accept(store, turn(key, 2, send(2, "b", cancel()), send(3, "b", cancel("again")), pending_max=0))
        assert list(done.effects) == [sent_row(2, "b"), sent_row(3, "b")]
        assert len(done.deliveries) == 1
        (item,) = await store.inbox(target, 9)
        assert (item.kind, item.data) == (ItemKind.CANCEL, b"enough")
        assert (await row_of(store, "b")).cancel_requested
        assert await store.request_cancel("b", cancel()) is None

    world.run(check)


def check_a_child_is_created_with_the_record_of_it(world: World) -> None:
    """FAULTS A13: owned children start running at epoch 1, others wait for a claim; both know their parent."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        link = ParentLink(key=key, generation=1, location="child")
        one = turn(
            key,
            2,
            spawn(2, new_run("mine", owner="w1", parent=link)),
            spawn(3, new_run("anyones", owner=None, parent=link, at=40)),
            spawn(4, new_run("detached", owner=None, at=30)),
        )
        done = await accept(store, one)
        mine, anyones, detached = [await row_of(store, run_id) for run_id in ("mine", "anyones", "detached")]
        assert done.spawned == {"mine": mine.key, "anyones": anyones.key, "detached": detached.key}
        assert (mine.owner, mine.epoch, mine.status, mine.parent) == ("w1", 1, Status.RUNNING, link)
        assert (anyones.owner, anyones.epoch, anyones.status) == (None, 0, Status.PENDING)
        assert detached.parent is None
        assert [row.id for row in await store.claim("w2", 40, 9)] == ["anyones", "detached"]

    world.run(check)


def check_the_first_turn_of_a_run_can_have_children(world: World) -> None:
    """CONFORMANCE C7: the builder of that turn could not know the key yet, so the store fills it in."""

    async def check(store: Store) -> None:
        unknown = ParentLink(key=0, generation=1, location="child")
        child = new_run("child", owner=None, parent=unknown)
        created = await store.create(new_run("a"), turn(0, 2, spawn(2, child)))
        parent = (await row_of(store, "child")).parent
        assert parent == ParentLink(key=created.key, generation=1, location="child")  # type: ignore[union-attr]

    world.run(check)


def check_a_taken_child_id_is_a_conflict(world: World) -> None:
    """CONFORMANCE C7: unless the run there is exactly the child asked for."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        link = ParentLink(key=key, generation=1, location="child")
        same = new_run("child", owner=None, parent=link)
        await create(store, "stranger")
        await accept(store, turn(key, 2, spawn(2, same)))
        done = await accept(
            store,
            turn(
                key,
                3,
                spawn(3, same),
                spawn(4, new_run("child", owner=None, parent=link, digest=b"other")),
                spawn(5, new_run("stranger", owner=None)),
            ),
        )
        assert list(done.effects) == [
            child_row(3, "child"),
            child_row(4, "child", "conflict"),
            child_row(5, "stranger", "conflict"),
        ]
        assert list(done.spawned) == ["child"]

    world.run(check)


def check_the_parent_hears_in_the_turn_that_ends_the_child(world: World) -> None:
    """FAULTS A14: one change; an unowned parent becomes claimable; an ended parent is not told."""

    async def check(store: Store) -> None:
        key = await create(store, "parent")
        link = ParentLink(key=key, generation=1, location="child")
        one, two = await create(store, "one", parent=link), await create(store, "two", parent=link)
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=10**9)])
        notice = child_item(ChildNotice("one", 1, "child", cancelled="x"), 60)
        done = await accept(store, finishing(one, 2, notice=notice))
        assert [(delivery.key, delivery.owner) for delivery in done.deliveries] == [(key, None)]
        (item,) = await store.inbox(key, 9)
        assert (item.kind, read_child_item(item.data).child_id) == (ItemKind.CHILD, "one")
        (claimed,) = await store.claim("w2", 60, 9)
        assert claimed.id == "parent"

        await accept(store, finishing(key, 2, epoch=2, worker="w2"))
        assert list((await accept(store, finishing(two, 2, notice=notice))).deliveries) == []

    world.run(check)


def check_a_run_without_parent_tells_nobody(world: World) -> None:
    async def check(store: Store) -> None:
        key = await create(store, "a")
        notice = child_item(ChildNotice("a", 1, "child", cancelled="x"), 60)
        assert list((await accept(store, finishing(key, 2, notice=notice))).deliveries) == []

    world.run(check)
