"""A store whose runs go to another one, as every store must do it: nothing is claimable twice, nothing is lost.

The other store is a fresh one of the same kind; that any two kinds understand each other is for their own tests.

Over 450 lines, and still one thing: each promise of a move, and the store that is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from perdure.errors import MoveRefused, RunMoved, StoreError, StoreUnavailable
from perdure.kernel.definitions import EventPolicy
from perdure.kernel.items import read_child_item
from perdure.store.model import Appended, LeaseTerms, ParentLink, Release, Reopen, RunFilter, RunRow, Snapshot, Status
from perdure.store.move import Packed, checksum, mark_of
from perdure.store.protocol import Store
from perdure.store.turn import Created, Rejected, Turn
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import (
    SHARED,
    World,
    accept,
    cancel,
    commit,
    create,
    event,
    failed_row,
    finishing,
    new_run,
    published,
    reply,
    resumed_row,
    row_of,
    spawn,
    step_row,
    turn,
    watch,
    worker,
)

TARGET = "postgresql://shop@db/orders"
#: Who was created before it may have it, whenever it begins to wait.
TO_OLDER = EventPolicy(consume=False, delivery="after_create")


#: Those of the following that can be claimed.
CLAIMED = {"parent", "parent/1", "watcher", "waits", "also waits", "answers", "newest"}


async def fill(store: Store) -> None:
    """Runs of every kind, hanging together in every way, and what belongs to no run."""
    await store.register_worker(worker("w1"), LeaseTerms(seconds=30.0, heartbeat=0.05))
    parent = await create(store, "parent")
    await accept(store, turn(parent, 2, spawn(2, new_run("parent/1", parent=ParentLink(0, 1, "child")))))
    child = await row_of(store, "parent/1")
    assert child.parent == ParentLink(parent, 1, "child")
    await accept(store, finishing(await create(store, "ended", at=3), 2))
    first = await create(store, "ended child", parent=ParentLink(parent, 1, "other"))
    await accept(store, finishing(first, 2))
    failed = await create(store, "failed")
    await store.append("failed", event("unread"), 9)
    await accept(store, turn(failed, 2, failed_row(2), status=Status.FAILED))
    await store.park(await create(store, "parked"), 1, "diverged", 5)
    await create(store, "paused", owner=None)
    await store.pause("paused", "by ann", 6)
    watcher = await create(store, "watcher")
    await accept(store, turn(watcher, 2, watch(2, "parent/1"), status=Status.WAITING))
    for name in ("waits", "also waits"):
        key = await create(store, name)
        waits = {"single": 1, "shared": 1}
        await accept(store, turn(key, 2, status=Status.WAITING, waits=waits, frontier=b"f", wake_at=10**15))
    for number in range(3):
        await store.publish(published("single", at=60 + number, dedup=f"single-{number}"), 9)
    await store.publish(published("shared", SHARED, at=70), 9)
    await store.publish(published("older", TO_OLDER, at=71), 9)
    await store.append("waits", event("sent", b'"first"', dedup="k"), 9)
    await store.append("waits", event("sent", b'"second"', dedup="l"), 9)
    answers = await create(store, "answers", at=9)
    await accept(store, turn(answers, 2, reply(2, "answers\nasked", b'"yes"'), step_row(3), state=b"{}"))
    await store.request_cancel("answers", cancel())
    await create(store, "newest", owner=None)


async def rows_of(store: Store, *, open_ones: bool = True) -> list[RunRow]:
    """Oldest first."""
    rows = (await store.list_runs(RunFilter(), 1_000))[::-1]
    return [row for row in rows if open_ones or row.status.terminal]


async def bring(old: Store, new: Store) -> dict[str, Packed]:
    """Copy everything of a store that departs, and confirm it."""
    source = await old.identity()
    packed = await old.pack([row.key for row in await rows_of(old)])
    receipt = await new.receive(source, packed)
    assert not receipt.taken
    copies = {one.run.id: one for one in await new.pack(list(receipt.keys.values()))}
    assert {run_id: checksum(one) for run_id, one in copies.items()} == {one.run.id: checksum(one) for one in packed}
    await new.confirm(source, {one.run.id: mark_of(one.run) for one in packed})
    return {one.run.id: one for one in packed}


async def depart(old: Store, new: Store) -> int:
    """Returns since when."""
    return (await old.depart(TARGET, await new.identity(), 100)).at


async def moved(old: Store, new: Store) -> dict[str, Packed]:
    """All of it, from the beginning to the end."""
    await fill(old)
    at = await depart(old, new)
    brought = await bring(old, new)
    assert await old.leave(at)
    assert await new.arrive(await old.identity(), await old.remainder(), 110)
    return brought


def both(world: World, check: Callable[[Store, Store], Awaitable[None]]) -> None:
    """With an empty store and another one."""

    async def run(old: Store) -> None:
        other = world.fresh()
        try:
            await check(old, await other.connect())
        finally:
            await other.close()

    world.run(run)


# -- leaving ---------------------------------------------------------------------------------------------


def check_a_store_that_departs_lets_nobody_go_on(world: World) -> None:
    """Nothing can be claimed, late turns are refused, workers hear that they are dead, and ended runs are there."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        parent = await row_of(old, "parent")
        await depart(old, new)
        departure = await old.departure()
        assert departure is not None
        assert (departure.target, departure.target_id, departure.gone) == (TARGET, await new.identity(), False)
        for _ in range(1_000):  # where leases are renewed apart: with the next heartbeat
            if not (await old.renew("w1", 101)).alive:
                break
            await asyncio.sleep(0.01)
        assert not (await old.renew("w1", 101)).alive
        await old.register_worker(worker("w2"))
        assert await old.claim("w2", 10**16, 100, 100) == []
        assert isinstance(await commit(old, turn(parent.key, parent.next_seq, step_row(parent.next_seq))), Rejected)
        await old.release("w1", [Release(key=parent.key, epoch=1, seen_item=0, ready_at=1)])
        await old.reap("w2", 102)
        assert await old.held("w1") == {}
        statuses = {row.id: row.status for row in await rows_of(old)}
        assert statuses["parent"] is statuses["newest"] is Status.MOVED
        assert (statuses["parked"], statuses["paused"], statuses["ended"]) == ("parked", "paused", "completed")
        assert len(await old.journal((await row_of(old, "ended")).key, 1)) == 2

    both(world, check)


class Change(NamedTuple):
    """Something that a store which departs does not do."""

    name: str
    act: Callable[[Store], Awaitable[Any]]


async def _remove_dead(store: Store) -> None:
    await store.remove_dead_letters([letter.id for letter in await store.dead_letters(None, 9)])


async def _replay(store: Store) -> None:
    (letter,) = await store.dead_letters(None, 9)
    await store.replay_dead_letter(letter.id, "waits", 120, 9)


async def _reopen(store: Store) -> None:
    row = await row_of(store, "failed")
    record = resumed_row(row.next_seq, 2)
    await store.reopen(Reopen(key=row.key, epoch=row.epoch, record=record, frontier=b"f"))


async def _restore(store: Store) -> None:
    (loaded,) = await store.load([(await row_of(store, "ended")).key])
    await store.restore(Snapshot(run=loaded.run, journals={1: loaded.rows}))


CHANGES = [
    Change("create", lambda store: store.create(new_run("new", owner=None), None)),
    Change("create again", lambda store: store.create(new_run("newest", owner=None), None)),
    Change("create many", lambda store: store.create_all([(new_run("new"), turn(0, 2)), (new_run("b"), turn(0, 2))])),
    Change("append", lambda store: store.append("waits", event(), 9)),
    Change("append to a parked run", lambda store: store.append("parked", event(), 9)),
    Change("request_cancel", lambda store: store.request_cancel("parent", cancel())),
    Change("terminate", lambda store: store.terminate("parent", "enough", 120)),
    Change("resume", lambda store: store.resume("parked", 120)),
    Change("unpause", lambda store: store.unpause("paused", 120)),
    Change("publish", lambda store: store.publish(published("single", at=120), 9)),
    Change("publish to all", lambda store: store.publish(published("shared", SHARED, at=120), 9)),
    Change("replay a letter", _replay),
    Change("remove_dead_letters", _remove_dead),
    Change("reopen", _reopen),
    Change("restore", _restore),
]


async def _state(store: Store) -> Any:
    rows = await rows_of(store)
    return [checksum(one) for one in await store.pack([row.key for row in rows])], await store.remainder()


@cases([(change,) for change in CHANGES])
def check_a_store_that_departs_takes_no_change(world: World, change: Change) -> None:
    """First "repeat it", which leaves it open; when it is decided, where everything is. Nothing is written."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        at = await depart(old, new)
        before = await _state(old)
        with pytest.raises(StoreUnavailable, match=TARGET):
            await change.act(old)
        assert await _state(old) == before
        assert await old.leave(at)
        with pytest.raises(RunMoved, match=TARGET) as told:
            await change.act(old)
        assert told.value.location == TARGET
        assert await _state(old) == before

    both(world, check)


def check_events_that_are_over_stay_while_a_store_departs(world: World) -> None:
    """Tidying and spreading wait: what is being copied does not change."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        await old.publish(published("single", at=80, expires=1), 9)
        await depart(old, new)
        before = await _state(old)
        assert await old.tidy_events(10**15, 10**15, 100) == 0
        assert (await old.spread(200, 9, 9)).deliveries == ()
        assert await _state(old) == before
        assert await old.delete([(await row_of(old, "newest")).key]) == 0

    both(world, check)


def check_what_stays_goes_on(world: World) -> None:
    """Taken back, everything is as it was, under a higher epoch."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        before = await old.remainder()
        at = await depart(old, new)
        assert await old.stay(105)
        assert not await old.stay(105)
        assert not await old.leave(at)
        assert await old.departure() is None
        await old.append("newest", event(), 9)
        await old.register_worker(worker("w2"))
        claimed = {row.id: row.epoch for row in await old.claim("w2", 10**16, 100, 100)}
        assert claimed.keys() == CLAIMED
        assert (claimed["parent"], claimed["newest"]) == (3, 2)
        assert (await row_of(old, "parked")).status is Status.PARKED
        assert await old.remainder() == before

    both(world, check)


def check_only_what_departed_then_leaves(world: World) -> None:
    """A mover that was overtaken by "take it back" and a new departure must not decide for it: its copies are old."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        at = await depart(old, new)
        await old.stay(105)
        again = await old.depart("sqlite:///other.db", "other", 106)
        assert (await old.depart(TARGET, await new.identity(), 107)) == again
        assert not await old.leave(at)
        departure = await old.departure()
        assert departure == again

    both(world, check)


# -- arriving --------------------------------------------------------------------------------------------


def check_nothing_arrives_before_all_of_it(world: World) -> None:
    """On their way, open runs take events and nothing else; ended ones can be read, not reopened."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        at = await depart(old, new)
        await bring(old, new)
        await new.register_worker(worker("w2"))
        for run_id in ("parent", "waits", "parked", "paused", "newest"):
            assert (await row_of(new, run_id)).status is Status.ARRIVING
            assert isinstance(await new.append(run_id, event("early"), 9), Appended)
            assert not await new.resume(run_id, 120)
            assert not await new.unpause(run_id, 120)
            assert await new.pause(run_id, "by ann", 120) is None
            with pytest.raises(StoreUnavailable):
                await new.terminate(run_id, "enough", 120)
        with pytest.raises(StoreUnavailable):
            await _reopen_here(new, "failed")
        await new.publish(published("single", at=130), 9)
        assert await new.claim("w2", 10**16, 100, 100) == []
        assert await new.count_runs() == {"completed": 2, "failed": 1, "arriving": 9}
        remainder = await old.remainder()
        await new.withdraw(await old.identity(), ["ended"])
        with pytest.raises(MoveRefused, match="11 of 12"):
            await new.arrive(await old.identity(), remainder, 140)
        assert await new.claim("w2", 10**16, 100, 100) == []
        ended = await old.pack([(await row_of(old, "ended")).key])
        await new.receive(await old.identity(), ended)
        await old.leave(at)
        assert not await new.has_arrived(await old.identity())
        assert await new.arrive(await old.identity(), remainder, 140)
        assert await new.has_arrived(await old.identity())
        assert not await new.arrive(await old.identity(), remainder, 150)

    both(world, check)


async def _reopen_here(store: Store, run_id: str) -> bool:
    row = await row_of(store, run_id)
    record = resumed_row(row.next_seq, 2)
    return await store.reopen(Reopen(key=row.key, epoch=row.epoch, record=record, frontier=b"f"))


def check_everything_of_a_run_moves(world: World) -> None:
    """Row, journals, unread items in their order, and the keys of what it has read."""

    async def check(old: Store, new: Store) -> None:
        brought = await moved(old, new)
        rows = {row.id: row for row in await rows_of(new)}
        assert rows.keys() == brought.keys()
        here = {one.run.id: one for one in await new.pack([row.key for row in rows.values()])}
        for run_id, before in brought.items():
            assert checksum(here[run_id], settled=True) == checksum(before, settled=True), run_id
        row = rows["answers"]
        assert (row.status, row.cancel_requested, row.state, row.next_seq) == (Status.PENDING, True, b"{}", 4)
        assert (rows["parked"].status, rows["parked"].reason) == (Status.PARKED, "diverged")
        assert rows["failed"].status is Status.FAILED
        sent = [item.data for item in await new.inbox(rows["waits"].key, 9) if item.type == "sent"]
        assert sent == [b'"first"', b'"second"']
        assert (await new.append("waits", event("sent", dedup="k"), 9)).delivery is None
        await new.register_worker(worker("w2"))
        claimed = {row.id: row.epoch for row in await new.claim("w2", 10**16, 100, 100)}
        assert claimed == dict.fromkeys(CLAIMED, 1)
        assert await _reopen_here(new, "failed")
        reopened = await row_of(new, "failed")
        assert [item.type for item in await new.inbox(reopened.key, 9)] == ["unread"]

    both(world, check)


def check_families_go_on_together(world: World) -> None:
    """Parents, children and watchers find each other, also an ended child that came before its parent."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        # As a mover does: ended runs first.
        source = await old.identity()
        await new.create(new_run("from here", owner=None), None)
        await new.receive(source, await old.pack([row.key for row in await rows_of(old, open_ones=False)]))
        at = await depart(old, new)
        await bring(old, new)
        await old.leave(at)
        await new.arrive(source, await old.remainder(), 110)
        parent, child = await row_of(new, "parent"), await row_of(new, "parent/1")
        assert child.parent == ParentLink(parent.key, 1, "child")
        children = await new.list_runs(RunFilter(parent_key=parent.key), 9)
        assert {row.id for row in children} == {"parent/1", "ended child"}
        await new.terminate("parent/1", "enough", 120)
        told = [read_child_item(item.data) for item in await new.inbox(parent.key, 9)]
        assert [(one.child_id, one.location) for one in told] == [("parent/1", "child")]
        told = [read_child_item(item.data) for item in await new.inbox((await row_of(new, "watcher")).key, 9)]
        assert [(one.child_id, one.location) for one in told] == [("parent/1", "watch")]

    both(world, check)


def check_published_events_find_those_who_wait(world: World) -> None:
    """What was held is held by the same run, what was free is free, and nobody gets a copy twice or one from before."""

    async def check(old: Store, new: Store) -> None:
        # The other store has had events of its own, that are not for those who come.
        await new.publish(published("single", at=1), 9)
        await new.publish(published("shared", SHARED, at=2), 9)
        await new.publish(published("later", SHARED, at=3), 9)
        native = await create(new, "from here", owner=None)
        await moved(old, new)
        held = [(one.published_at, one.holder) for one in await new.publications("single", 9)]
        assert held == [(1, None), (60, "waits"), (61, "also waits"), (62, None)]
        waits, also = await row_of(new, "waits"), await row_of(new, "also waits")
        for row in (waits, also):
            copies = [item for item in await new.inbox(row.key, 9) if item.type == "shared"]
            assert [item.sent_at for item in copies] == [70]
        await new.register_worker(worker("w2"))
        epochs = {row.key: row.epoch for row in await new.claim("w2", 10**16, 100, 100)}
        (item,) = [item for item in await new.inbox(waits.key, 9) if item.type == "single"]
        taking = turn(waits.key, 2, step_row(2), consumed=[item.id], waits={"single": 1, "later": 1, "older": 1})
        await accept(new, _by(taking, epochs[waits.key]))
        unread = [(item.type, item.sent_at) for item in await new.inbox(waits.key, 9) if item.type != "sent"]
        # Of the type that it waits for anew it gets what was published where it was, not what was published here.
        assert sorted(unread) == [("older", 71), ("shared", 70), ("single", 62)]
        await new.publish(published("shared", SHARED, at=160), 9)
        times = [item.sent_at for item in await new.inbox(also.key, 9) if item.type == "shared"]
        assert times == [70, 160]
        assert (await new.publish(published("single", at=161, dedup="single-1"), 9)).id is None
        await accept(new, _by(turn(native, 2, step_row(2), waits={"older": 1}), epochs[native]))
        assert [item.type for item in await new.inbox(native, 9)] == ["older"]

    both(world, check)


def _by(one: Turn, epoch: int) -> Turn:
    return msgspec.structs.replace(one, epoch=epoch, worker="w2")


def check_what_belongs_to_no_run_moves(world: World) -> None:
    """Dead letters, answers and counts."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        await old.append("waits", event("late", at=1), 9)
        await old.publish(published("gone", at=1, expires=1), 9)
        await old.tidy_events(10**15, 0, 9)
        at = await depart(old, new)
        await bring(old, new)
        await old.leave(at)
        await new.arrive(await old.identity(), await old.remainder(), 110)
        assert await new.reply("answers\nasked") == b'"yes"'
        died = [(one.type, one.target, one.reason) for one in await new.dead_letters(None, 9)]
        assert died == [(one.type, one.target, one.reason) for one in await old.dead_letters(None, 9)]
        assert died
        assert await new.expired_events() == {"gone": 1}

    both(world, check)


def check_only_its_own_copies_are_replaced(world: World) -> None:
    """A run of that id which did not come from there is left alone; a copy is brought to where its original is now."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        source = await old.identity()
        await new.create(new_run("parent", owner=None, digest=b"other"), None)
        ended = await row_of(old, "failed")
        packed = await old.pack([(await row_of(old, "parent")).key, ended.key])
        receipt = await new.receive(source, packed)
        assert (list(receipt.taken), list(receipt.keys)) == (["parent"], ["failed"])
        assert (await row_of(new, "parent")).input_digest == b"other"
        assert [one.mark for one in await new.received(source, 0, 9)] == [None]
        await _reopen_here(old, "failed")
        receipt = await new.receive(source, await old.pack([ended.key]))
        await new.confirm(source, {"failed": "now", "parent": "never"})
        assert (await row_of(new, "failed")).status is Status.ARRIVING
        assert [(one.id, one.mark) for one in await new.received(source, 0, 9)] == [("failed", "now")]
        assert await new.received(source, receipt.keys["failed"], 9) == []
        assert await new.received("another", 0, 9) == []
        assert await new.withdraw(source, ["failed", "parent", "nobody"]) == 1
        assert await new.get("failed") is None
        assert isinstance(await new.create(new_run("failed"), None), Created)

    both(world, check)


def check_identities_differ(world: World) -> None:
    """Two stores are told apart, and two connections to one are not."""

    async def check(old: Store, new: Store) -> None:
        assert await old.identity() != await new.identity()
        again = await world.connect()
        assert await again.identity() == await old.identity()
        assert await old.departure() is None
        assert not await old.leave(1)
        assert not await old.stay(1)

    both(world, check)


def check_a_store_that_departs_takes_nothing_in(world: World) -> None:
    """It would be lost there."""

    async def check(old: Store, new: Store) -> None:
        await fill(old)
        await new.depart(TARGET, "third", 5)
        with pytest.raises(StoreError):
            await new.receive(await old.identity(), await old.pack([(await row_of(old, "ended")).key]))
        assert await new.get("ended") is None

    both(world, check)
