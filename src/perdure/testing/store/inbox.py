"""What is accepted into an inbox is there, once, in order; what is not is refused with its own error."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import InboxFull, RunFinished, RunNotFound
from perdure.store.model import Appended
from perdure.store.protocol import Store
from perdure.store.turn import Committed
from perdure.testing.store.kit import World, accept, cancel, create, event, everything, finishing, outcome, turn


def check_items_keep_their_order(world: World) -> None:
    """CONFORMANCE E2, E3: identical events are all kept, in the order of arrival."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        for number in range(5):
            await store.append("a", event(data=b"%d" % number), 10)
        await store.append("a", event(data=b"4"), 10)
        items = await store.inbox(key, 10)
        assert [item.data for item in items] == [b"0", b"1", b"2", b"3", b"4", b"4"]
        assert sorted(item.id for item in items) == [item.id for item in items]
        assert [item.data for item in await store.inbox(key, 2)] == [b"0", b"1"]

    world.run(check)


def check_the_same_key_twice_is_one_item(world: World) -> None:
    """FAULTS A15, CONFORMANCE E3: also after the first one was read and after the run ended: repeating succeeds."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        await create(store, "b")
        first = await store.append("a", event(dedup="k"), 1)
        assert first.delivery is not None
        assert await store.append("a", event(dedup="k"), 1) == Appended(delivery=None)
        assert (await store.append("b", event(dedup="k"), 1)).delivery is not None
        await accept(store, turn(key, 2, consumed=[first.delivery.item.id]))
        assert await store.append("a", event(dedup="k"), 1) == Appended(delivery=None)
        await accept(store, finishing(key, 2))
        assert await store.append("a", event(dedup="k"), 1) == Appended(delivery=None)
        assert list(await store.inbox(key, 9)) == []

    world.run(check)


def check_one_too_many_is_refused_and_not_dropped(world: World) -> None:
    """The limit counts unread events of one type; reading makes room; nothing is written by a refusal."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        first = await store.append("a", event(), 2)
        await store.append("a", event(), 2)
        before = await everything(store, "a")
        with pytest.raises(InboxFull, match="'ping'"):
            await store.append("a", event(dedup="k"), 2)
        assert await everything(store, "a") == before
        await store.append("a", event("pong"), 2)
        assert first.delivery is not None
        await accept(store, turn(key, 2, consumed=[first.delivery.item.id]))
        assert (await store.append("a", event(dedup="k"), 2)).delivery is not None

    world.run(check)


def check_unknown_and_ended_runs_take_nothing(world: World) -> None:
    """FAULTS F9, F11: each with its own error; a second cancel and a cancel of an ended run change nothing."""

    async def check(store: Store) -> None:
        key = await create(store, "a")
        for call in (
            store.append("x", event(), 1),
            store.request_cancel("x", cancel()),
            store.terminate("x", "", 1),
            store.resume("x", 1),
        ):
            with pytest.raises(RunNotFound, match="'x'"):
                await call
        assert await store.request_cancel("a", cancel()) is not None
        assert await store.request_cancel("a", cancel()) is None
        await accept(store, finishing(key, 2))
        before = await everything(store, "a")
        with pytest.raises(RunFinished, match="completed"):
            await store.append("a", event(), 1)
        assert await store.request_cancel("a", cancel()) is None
        assert await everything(store, "a") == before

    world.run(check)


def check_an_event_that_races_with_the_end_is_kept_or_refused(world: World) -> None:
    """FAULTS C15, CONFORMANCE E1: in either order, never silently dropped."""

    async def check(store: Store) -> None:
        for number in range(20):
            run_id = f"r{number}"
            key = await create(store, run_id)
            calls = [outcome(store.append(run_id, event(), 1)), outcome(store.commit([finishing(key, 2)]))]
            if number % 2:
                calls.reverse()
            results = await asyncio.gather(*calls)
            appended = next(result for result in results if not isinstance(result, list))
            dead = [letter for letter in await store.dead_letters(None, 100) if letter.target == run_id]
            stored = len(await store.inbox(key, 9)) + len(dead)
            assert (isinstance(appended, Appended), stored) in ((True, 1), (False, 0)), appended
            assert isinstance(appended, (Appended, RunFinished))

    world.run(check)


def check_cancel_and_completion_agree_on_the_end(world: World) -> None:
    """FAULTS C16: whichever comes first, there is one terminal status and it stays."""

    async def check(store: Store) -> None:
        for number in range(20):
            run_id = f"r{number}"
            key = await create(store, run_id)
            calls = [outcome(store.terminate(run_id, "stop", 5)), outcome(store.commit([finishing(key, 2)]))]
            if number % 2:
                calls.reverse()
            results = await asyncio.gather(*calls)
            terminated = next(result for result in results if not isinstance(result, list) or not result)
            ((committed,),) = [result for result in results if isinstance(result, list) and result]
            row = await store.get(run_id)
            assert row is not None
            expected = "cancelled" if terminated is not None else "completed"
            assert row.status == expected
            assert isinstance(committed, Committed) == (expected == "completed")

    world.run(check)
