"""A crash between taking an event and recording it: the event is still delivered once."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from events.kinds import Note
from perdure import Engine, RunHandle, receive, step, workflow
from perdure.store.sqlite import SQLiteStore
from support.effects import Effects
from support.faulty_stores import DisturbedStore, die, holds
from support.lives import Lives, run_async
from support.processes import Process


@step
async def write_down(path: str, text: str) -> str:
    Effects(Path(path)).add(text)
    return text


@workflow
async def write_down_notes(path: str, count: int) -> list[str]:
    return [await write_down(path, (await receive(Note)).text) for _ in range(count)]


@workflow
async def read_notes(count: int) -> list[str]:
    return [(await receive(Note)).text for _ in range(count)]


async def three_notes(engine: Engine, handle: RunHandle[list[str]]) -> None:
    for text in ("a", "b", "c"):
        await engine.send(handle.id, Note(text), key=text)


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_a_crash_around_the_record_of_an_event_neither_loses_nor_doubles_it(
    lives: Lives, effects: Effects, before: bool
) -> None:
    """CONFORMANCE E5: the engine dies around each record in turn."""
    path = str(effects.path)
    result = run_async(lives.crash_at_every_record(lambda: write_down_notes(path, 3), drive=three_notes, before=before))
    assert result == ["a", "b", "c"]


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_events_that_share_a_turn_survive_a_crash_around_it(lives: Lives, before: bool) -> None:
    """CONFORMANCE E5: several events are taken in one turn, all or nothing."""
    result = run_async(lives.crash_at_every_record(lambda: read_notes(3), drive=three_notes, before=before))
    assert result == ["a", "b", "c"]


async def die_around_event(database: str, effects_path: str, number: str, before: str) -> None:
    """In a child process: take events until the chosen one, and die there."""
    store = DisturbedStore(SQLiteStore(database))
    store.around("commit", die, holds("event_received"), before=before == "True", at=int(number))
    async with Engine(store, sweep_interval=0.02) as engine:
        run = await engine.start(write_down_notes(effects_path, 3), id="run")
        await three_notes(engine, run)
        await run.result()
    print("not killed", file=sys.stderr)


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("number", [1, 3])
def test_a_worker_really_killed_around_the_record_of_an_event(
    tmp_path: Path, effects: Effects, number: int, before: bool
) -> None:
    """CONFORMANCE E5 with SIGKILL: the next process delivers every event exactly once."""
    database = str(tmp_path / "killed.db")
    target = "events.test_crash_around_an_event:die_around_event"
    with Process(target, database, str(effects.path), str(number), str(before)) as child:
        assert child.wait() == -signal.SIGKILL

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            run = await engine.start(write_down_notes(str(effects.path), 3), id="run")
            await three_notes(engine, run)  # what was acknowledged before the kill is not doubled
            assert await run.result() == ["a", "b", "c"]
            received = [
                e.data["value"]["text"] for e in await engine.admin.history("run") if e.kind == "event_received"
            ]
            assert received == ["a", "b", "c"]

    run_async(main())
    # The fatal turn may also have held the outcome of the step before: cut off with it, that step runs again.
    counts = effects.counts()
    assert set(counts) == {"a", "b", "c"}
    assert sum(counts.values()) <= (4 if before else 3), counts


def test_two_crashes_in_a_row_around_one_event(lives: Lives) -> None:
    """CONFORMANCE E5: the life that recovers dies at the same place, before its commit."""

    async def main() -> None:
        async def act(engine: Engine) -> list[str]:
            handle = await engine.start(read_notes(1), id="run")
            await engine.send("run", Note("a"), key="a")
            return await handle.result()

        assert await lives.live_until(2, act, before=True)
        for _ in range(3):
            assert await lives.live_until(1, act, before=True)
        async with lives.engine() as engine:
            assert await asyncio.wait_for(act(engine), 10) == ["a"]

    run_async(main())
