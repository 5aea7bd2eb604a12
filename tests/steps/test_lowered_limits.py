"""A limit that is lowered while perdure runs holds at once, on the fast path and off it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure import Engine, RunFailed, limits, step, workflow
from perdure.errors import Spinning, TooLarge
from perdure.kernel.eventloop.loop import make_loop
from perdure.store.memory import MemoryStore
from support.faulty_stores import DisturbedStore, sizes
from support.lives import run_async


@step
async def increment(number: int) -> int:
    return number + 1


@workflow
async def counts(number: int) -> int:
    for _ in range(3):
        number = await increment(number)
    return number


@workflow
async def six_at_once(number: int) -> Any:
    return await asyncio.gather(*(increment(number) for _ in range(6)))


def test_callbacks_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the limit says are called; one more ends the turn."""
    monkeypatch.setattr(limits, "TURN_CALLBACKS_MAX", 5)
    loop = make_loop(None, 0)
    called: list[int] = []
    for number in range(5):
        loop.call_soon(called.append, number)
    loop.drain()
    assert called == [0, 1, 2, 3, 4]
    for number in range(5, 11):
        loop.call_soon(called.append, number)
    with pytest.raises(Spinning):
        loop.drain()
    assert called == list(range(10))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("flow", [counts, six_at_once], ids=lambda flow: flow.name)
def test_arguments_that_are_recorded(monkeypatch: pytest.MonkeyPatch, flow: Any, kept: bool) -> None:
    """Arguments longer than the limit are left out of the record."""
    arguments = b'{"number":3}'
    monkeypatch.setattr(limits, "RECORDED_ARGUMENTS_BYTES_MAX", len(arguments) if kept else len(arguments) - 1)

    async def main() -> None:
        async with Engine(":memory:") as engine:
            run = await engine.start(flow(3))
            assert await run.result(timeout=10)
            records = [entry for entry in await engine.admin.history(run.id) if entry.kind == "step_done"]
            assert [bool(record.data.get("args")) for record in records] == [kept] * len(records)
            assert len(records) == (3 if flow is counts else 6)

    run_async(main())


@pytest.mark.parametrize(("most", "warnings"), [(2, 1), (3, 1), (6, 0)])
def test_records_that_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int, warnings: int
) -> None:
    """One line of log when the journal of a run reaches the limit. The journal of `counts` has five records."""
    monkeypatch.setattr(limits, "JOURNAL_RECORDS_WARN", most)

    async def main() -> None:
        async with Engine(":memory:") as engine:
            assert await (await engine.start(counts(1))).result(timeout=10) == 4

    with caplog.at_level(logging.WARNING, "perdure.worker"):
        run_async(main())
    assert len([record for record in caplog.records if "the journal of run" in record.message]) == warnings


def test_records_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six results that are there at once become three turns of two records."""
    monkeypatch.setattr(limits, "TURN_RECORDS_MAX", 2)
    store = DisturbedStore(MemoryStore())
    turns = store.note_turns(created=False)

    async def main() -> None:
        async with Engine(store) as engine:
            assert await (await engine.start(six_at_once(1))).result(timeout=10) == [2] * 6

    run_async(main())
    assert sum(sizes(turns)) == 7
    assert max(sizes(turns)) == 3  # two results and the end


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
