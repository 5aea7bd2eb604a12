"""Published events, dead letters, replies and watches: who gets them, once each, and what people may do to the runs."""

from __future__ import annotations

import msgspec
import pytest

from perdure.errors import DeadLetterNotFound, RunFinished
from perdure.kernel.definitions import EventPolicy
from perdure.kernel.items import read_child_item
from perdure.store.model import ItemKind, Release, Reopen, Snapshot, Status
from perdure.store.protocol import Store
from perdure.store.turn import Created, Turn
from perdure.testing.store.kit import (
    SHARED,
    World,
    accept,
    create,
    event,
    failed_row,
    finishing,
    publish,
    published,
    reply,
    resumed_row,
    row_of,
    step_row,
    turn,
    watch,
)


def waiting(key: int, seq: int = 2, worker: str = "w1", **waits: int) -> Turn:
    return turn(key, seq, status=Status.WAITING, waits=waits, worker=worker)


def check_tidying_removes_what_was_kept_long_enough(world: World) -> None:
    """event_retention and expires: in bounded parts, counted; what a run holds stays."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, waiting(key, held=1))
        await store.publish(published("held", EventPolicy(), 50), 10)
        for number in range(5):
            await store.publish(published("old", EventPolicy(), 50 + number), 10)
        await store.publish(published("short", EventPolicy(expires=10), 95), 10)
        await store.publish(published("young", EventPolicy(), 90), 10)
        assert await store.tidy_events(100, 60, 3) == 3
        assert await store.tidy_events(100, 60, 3) == 2
        assert await store.tidy_events(100, 60, 3) == 0
        assert [one.type for one in await store.publications(None, 10)] == ["held", "short", "young"]
        assert await store.tidy_events(105, 60, 3) == 1
        assert dict(await store.expired_events()) == {"old": 5, "short": 1}
        assert [one.holder for one in await store.publications(None, 10)] == ["a", None]

    world.run(check)


def check_a_refused_replay_changes_nothing(world: World) -> None:
    """Bad input: a finished run; the dead letter stays."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await store.append("a", published(policy=SHARED), 10)
        await accept(store, finishing(key, 2))
        (letter,) = await store.dead_letters(None, 10)
        with pytest.raises(RunFinished):
            await store.replay_dead_letter(letter.id, "a", 200, 10)
        assert list(await store.dead_letters(None, 10)) == [letter]
        assert await store.remove_dead_letters([letter.id, letter.id]) == 1
        with pytest.raises(DeadLetterNotFound):
            await store.replay_dead_letter(letter.id, None, 200, 10)

    world.run(check)


def check_a_turn_that_takes_an_event_twice_is_recognised(world: World) -> None:
    """Law 6: the repeat of a turn that took a single event is answered like the first time."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, waiting(key, ping=1))
        given = await store.publish(published(policy=EventPolicy()), 10)
        item = given.deliveries[0].item
        takes = turn(key, 2, step_row(2), consumed=[item.id], waits={})
        assert not (await accept(store, takes)).repeated
        assert (await accept(store, takes)).repeated
        assert list(await store.publications(None, 10)) == []

    world.run(check)


def check_the_first_answer_to_a_request_stays(world: World) -> None:
    """CONFORMANCE E10: it is there with the commit of the turn that gave it."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        assert await store.reply("r") is None
        assert (await accept(store, turn(key, 2, reply(2, "r", b"1"), reply(3, "r", b"2")))).replied
        assert await store.reply("r") == b"1"

    world.run(check)


def check_a_deleted_run_takes_its_answers_with_it(world: World) -> None:
    """FAULTS C21: a new run of the same id is asked itself. Answers of runs with a similar id stay."""

    async def check(store: Store) -> None:
        gone, other = await create(store, "a"), await create(store, "a-b")
        await accept(store, turn(gone, 2, reply(2, "a\nk"), reply(3, "a\nk\nl"), reply(4, "a\n\U0010ffff")))
        await accept(store, turn(other, 2, reply(2, "a-b\nk"), reply(3, "a\vk"), reply(4, "A\nk")))
        assert await store.delete([gone]) == 0, "it is still open"
        assert await store.reply("a\nk") == b"1"
        await accept(store, finishing(gone, 5))
        assert await store.delete([gone]) == 1
        assert [await store.reply(f"a\n{key}") for key in ("k", "k\nl", "\U0010ffff")] == [None] * 3
        assert [await store.reply(name) for name in ("a-b\nk", "a\vk", "A\nk")] == [b"1"] * 3

    world.run(check)


def check_a_turn_that_stops_waiting_does_not_get_what_it_publishes(world: World) -> None:
    """CONFORMANCE E6: neither in the place of one that it takes nor of one that never came. Another run that waits gets
    it."""

    async def check(store: Store) -> None:
        for number, holds in enumerate((True, False)):
            first, second = await create(store, f"first-{number}"), await create(store, f"second-{number}", owner="w2")
            await accept(store, waiting(first, ping=1))
            held = (await store.publish(published(at=60), 9)).deliveries if holds else ()
            await accept(store, waiting(second, worker="w2", ping=1))
            stops = turn(first, 2, publish(2, published(at=61)), consumed=[each.item.id for each in held], waits={})
            (given,) = (await accept(store, stops)).deliveries
            assert given.key == second
            assert list(await store.inbox(first, 9)) == []
            assert [one.holder for one in await store.publications(None, 9)] == [f"second-{number}"]
            taken = turn(second, 2, step_row(2), consumed=[given.item.id], waits={}, worker="w2")
            await accept(store, taken)

    world.run(check)


def check_a_turn_that_goes_on_waiting_may_have_what_it_publishes(world: World) -> None:
    """CONFORMANCE E6: if nobody else takes it. One that only begins to wait by `after_wait` was late for it."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, waiting(key, ping=1))
        (given,) = (await accept(store, turn(key, 2, publish(2, published()), waits={"ping": 1, "pong": 1}))).deliveries
        assert (given.key, given.item.type) == (key, "ping")
        (again,) = (await accept(store, turn(key, 3, publish(3, published("pong"))))).deliveries
        assert (again.key, again.item.type) == (key, "pong")
        late = publish(4, published("late", EventPolicy(delivery="after_wait")))
        assert (await accept(store, turn(key, 4, late, waits={"late": 1}))).deliveries == []
        assert [item.type for item in await store.inbox(key, 9)] == ["ping", "pong"]

    world.run(check)


def check_who_watches_a_run_hears_of_its_end_once(world: World) -> None:
    """Open or ended when it is asked for; a run that does not exist is refused; a deleted watcher is no harm."""

    async def check(store: Store) -> None:
        watcher, other = await create(store, "watcher"), await create(store, "other")
        target, gone = await create(store, "target"), await create(store, "gone")
        await accept(store, turn(watcher, 2, watch(2, "target"), watch(3, "nobody")))
        await accept(store, turn(watcher, 4, watch(4, "target")))
        await accept(store, turn(gone, 2, watch(2, "target")))
        await accept(store, finishing(gone, 3))
        assert await store.delete([gone]) == 1
        told = await accept(store, finishing(target, 2))
        assert [(delivery.key, delivery.item.kind) for delivery in told.deliveries] == [(watcher, ItemKind.CHILD)]
        (late,) = (await accept(store, turn(other, 2, watch(2, "target")))).deliveries
        assert read_child_item(late.item.data).child_id == "target"
        assert (await row_of(store, "target")).status is Status.COMPLETED

    world.run(check)


# -- and what people do to runs --------------------------------------------------------------------------


def check_a_paused_run_keeps_no_event_from_the_others(world: World) -> None:
    """CONFORMANCE E6, L4: a single event that it holds goes on to a run that waits; unpaused, it may have what is
    left."""

    async def check(store: Store) -> None:
        first, second = await create(store, "first"), await create(store, "second", owner="w2")
        await accept(store, waiting(first, ping=1))
        await store.publish(published(at=50), 9)
        await store.append("first", event("sent"), 9)
        await accept(store, waiting(second, worker="w2", ping=1))
        told = await store.pause("first", "by ann", 60) or ()
        assert [(delivery.key, delivery.item.kind) for delivery in told] == [
            (first, ItemKind.PAUSE),
            (second, ItemKind.EVENT),
        ]
        assert [item.type for item in await store.inbox(first, 9) if item.kind is ItemKind.EVENT] == ["sent"]
        await store.publish(published(at=61), 9)
        assert [one.holder for one in await store.publications(None, 9)] == ["second", None]
        await store.unpause("first", 70)
        assert [one.holder for one in await store.publications(None, 9)] == ["second", "first"]

    world.run(check)


def check_a_paused_run_gets_its_copies(world: World) -> None:
    """CONFORMANCE E6, L4: shared events reach every run that waits, stopped or not, once."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, waiting(key, ping=1))
        await store.pause("a", "", 60)
        await store.publish(published(policy=SHARED, at=61), 9)
        await store.unpause("a", 70)
        assert [item.publication for item in await store.inbox(key, 9)] == [1]

    world.run(check)


def check_a_reopened_run_has_what_it_had_not_read(world: World) -> None:
    """CONFORMANCE E5, L4: its unread events come back from the dead letters, in order; copies it has had do not come
    again."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        everyone = EventPolicy(consume=False, delivery="all")
        await accept(store, waiting(key, ping=1))
        (copy,) = (await store.publish(published(policy=everyone), 9)).deliveries
        await accept(store, turn(key, 2, step_row(2), consumed=[copy.item.id], waits={}))
        for number in range(3):
            await store.append("a", event("sent", data=b"%d" % number, at=60 + number), 9)
        await accept(store, turn(key, 3, failed_row(3), status=Status.FAILED, waits={}))
        letters = await store.dead_letters(None, 9)
        assert len(letters) == 3
        await store.remove_dead_letters([letters[1].id])
        assert await store.reopen(Reopen(key=key, epoch=1, record=resumed_row(4, 3), frontier=b"f"))
        assert [(item.data, item.sent_at) for item in await store.inbox(key, 9)] == [(b"0", 60), (b"2", 62)]
        assert list(await store.dead_letters(None, 9)) == []
        (claimed,) = await store.claim("w2", 600, 9)
        assert not (await accept(store, turn(key, 5, epoch=claimed.epoch, worker="w2", waits={"ping": 1}))).deliveries
        assert len((await store.publish(published(policy=everyone, at=601), 9)).deliveries) == 1

    world.run(check)


def check_a_restored_run_gets_what_is_published_from_then_on(world: World) -> None:
    """CONFORMANCE E6, L4: what it has had is in its journal and inbox; nothing that was published before comes
    again."""

    async def check(store: Store) -> None:
        everyone = EventPolicy(consume=False, delivery="all")
        origin = await create(store, "origin")
        await accept(store, waiting(origin, ping=1))
        await store.publish(published(policy=everyone), 9)
        (loaded,) = await store.load([origin])
        row = msgspec.structs.replace(loaded.run, id="copy")
        made = await store.restore(Snapshot(run=row, journals={1: loaded.rows}, inbox=[event(dedup="k")]))
        assert isinstance(made, Created)
        (claimed,) = await store.claim("w2", 600, 9)
        await accept(store, turn(made.key, 2, epoch=claimed.epoch, worker="w2", waits={"ping": 1}))
        await store.release("w2", [Release(key=made.key, epoch=claimed.epoch, seen_item=9, ready_at=10**9)])
        assert [item.publication for item in await store.inbox(made.key, 9)] == [0]
        await store.publish(published(policy=everyone, at=601), 9)
        assert [item.publication for item in await store.inbox(made.key, 9)] == [0, 2]
        assert (await store.append("copy", event(dedup="k"), 9)).delivery is None, "keys of what it brings count"
        assert [one.key for one in await store.claim("w3", 601, 9)] == [made.key], "and it wakes up for it"

    world.run(check)


def check_a_deleted_run_waits_for_nothing(world: World) -> None:
    """CONFORMANCE E6, L4: also one that failed, whose place in the logs was kept for its return."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await accept(store, waiting(key, ping=1))
        await accept(store, turn(key, 2, failed_row(2), status=Status.FAILED, waits={}))
        assert await store.delete([key]) == 1
        for policy in (SHARED, EventPolicy()):
            assert not (await store.publish(published(policy=policy), 9)).deliveries
        assert [one.holder for one in await store.publications(None, 9)] == [None, None]

    world.run(check)
