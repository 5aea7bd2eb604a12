"""What people do to runs, as every store must do it: pause, reopen, restore, delete; fenced and safe to repeat."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.errors import RunNotFound
from perdure.kernel.items import ChildNotice, child_item
from perdure.kernel.journal import Fault
from perdure.store.items import retry_now_item
from perdure.store.model import ItemKind, ParentLink, Release, Reopen, RunFilter, Snapshot, Status
from perdure.store.protocol import Store
from perdure.store.turn import Created, Existing, Rejected
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import (
    World,
    accept,
    commit,
    create,
    event,
    everything,
    failed_row,
    finishing,
    resumed_row,
    row_of,
    step_row,
    turn,
    worker,
)


async def failed(store: Store, run_id: str, **changes: Any) -> int:
    key = await create(store, run_id, **changes)
    notice = changes.get("parent") and child_item(
        ChildNotice(run_id, 1, "child", error=Fault("builtins:ValueError", "no")), 5
    )
    await accept(store, turn(key, 2, step_row(2), failed_row(3), status=Status.FAILED, notice=notice))
    return key


# -- pause -----------------------------------------------------------------------------------------------


def check_a_paused_run_is_nobodys_business_until_it_is_unpaused(world: World) -> None:
    """CONFORMANCE L4: not claimed, its owner's turns refused, its inbox open; unpaused, the next claim gets it all."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        cursor = (await store.news("w1", 0)).cursor
        deliveries = await store.pause("a", "by ann", 7)
        assert deliveries is not None
        (told,) = deliveries
        assert (told.key, told.owner, told.item.kind) == (key, "w1", ItemKind.PAUSE)
        assert [d.item.kind for d in (await store.news("w1", cursor)).items] == [ItemKind.PAUSE]
        row = await row_of(store, "a")
        assert (row.status, row.reason, row.epoch, row.owner) == (Status.PAUSED, "by ann", 2, "w1")
        assert await store.pause("a", "again", 8) is None
        for late in (turn(key, 2, step_row(2)), finishing(key, 2), finishing(key, 2, epoch=2)):
            assert isinstance(await commit(store, late), Rejected)
        await store.append("a", event(), 9)
        assert await store.held("w1") == {}
        await store.release("w1", [Release(key=key, epoch=0, seen_item=0, ready_at=1)])
        assert (await row_of(store, "a")).owner is None
        assert await store.claim("w2", 10**9, 9) == []
        assert await store.unpause("a", 9)
        assert not await store.unpause("a", 9)
        (claimed,) = await store.claim("w2", 10, 9)
        assert (claimed.epoch, claimed.reason, claimed.status) == (3, None, Status.RUNNING)
        (loaded,) = await store.load([key])
        assert [item.kind for item in loaded.inbox] == [ItemKind.EVENT], "the item for its former owner is gone"

    world.run(check)


def check_a_run_without_an_owner_is_paused_too(world: World) -> None:
    async def check(store: Store) -> None:
        key = await create(store, "a", owner=None)
        assert await store.pause("a", "", 7) == []
        assert list(await store.inbox(key, 9)) == []
        assert await store.claim("w2", 10**9, 9) == []
        with pytest.raises(RunNotFound):
            await store.pause("b", "", 7)
        with pytest.raises(RunNotFound):
            await store.unpause("b", 7)

    world.run(check)


def check_unpausing_before_the_owner_noticed_takes_the_run_from_it(world: World) -> None:
    """CONFORMANCE L4: a late release of the former owner does not touch the new one's."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.pause("a", "", 7)
        await store.unpause("a", 8)
        (claimed,) = await store.claim("w2", 10, 9)
        before = await everything(store, "a")
        await store.release("w1", [Release(key=key, epoch=0, seen_item=0, ready_at=1)])
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=1)])
        assert await everything(store, "a") == before
        assert claimed.owner == "w2"

    world.run(check)


def check_dead_and_leaving_workers_leave_a_paused_run_paused(world: World) -> None:
    async def check(store: Store) -> None:
        other = await world.connect()
        await store.register_worker(worker("w1"))
        await other.register_worker(worker("w2"))
        for run_id, owner in (("a", "w1"), ("b", "w2")):
            await create(store, run_id, owner=owner)
            await store.pause(run_id, "", 7)
        await store.unregister_worker("w1", 8)
        await world.die(other, "w2")
        assert await store.dead_workers() == {"w2"}
        assert await store.dead_workers() == {"w2"}, "looking changes nothing"
        await store.reap("w3", 9)
        assert await store.dead_workers() == frozenset()
        for run_id in ("a", "b"):
            row = await row_of(store, run_id)
            assert (row.status, row.owner) == (Status.PAUSED, None)
        assert await store.claim("w3", 10**9, 9) == []

    world.run(check)


def check_retry_now_items_are_items(world: World) -> None:
    """CONFORMANCE L4: they wake an unowned run and count towards no limit."""

    async def check(store: Store) -> None:
        key = await create(store, "a", owner="w1")
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=10**9)])
        assert await store.claim("w2", 5, 9) == []
        appended = await store.append("a", retry_now_item("charge", 5), 0)
        assert appended.delivery is not None
        (claimed,) = await store.claim("w2", 5, 9)
        assert claimed.key == key
        assert [(item.kind, item.data) for item in await store.inbox(key, 9)] == [(ItemKind.RETRY_NOW, b"charge")]

    world.run(check)


# -- reopen ----------------------------------------------------------------------------------------------


def check_reopening_appends_a_record_and_makes_the_run_claimable(world: World) -> None:
    """CONFORMANCE L4, law 6: fenced by epoch and position; a second time it changes nothing."""

    async def check(store: Store) -> None:
        key = await failed(store, "a")
        good = Reopen(key=key, epoch=1, record=resumed_row(4, 3), frontier=b"f")
        for stale in (
            msgspec.structs.replace(good, epoch=2),
            msgspec.structs.replace(good, record=resumed_row(3, 3)),
            msgspec.structs.replace(good, key=key + 1),
            msgspec.structs.replace(good, parent_seq=2),
        ):
            before = await everything(store, "a")
            assert not await store.reopen(stale)
            assert await everything(store, "a") == before
        assert await store.reopen(good)
        after = await everything(store, "a")
        assert not await store.reopen(good)
        assert await everything(store, "a") == after
        row, (rows,), _ = after
        assert (row.status, row.finished_at, row.epoch, row.next_seq) == (Status.PENDING, None, 2, 5)
        assert [one.kind for one in rows] == ["started", "step_done", "failed", "resumed"]
        assert isinstance(await commit(store, turn(key, 5, step_row(5))), Rejected), "of the life before"
        assert await store.count_runs() == {Status.PENDING: 1}
        assert [one.id for one in await store.list_runs(RunFilter(statuses=frozenset({Status.FAILED})), 9)] == []
        (claimed,) = await store.claim("w2", 10, 9)
        await accept(store, finishing(key, 5, epoch=claimed.epoch, worker="w2"))

    world.run(check)


def check_reopening_a_child_withdraws_the_unread_notice(world: World) -> None:
    """CONFORMANCE L4: only its own, and only if the parent has not moved since somebody looked."""

    async def check(store: Store) -> None:
        parent = await create(store, "parent")
        link = ParentLink(key=parent, generation=1, location="child")
        key = await failed(store, "a", parent=link)
        await failed(store, "b", parent=link)
        await store.append("parent", event(), 9)
        assert [item.kind for item in await store.inbox(parent, 9)] == [ItemKind.CHILD, ItemKind.CHILD, ItemKind.EVENT]
        reopen = Reopen(key=key, epoch=1, record=resumed_row(4, 3), frontier=b"f", parent_seq=2)
        assert not await store.reopen(msgspec.structs.replace(reopen, parent_seq=3))
        first = (await store.inbox(parent, 9))[0].id
        assert await store.reopen(reopen)
        assert [item.kind for item in await store.inbox(parent, 9)] == [ItemKind.CHILD, ItemKind.EVENT]
        # A worker that had the notice in memory is refused, and reads the truth.
        assert isinstance(await commit(store, turn(parent, 2, step_row(2), consumed=[first])), Rejected)

    world.run(check)


# -- restore and delete ----------------------------------------------------------------------------------


@cases(list(Status))
def check_a_restored_run_stands_as_it_stood(world: World, status: Status) -> None:
    """CONFORMANCE L4: open ones can be claimed, unless they are parked or paused; ended ones stay ended."""

    async def check(store: Store) -> None:
        await create(store, "origin")
        origin = await row_of(store, "origin")
        row = msgspec.structs.replace(
            origin, id="copy", status=status, generation=2, next_seq=3, finished_at=9 if status.terminal else None,
            state=b"{}", custom_status=b"1", frontier=b"f", reason="r", wake_at=77, cancel_requested=True, pruned=5,
        )  # fmt: skip
        rows = [step_row(1), step_row(2)]
        snapshot = Snapshot(run=row, journals={1: [step_row(1)], 2: rows}, inbox=[event(at=3), event("pong", at=4)])
        made = await store.restore(snapshot)
        assert isinstance(made, Created)
        copy, journals, inbox = await everything(store, "copy")
        assert journals == [[step_row(1)], rows]
        assert [(item.type, item.sent_at) for item in inbox] == [("ping", 3), ("pong", 4)]
        assert inbox[1].previous == inbox[0].id
        assert copy.last_item == inbox[1].id
        expected = Status.PENDING if status in ("pending", "running", "waiting") else status
        assert (copy.status, copy.owner, copy.epoch, copy.parent) == (expected, None, 0, None)
        assert (copy.state, copy.custom_status, copy.frontier, copy.reason) == (b"{}", b"1", b"f", "r")
        assert (copy.wake_at, copy.cancel_requested, copy.finished_at) == (77, True, row.finished_at)
        assert copy.pruned == 5
        assert isinstance(await store.restore(snapshot), Existing)
        claimed = [one.id for one in await store.claim("w2", 10**9, 9)]
        assert claimed == (["copy"] if expected is Status.PENDING else [])
        if not status.terminal:
            appended = await store.append("copy", event(), 9)
            assert appended.delivery is not None
            assert appended.delivery.item.previous == inbox[1].id

    world.run(check)


def check_ended_before_a_moment(world: World) -> None:
    """CONFORMANCE L4: the filter of prune, alone and with others; open runs never match."""

    async def check(store: Store) -> None:
        parent = await create(store, "open")
        link = ParentLink(key=parent, generation=1, location="c")
        for number in range(4):
            key = await create(store, f"r{number}", workflow=("ship", "bill")[number % 2], parent=link)
            status = (Status.COMPLETED, Status.CANCELLED)[number // 2]
            await accept(store, finishing(key, 2, status=status, at=100 * number))

        async def ids(**where: object) -> list[str]:
            return [row.id for row in await store.list_runs(RunFilter(**where), 9)]  # type: ignore[arg-type]

        assert await ids(finished_before=300) == ["r2", "r1", "r0"]
        assert await ids(finished_before=0) == []
        assert await ids(finished_before=300, workflow="ship") == ["r2", "r0"]
        assert await ids(finished_before=300, statuses=frozenset({Status.COMPLETED})) == ["r1", "r0"]
        assert await ids(finished_before=300, statuses=frozenset({Status.RUNNING})) == []
        assert await ids(finished_before=300, statuses=frozenset({Status.RUNNING, Status.CANCELLED})) == ["r2"]
        assert await ids(finished_before=200, id_prefix="r") == ["r1", "r0"]
        assert await ids(finished_before=200, parent_key=parent) == ["r1", "r0"]

    world.run(check)


def check_deleted_runs_leave_nothing(world: World) -> None:
    """CONFORMANCE L4, W1: all generations, items, keys; keys of runs are not used again."""

    async def check(store: Store) -> None:
        keys = []
        for number in range(3):
            key = await create(store, f"r{number}")
            await store.append(f"r{number}", event(dedup="d"), 9)
            await accept(store, finishing(key, 2))
            keys.append(key)
        open_key = await create(store, "open")
        assert await store.delete([keys[0], keys[2], open_key]) == 2
        assert await store.delete([keys[0], keys[2]]) == 0
        for key in (keys[0], keys[2]):
            assert list(await store.journal(key, 1)) == []
            assert list(await store.inbox(key, 9)) == []
            assert list(await store.load([key])) == []
        assert [row.id for row in await store.list_runs(RunFilter(), 9)] == ["open", "r1"]
        again = await create(store, "r2")
        assert again > open_key
        appended = await store.append("r2", event(dedup="d"), 9)
        assert appended.delivery is not None, "the key was forgotten with the run"
        assert (await store.news("w1", 1)).ended == []

    world.run(check)
