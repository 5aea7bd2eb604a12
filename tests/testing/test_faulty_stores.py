"""The kit of faulty stores does what its rules say, so that the tests which use it test something."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from perdure import Engine, step, workflow
from perdure.errors import StoreUnavailable
from perdure.store.memory import MemoryStore
from support.faulty_stores import (
    Call,
    DisturbedStore,
    Hold,
    holds,
    killed_at_record,
    lose_answer,
    never,
    nothing,
    records,
    sent_first,
    sizes,
    unavailable,
)
from support.lives import run_async
from support.processes import Process


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled_twice(number: int) -> int:
    return await double(await double(number))


async def _count(store: DisturbedStore) -> dict[str, int]:
    """A call that changes nothing."""
    found: dict[str, int] = await store.count_runs()
    return found


def test_a_rule_before_the_call_keeps_the_store_from_it_and_one_after_it_does_not() -> None:
    async def main() -> None:
        memory = MemoryStore()
        store = DisturbedStore(memory)
        async with Engine(store) as engine:
            before = store.before("create_all", unavailable(), times=1)
            with pytest.raises(StoreUnavailable):
                await engine.start(doubled_twice(1), id="run")
            assert await memory.get("run") is None
            after = store.after("create_all", lose_answer, times=1)
            with pytest.raises(StoreUnavailable):
                await engine.start(doubled_twice(1), id="run")
            assert await memory.get("run") is not None
            assert (before.hits, after.hits) == (1, 1)
            assert await engine.result("run", timeout=20) == 4

    run_async(main())


def test_a_rule_acts_from_a_call_on_and_so_many_times() -> None:
    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        rule = store.before("count_runs", unavailable(), at=2, times=2)
        failed = []
        for _ in range(5):
            try:
                await _count(store)
                failed.append(False)
            except StoreUnavailable:
                failed.append(True)
        assert failed == [False, True, True, False, False]
        assert rule.hits == 2

    run_async(main())


def test_a_rule_may_count_calls_by_what_is_in_them_and_several_together() -> None:
    """A condition that gives numbers adds them up; one that gives False does not count the call."""

    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        done = store.before("commit", nothing, holds("step_done"))
        third = store.after(("create_all", "commit"), nothing, records, at=3, times=1)
        turns = store.note_turns(created=False)
        async with Engine(store) as engine:
            assert await (await engine.start(doubled_twice(1))).result() == 4
        assert sizes(turns) == [1, 2]  # a step, then a step and the end
        assert (done.hits, third.hits) == (2, 1)

    run_async(main())


def test_a_rule_at_the_call_acts_before_anything_is_awaited() -> None:
    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        store.at_the_call("count_runs", unavailable(), times=1)
        with pytest.raises(StoreUnavailable):
            store.count_runs()
        await _count(store)

    run_async(main())


def test_what_is_noted_includes_calls_that_another_rule_lets_fail() -> None:
    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        store.before("count_runs", unavailable())
        asked = store.note("count_runs", "workers")
        with pytest.raises(StoreUnavailable):
            await _count(store)
        await store.workers()
        assert asked == ["count_runs", "workers"]

    run_async(main())


def test_a_call_that_is_held_goes_on_when_it_is_released() -> None:
    async def main() -> None:
        store, hold = DisturbedStore(MemoryStore()), Hold()
        store.before("count_runs", hold)
        asking = asyncio.create_task(_count(store))
        await hold.reached.wait()
        assert not asking.done()
        hold.release.set()
        assert await asking == {}

    run_async(main())


def test_a_call_that_is_never_answered_can_only_be_cancelled() -> None:
    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        rule = store.before("count_runs", never)
        asking = asyncio.create_task(_count(store))
        while not rule.hits:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    run_async(main())


def test_each_answer_is_lost_once() -> None:
    """`sent_first` lets through what is repeated, so that a caller who repeats comes to an end."""

    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        lost = store.after("commit", lose_answer, sent_first())
        async with Engine(store) as engine:
            assert await (await engine.start(doubled_twice(1))).result(timeout=20) == 4
        assert lost.hits == 2

    run_async(main())


def test_calls_without_a_rule_are_those_of_the_store_itself() -> None:
    memory = MemoryStore()
    store = DisturbedStore(memory)
    assert store.commit == memory.commit
    with pytest.raises(AttributeError):
        store.before("no_such_call", nothing)


def test_a_rule_sees_arguments_and_result() -> None:
    seen: list[Call] = []

    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        store.after("get", seen.append)
        await store.get("run")

    run_async(main())
    assert [(call.name, call.args, call.result) for call in seen] == [("get", ("run",), None)]


async def _run_until_killed(path: str) -> None:
    async with Engine(killed_at_record(path, 2)) as engine:
        await (await engine.start(doubled_twice(1), id="run")).result()


def test_a_process_is_killed_as_soon_as_so_many_records_are_durable(tmp_path: Path) -> None:
    path = str(tmp_path / "killed.db")
    with Process("testing.test_faulty_stores:_run_until_killed", path) as child:
        assert child.wait() == -signal.SIGKILL

    async def main() -> None:
        async with Engine(path, worker=False) as engine:
            assert [entry.kind for entry in await engine.admin.history("run")] == ["started", "step_done"]

    run_async(main())
