"""A limit that is lowered holds at once, also where C looks at it: tests that lower one would wait for the old one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from native.hostile import World
from perdure import Engine, RunFailed, limits, step, workflow
from perdure.engine.resident import Outcome
from perdure.errors import Spinning, TooLarge
from perdure.kernel.operation import StepOperation
from perdure.store.base import StepTurn, Turn
from perdure.store.sqlite import bulk
from support.lives import run_async


@step
async def increment(number: int) -> int:
    return number + 1


@workflow
async def counts(number: int) -> int:
    for _ in range(3):
        number = await increment(number)
    return number


def with_world(check: Callable[[World], None], flow: Any = counts) -> None:
    """Look at a run that waits for its first step, from a callback of an event loop, as an engine does."""

    async def main() -> None:
        done = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                with contextlib.closing(World(flow)) as world:
                    check(world)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        asyncio.get_running_loop().call_soon(run)
        await done

    run_async(main())


def test_callbacks_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_CALLBACKS_MAX", 5)

    def check(world: World) -> None:
        called: list[int] = []
        for number in range(5):
            world.loop.call_soon(called.append, number)
        world.loop.drain()
        assert called == [0, 1, 2, 3, 4]
        for number in range(5, 11):
            world.loop.call_soon(called.append, number)
        with pytest.raises(Spinning):
            world.loop.drain()
        assert called == list(range(10))

    with_world(check)


def next_turn(world: World, seq: int = 2) -> Turn:
    world.resident.attempts[world.operation.location] = world.attempt
    world.resident.next_seq = seq
    turn = world.builder.take_result(world.attempt, 1, 2_000)
    assert turn is not None
    return turn


@pytest.mark.parametrize("kept", [True, False])
def test_arguments_that_are_recorded(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    arguments = b'{"number":3}'
    monkeypatch.setattr(limits, "RECORDED_ARGUMENTS_BYTES_MAX", len(arguments) if kept else len(arguments) - 1)

    def check(world: World) -> None:
        assert (arguments in next_turn(world).entries[0].row.data) is kept
        other = World(counts)
        other.resident.attempts[other.operation.location] = other.attempt
        other.runner.returned(other.attempt, 1)
        (outcome,) = other.resident.outcomes
        assert (bytes(outcome.body.args) == arguments) is kept  # type: ignore[union-attr]
        other.close()

    with_world(check)


@pytest.mark.parametrize("warned", [True, False])
def test_records_that_are_warned_of(monkeypatch: pytest.MonkeyPatch, warned: bool) -> None:
    """The turn with that record is made by the function that warns."""
    monkeypatch.setattr(limits, "JOURNAL_RECORDS_WARN", 7 if warned else 8)

    def check(world: World) -> None:
        assert type(next_turn(world, 7)) is (Turn if warned else StepTurn)

    with_world(check)


def test_records_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_RECORDS_MAX", 2)

    def check(world: World) -> None:
        entries: list[Any] = []
        world.run.deliver(world.record, 6)  # two steps are pending now
        for operation in list(world.pending.operations.values()) * 2:
            assert isinstance(operation, StepOperation)
            world.resident.outcomes.append(Outcome(operation, world.body, 3_000, 1))
        assert len(world.resident.outcomes) == 6
        world.builder._take_outcomes(world.resident, 3_000, entries)
        assert (len(entries), len(world.resident.outcomes)) == (2, 4)

    with_world(check, three_at_once)


@workflow
async def three_at_once(number: int) -> Any:
    await increment(number)
    return await asyncio.gather(increment(1), increment(2), increment(3))


def test_bytes_that_go_into_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "BULK_BYTES_MAX", 1)

    def check(world: World) -> None:
        for turns, creations in (([world.turn], []), ([world.other_turn], []), ([], [(world.new, world.opening)])):
            assert not bulk.Bulk().add(turns, creations)
        monkeypatch.setattr(bulk, "BULK_BYTES_MAX", 10_000)
        assert bulk.Bulk().add([world.turn, world.other_turn], [(world.new, world.opening)])

    with_world(check)


@pytest.mark.parametrize(("most", "error"), [(13, None), (12, TooLarge)])
def test_bytes_of_a_value(monkeypatch: pytest.MonkeyPatch, most: int, error: type[Exception] | None) -> None:
    """`{"number":9}` is the first call of the step, `{"number":10}` the second."""
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", most)

    async def main() -> None:
        async with Engine(":memory:") as engine:
            run = await engine.start(counts(9))
            if error is None:
                assert await run.result(timeout=10) == 12
                return
            with pytest.raises(RunFailed) as caught:
                await run.result(timeout=10)
            assert isinstance(caught.value.__cause__, error)

    run_async(main())
