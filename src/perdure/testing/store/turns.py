"""A turn is one change: all of it or nothing, and only from the owner of the run (laws 3, 6 and 7)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.errors import BadArgument
from perdure.limits import NEVER
from perdure.store.model import Release, RunFilter, Status
from perdure.store.protocol import Store
from perdure.store.turn import Created, Existing, NextGeneration, Rejected
from perdure.testing.store.kit import (
    World,
    accept,
    commit,
    create,
    event,
    everything,
    finishing,
    new_run,
    row_of,
    send,
    spawn,
    started_row,
    step_row,
    turn,
)


def check_a_turn_changes_everything_it_names(world: World) -> None:
    """CONFORMANCE W1: records, consumed items, status, deadline, frontier, custom status and state arrive together."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.append("a", event(), 10)
        (item,) = await store.inbox(key, 10)
        await accept(
            store,
            turn(
                key,
                2,
                step_row(2),
                step_row(3),
                status=Status.WAITING,
                wake_at=900,
                at=500,
                frontier=b"[1]",
                consumed=[item.id],
                custom_status=b'"half"',
                state=b"{}",
            ),
        )
        row, (records,), inbox = await everything(store, "a")
        assert (row.status, row.wake_at, row.updated_at, row.next_seq) == (Status.WAITING, 900, 500, 4)
        assert (row.frontier, row.custom_status, row.state) == (b"[1]", b'"half"', b"{}")
        assert list(records) == [started_row(), step_row(2), step_row(3)]
        assert list(inbox) == []

        await accept(store, turn(key, 4, step_row(4)))
        row = await row_of(store, "a")
        assert (row.custom_status, row.state, row.frontier, row.wake_at) == (b'"half"', b"{}", None, None)

    world.run(check)


def check_a_turn_of_an_old_epoch_is_refused(world: World) -> None:
    """CONFORMANCE W1, FAULTS C3: a worker that lost the run to another claim changes nothing."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=5)])
        (claimed,) = await store.claim("w2", 10, 1)
        assert claimed.epoch == 2
        before = await everything(store, "a")
        assert isinstance(await commit(store, turn(key, 2, step_row(2))), Rejected)
        assert isinstance(await commit(store, finishing(key, 2)), Rejected)
        assert await everything(store, "a") == before
        assert isinstance(await commit(store, turn(key, 2, step_row(2), worker="w2")), Rejected), "of an earlier life"
        await accept(store, turn(key, 2, step_row(2), epoch=2, worker="w2"))

    world.run(check)


def check_a_turn_of_another_worker_is_refused(world: World) -> None:
    """Law 6: the owner may commit, and the last owner of a run that nobody owns. Nobody else may, even in
    the right epoch: a store that lost its last moments may give a key and an epoch a second time."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        before = await everything(store, "a")
        for stranger in ("w2", ""):
            assert isinstance(await commit(store, turn(key, 2, step_row(2), worker=stranger)), Rejected)
            assert isinstance(await commit(store, finishing(key, 2, worker=stranger)), Rejected)
        assert await everything(store, "a") == before
        await accept(store, turn(key, 2, step_row(2)))
        await store.release("w1", [Release(key=key, epoch=1, seen_item=0, ready_at=5)])
        await accept(store, turn(key, 3, step_row(3)))

    world.run(check)


def check_a_turn_at_the_wrong_place_is_refused(world: World) -> None:
    """CONFORMANCE W1, FAULTS B11: a journal never gets a gap, a duplicate or a record of another generation."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, turn(key, 2, step_row(2)))
        before = await everything(store, "a")
        for wrong in (
            turn(key, 4, step_row(4)),
            turn(key, 2, step_row(2, b"2")),
            turn(key, 3, step_row(3), generation=2),
            turn(key, 2),
            turn(key + 1, 3, step_row(3)),
        ):
            assert isinstance(await commit(store, wrong), Rejected), wrong
        assert await everything(store, "a") == before

    world.run(check)


def check_terminal_is_absorbing(world: World) -> None:
    """Law 7, FAULTS C16: after the end nothing is accepted, whatever its epoch."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, finishing(key, 2, at=700, wake_at=800))
        row = await row_of(store, "a")
        assert (row.status, row.finished_at, row.owner, row.wake_at) == (Status.COMPLETED, 700, None, None)
        before = await everything(store, "a")
        for late in (turn(key, 3, step_row(3)), turn(key, 3), finishing(key, 3, status=Status.FAILED)):
            assert isinstance(await commit(store, late), Rejected)
        assert await store.claim("w2", 10_000, 10) == []
        assert await everything(store, "a") == before

    world.run(check)


def check_one_refusal_does_not_touch_the_others(world: World) -> None:
    """CONFORMANCE W1: results come in order, one for each turn."""

    async def check(store: Store) -> None:
        first, second = await create(store, "a"), await create(store, "b")
        results = await store.commit(
            [turn(first, 2, step_row(2)), turn(second, 9, step_row(9)), turn(second, 2, step_row(2))]
        )
        assert [isinstance(result, Rejected) for result in results] == [False, True, False]
        assert (await row_of(store, "b")).next_seq == 3

    world.run(check)


def check_a_lost_answer_can_be_asked_for_again(world: World) -> None:
    """CONFORMANCE W2, FAULTS B2: the same turn once more is answered like the first time and doubles nothing."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await create(store, "target")
        child = new_run("child", owner=None)
        await create(store, "taken", digest=b"other")
        one = turn(
            key,
            2,
            step_row(2),
            send(3, "target"),
            send(4, "nobody"),
            spawn(5, child),
            spawn(6, new_run("taken", owner=None)),
        )
        first = await accept(store, one)
        before = [await everything(store, run_id) for run_id in ("a", "target", "child", "taken")]
        again = await accept(store, one)
        assert (first.repeated, again.repeated) == (False, True)
        assert list(again.effects) == list(first.effects)
        assert again.spawned == first.spawned
        assert list(again.deliveries) == []
        assert before == [await everything(store, run_id) for run_id in ("a", "target", "child", "taken")]

    world.run(check)


def check_a_lost_answer_of_the_last_turn(world: World) -> None:
    """CONFORMANCE W2: also when that turn ended the run, and only for the very same turn."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, finishing(key, 2))
        assert (await accept(store, finishing(key, 2))).repeated
        other = finishing(key, 2).entries[0].row._replace(check=1)
        assert isinstance(await commit(store, turn(key, 2, other, status=Status.COMPLETED)), Rejected)

    world.run(check)


def check_a_turn_without_records_can_be_repeated(world: World) -> None:
    """CONFORMANCE W2: it only says what the run waits for, so twice is as good as once."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        waiting = turn(key, 2, status=Status.WAITING, wake_at=77, frontier=b"x")
        await accept(store, waiting)
        await accept(store, waiting)
        assert (await row_of(store, "a")).wake_at == 77

    world.run(check)


def check_progress_clears_the_crash_count(world: World) -> None:
    """CONFORMANCE W4: claims count as recoveries until something is committed."""

    async def check(store: Store) -> None:
        key = await create(store, "a", owner=None)
        (row,) = await store.claim("w1", 10, 1)
        assert (row.recoveries, row.status, row.epoch, row.owner) == (1, Status.RUNNING, 1, "w1")
        await accept(store, turn(key, 2, step_row(2)))
        assert (await row_of(store, "a")).recoveries == 0

    world.run(check)


def check_continue_as_is_one_change(world: World) -> None:
    """FAULTS A17, CONFORMANCE C6: one generation ends as the next one begins; inbox, owner and epoch stay."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.append("a", event(), 10)
        following = NextGeneration(workflow="other", version="2", started=started_row("other", 300))
        one = turn(key, 2, step_row(2), continued=following)
        await accept(store, one)
        row, (old, new), inbox = await everything(store, "a")
        assert (row.generation, row.next_seq, row.workflow, row.version) == (2, 2, "other", "2")
        assert (row.owner, row.epoch, row.status) == ("w1", 1, Status.RUNNING)
        assert list(old) == [started_row(), step_row(2)]
        assert list(new) == [started_row("other", 300)]
        assert len(inbox) == 1
        assert (await accept(store, one)).repeated
        assert isinstance(await commit(store, turn(key, 3, step_row(3))), Rejected)
        await accept(store, turn(key, 2, step_row(2), generation=2))
        (loaded,) = await store.load([key])
        assert list(loaded.rows) == [started_row("other", 300), step_row(2)]

    world.run(check)


def check_start_with_its_first_turn_is_one_change(world: World) -> None:
    """FAULTS A2: a run may be created, run and finished in one call; the same call again finds it."""

    async def check(store: Store) -> None:
        entries: list[Any] = [step_row(2), spawn(3, new_run("child", owner=None)), *finishing(0, 4).entries]
        first = turn(0, 2, *entries, status=Status.COMPLETED)
        ended = await store.create(new_run("a"), first)
        assert isinstance(ended, Created)
        assert ended.committed is not None
        assert set(ended.committed.spawned) == {"child"}
        assert (await row_of(store, "a")).status is Status.COMPLETED
        assert len(await store.journal(ended.key, 1)) == 4
        before = await everything(store, "a")
        again = await store.create(new_run("a"), first)
        assert isinstance(again, Existing)
        assert again.row == before[0]
        assert await everything(store, "a") == before

    world.run(check)


def check_a_run_that_ends_with_its_first_turn_is_like_any_other(world: World) -> None:
    """CONFORMANCE L1: a reader cannot tell in how many turns it came to its end."""

    async def check(store: Store) -> None:
        at_once = await store.create(new_run("a"), finishing(0, 2))
        assert isinstance(at_once, Created)
        assert at_once.committed is not None
        later = await create(store, "b")
        await accept(store, finishing(later, 2))
        row, journals, inbox = await everything(store, "a")
        other, other_journals, other_inbox = await everything(store, "b")
        assert (row.owner, row.status, row.next_seq) == (None, Status.COMPLETED, 3)
        assert row.finished_at is not None
        assert row == msgspec.structs.replace(other, key=row.key, id="a")
        assert (journals, inbox) == (other_journals, other_inbox)
        listed = await store.list_runs(RunFilter(statuses=frozenset({Status.COMPLETED})), 9)
        assert [one.id for one in listed] == ["b", "a"]
        assert await store.held("w1") == {}
        assert await store.claim("w2", NEVER, 9) == []

    world.run(check)


def check_a_first_turn_that_cannot_be_one_writes_nothing(world: World) -> None:
    """FAULTS F6: a bad argument is found before anything is stored."""

    async def check(store: Store) -> None:
        with pytest.raises(BadArgument, match="record 7"):
            await store.create(new_run("a"), turn(0, 7, step_row(7)))
        assert await store.get("a") is None

    world.run(check)


def check_an_item_can_be_taken_once(world: World) -> None:
    """CONFORMANCE E5, law 6: a turn that takes an item which is gone, or another run's, is refused whole."""

    async def check(store: Store) -> None:
        key, other = await create(store, "a"), await create(store, "b")
        await store.append("a", event(), 9)
        await store.append("b", event(), 9)
        (mine,), (theirs,) = await store.inbox(key, 9), await store.inbox(other, 9)
        await accept(store, turn(key, 2, step_row(2), consumed=[mine.id]))
        before = await everything(store, "a"), await everything(store, "b")
        for taken in ([mine.id], [theirs.id], [mine.id, theirs.id], [10**9]):
            assert isinstance(await commit(store, turn(key, 3, step_row(3), consumed=taken)), Rejected)
        assert (await everything(store, "a"), await everything(store, "b")) == before

    world.run(check)
