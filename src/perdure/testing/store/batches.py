"""Many turns and many new runs in one call: the answers and the state are those of one call each (laws 3 and 6).

A store may carry out a large batch of plain requests by a fast path and everything else one by one, as SQLite does;
both must come to the same, so every batch here exists in a plain form and in forms that are not.
"""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import BadArgument
from perdure.kernel.journal import Row
from perdure.store.model import NewRun, Status
from perdure.store.protocol import Store
from perdure.store.turn import Committed, Created, Entry, Existing, Rejected, Turn
from perdure.testing.store.checks import cases
from perdure.testing.store.kit import (
    World,
    accept,
    everything,
    finishing,
    new_run,
    row_of,
    send,
    started_row,
    step_row,
    stepping,
    turn,
)

MANY = 50


def opening(**changes: Any) -> Turn:
    return turn(0, 2, **({"frontier": b'{"seq":1}', "at": 1} | changes))


async def create_many(store: Store, prefix: str = "r", count: int = MANY) -> list[int]:
    created = await store.create_all([(new_run(f"{prefix}{n}"), opening()) for n in range(count)])
    assert all(isinstance(one, Created) for one in created)
    return [one.key for one in created if isinstance(one, Created)]


def check_many_runs_are_created_as_one_would_be(world: World) -> None:
    async def check(store: Store) -> None:
        single = await store.create(new_run("single"), opening(status=Status.WAITING, wake_at=7, state=b'{"a":1}'))
        batch = [(new_run(f"r{n}"), opening(status=Status.WAITING, wake_at=7, state=b'{"a":1}')) for n in range(MANY)]
        created = await store.create_all(batch)
        assert isinstance(single, Created)
        expected, journals, inbox = await everything(store, "single")
        for number, one in enumerate(created):
            assert isinstance(one, Created)
            assert (one.epoch, one.committed) == (single.epoch, single.committed)
            row, found, unread = await everything(store, f"r{number}")
            assert row.key == one.key
            assert (found, unread) == (journals, inbox)
            for field in expected.__struct_fields__:
                if field not in ("key", "id"):
                    assert getattr(row, field) == getattr(expected, field), field
        assert len({one.key for one in created if isinstance(one, Created)}) == MANY

    world.run(check)


def check_an_id_that_is_taken_does_not_disturb_the_others(world: World) -> None:
    """CONFORMANCE L3 in a batch: one start finds its run, the others are created."""

    async def check(store: Store) -> None:
        taken = await store.create(new_run("r7", digest=b"other"), None)
        assert isinstance(taken, Created)
        created = await store.create_all([(new_run(f"r{n}"), opening()) for n in range(MANY)])
        for number, one in enumerate(created):
            if number == 7:
                assert isinstance(one, Existing)
                assert (one.row.key, one.row.input_digest) == (taken.key, b"other")
            else:
                assert isinstance(one, Created)
                assert (await row_of(store, f"r{number}")).key == one.key
                assert list(await store.journal(one.key, 1)) == [started_row()]

    world.run(check)


def check_the_same_id_twice_in_one_batch_is_one_run(world: World) -> None:
    async def check(store: Store) -> None:
        created = await store.create_all([(new_run(f"r{n % 40}"), opening()) for n in range(MANY)])
        assert [isinstance(one, Created) for one in created] == [True] * 40 + [False] * 10

    world.run(check)


def check_runs_of_every_sort_in_one_batch(world: World) -> None:
    """Nobody's runs, runs with first records, runs that end at once: all as by `create`."""

    async def check(store: Store) -> None:
        batch: list[tuple[NewRun, Turn | None]] = [(new_run(f"r{n}"), opening()) for n in range(MANY)]
        batch += [
            (new_run("pending", owner=None), None),
            (new_run("stepped"), opening(entries=turn(0, 2, step_row(2)).entries)),
        ]
        batch += [(new_run("ended"), finishing(0, 2))]
        created = await store.create_all(batch)
        assert all(isinstance(one, Created) for one in created)
        assert (await row_of(store, "pending")).status is Status.PENDING
        assert (await row_of(store, "stepped")).next_seq == 3
        assert (await row_of(store, "ended")).status is Status.COMPLETED

    world.run(check)


def check_a_first_turn_that_does_not_start_at_the_start_is_refused(world: World) -> None:
    async def check(store: Store) -> None:
        batch = [(new_run(f"r{n}"), opening(expected_seq=3)) for n in range(MANY)]
        with pytest.raises(BadArgument):
            await store.create_all(batch)
        assert await store.get("r0") is None

    world.run(check)


def check_many_turns_are_committed_as_one_would_be(world: World) -> None:
    async def check(store: Store) -> None:
        keys = await create_many(store)
        (single,) = await create_many(store, "single", 1)

        def going(key: int) -> Turn:
            shown = {"frontier": b"[1]", "custom_status": b'"half"', "state": b'{"n":1}', "wake_at": 900, "at": 500}
            return turn(key, 2, step_row(2, '"ü\\u0000 \\" \\n"'.encode()), step_row(3), status=Status.WAITING, **shown)

        await accept(store, going(single))
        results = await store.commit([going(key) for key in keys])
        assert all(isinstance(result, Committed) for result in results)
        await accept(store, finishing(single, 4, at=600))
        results = await store.commit([finishing(key, 4, at=600) for key in keys])
        assert all(isinstance(result, Committed) for result in results)
        expected, journals, inbox = await everything(store, "single0")
        for number in range(MANY):
            row, found, unread = await everything(store, f"r{number}")
            assert (found, unread) == (journals, inbox)
            for field in expected.__struct_fields__:
                if field not in ("key", "id"):
                    assert getattr(row, field) == getattr(expected, field), field

    world.run(check)


@cases([b"1", '"ü\\u0000 \\" \\n"'.encode(), b"\xff\xfe not text", b'"' + b"x" * 10_000 + b'"'])
def check_turns_from_step_to_step_are_turns_like_others(world: World, value: bytes) -> None:
    """From step to step: alone, in a batch of its kind, and beside others; a store may have a fast path for them."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        (single,) = await create_many(store, "single", 1)
        (alone,) = await create_many(store, "alone", 1)

        def row(seq: int) -> Row:
            return step_row(seq)._replace(data=value)

        for seq in (2, 3):
            # Pruning, though of nothing, is more than going on: no store has a fast path for it.
            await accept(store, turn(single, seq, row(seq), frontier=value, pruned=[99]))
            await accept(store, stepping(alone, seq, row(seq), frontier=value))
        results = [*await store.commit([stepping(key, 2, row(2), frontier=value) for key in keys[:30]])]
        results += await store.commit(
            [stepping(key, 3, row(3), frontier=value) for key in keys[:30]]
            + [turn(key, 2, row(2), row(3), frontier=value, at=row(3).at) for key in keys[30:]]
        )
        assert all(isinstance(result, Committed) for result in results)
        expected, journals, inbox = await everything(store, "single0")
        for name in ("alone0", *(f"r{n}" for n in range(MANY))):
            found_row, found, unread = await everything(store, name)
            assert (found, unread) == (journals, inbox)
            for field in expected.__struct_fields__:
                if field not in ("key", "id"):
                    assert getattr(found_row, field) == getattr(expected, field), field

    world.run(check)


@cases([{"epoch": 9}, {"expected_seq": 7}, {"key": 99_999}])
def check_one_refused_turn_from_step_to_step_does_not_touch_the_others(world: World, wrong: dict[str, Any]) -> None:
    """Laws 6 and 7 in a batch of turns from step to step; and when it comes again, what was accepted is recognised."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        turns = [stepping(key, 2) for key in keys]
        turns[20] = stepping(wrong.get("key", keys[20]), 2, **{name: wrong[name] for name in wrong if name != "key"})
        for again in (False, True):
            results = await store.commit(turns)
            assert [isinstance(result, Rejected) for result in results] == [n == 20 for n in range(MANY)]
            repeated = [result.repeated for result in results if isinstance(result, Committed)]
            assert repeated == [again] * (MANY - 1)
        assert (await row_of(store, "r20")).next_seq == 2
        assert {(await row_of(store, f"r{n}")).next_seq for n in range(MANY) if n != 20} == {3}
        assert {len(await store.journal(key, 1)) for key in keys if key != keys[20]} == {2}

    world.run(check)


@cases([{"epoch": 9}, {"generation": 2}, {"expected_seq": 7}, {"key": 99_999}])
def check_one_refused_turn_does_not_touch_the_others(world: World, wrong: dict[str, Any]) -> None:
    """Laws 6 and 7 in a batch: the turn that does not fit changes nothing, every other one is accepted."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        turns = [turn(key, 2, step_row(2)) for key in keys]
        changes: dict[str, Any] = {"entries": [Entry(step_row(2))], **wrong}
        turns[20] = turn(changes.pop("key", keys[20]), 2, **changes)
        results = await store.commit(turns)
        assert [isinstance(result, Rejected) for result in results] == [n == 20 for n in range(MANY)]
        assert (await row_of(store, "r20")).next_seq == 2
        assert {(await row_of(store, f"r{n}")).next_seq for n in range(MANY) if n != 20} == {3}

    world.run(check)


def check_a_batch_that_comes_again_is_recognised(world: World) -> None:
    """CONFORMANCE W2, "raised but committed": the second answer is the first one."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        turns = [turn(key, 2, step_row(2)) for key in keys]
        await store.commit(turns)
        again = await store.commit(turns)
        assert all(isinstance(result, Committed) and result.repeated for result in again)
        assert {len(await store.journal(key, 1)) for key in keys} == {2}

    world.run(check)


def check_two_turns_of_one_run_in_one_batch(world: World) -> None:
    """In order: the second one builds on the first."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        turns = [turn(key, 2, step_row(2)) for key in keys] + [turn(keys[0], 3, step_row(3))]
        assert all(isinstance(result, Committed) for result in await store.commit(turns))
        assert (await row_of(store, "r0")).next_seq == 4

    world.run(check)


def check_plain_turns_beside_turns_with_effects(world: World) -> None:
    async def check(store: Store) -> None:
        keys = await create_many(store)
        turns = [turn(key, 2, step_row(2)) for key in keys[:-1]] + [turn(keys[-1], 2, send(2, "r0"))]
        results = await store.commit(turns)
        assert len(results[-1].deliveries) == 1  # type: ignore[union-attr]
        assert len(await store.inbox(keys[0], 10)) == 1
        assert {(await row_of(store, f"r{n}")).next_seq for n in range(MANY)} == {3}

    world.run(check)


@cases([b'"' + b"x" * 100_000 + b'"', b"\xff\xfe not text", b""])
def check_values_that_json_is_no_good_for(world: World, data: bytes) -> None:
    """FAULTS E: large values, and bytes that are not text (an encrypting codec makes such), come back as they went."""

    async def check(store: Store) -> None:
        keys = await create_many(store)
        row = step_row(2)._replace(data=data)
        await store.commit([turn(key, 2, row, frontier=data or None, state=data) for key in keys])
        for key in keys[:3]:
            found = (await store.journal(key, 1))[-1]
            assert found == row
        assert (await row_of(store, "r0")).state == data

    world.run(check)
