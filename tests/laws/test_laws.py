"""One test for each law of docs/reference/laws.md. Each tries to break its law; the folders named test it in depth."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel.kernel_kit import Drive, steps_asked
from perdure import Engine, RunCancelled, event, receive, send, sleep, start_child, step, workflow
from perdure.kernel.outcomes import Complete
from support.effects import Effects
from support.faulty_stores import DisturbedStore, Hold, lose_answer, sent_first
from support.lives import Lives, run_async, until


@event
@dataclass
class Tick:
    number: int


_paths: dict[str, Effects] = {}


@step
async def counted(number: int) -> int:
    _paths["effects"].add(f"counted {number}")
    return number


@step
async def nothing(number: int) -> None:
    return None


@workflow
async def ticking(count: int) -> int:
    total = 0
    for _ in range(count):
        tick = await receive(Tick)
        total += await counted(tick.number)
    return total


@workflow
async def listening() -> int:
    return (await receive(Tick)).number


@workflow
async def busy_turn(target: str) -> list[Any]:
    async def first() -> Any:
        return await counted(1)

    child = start_child(listening(), id="child")
    handle, _, one = await asyncio.gather(child, send(target, Tick(5)), first())
    await send("child", Tick(one))
    return [await handle]


@workflow
async def law_two_steps() -> int:
    return await counted(1) + await counted(2)


@workflow
async def racing() -> str:
    tasks = [asyncio.create_task(counted(number)) for number in (1, 2)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return f"{done.pop().result()} won"


@pytest.fixture(autouse=True)
def _count_here(effects: Effects) -> None:
    _paths["effects"] = effects


def test_law_1_the_journal_is_the_truth(lives: Lives, effects: Effects) -> None:
    """Memory is thrown away after every single record: the run is rebuilt and goes on as if nothing had been."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(ticking(3), id="run")
        for number in range(3):
            async with lives.engine(worker=False) as client:
                await client.send("run", Tick(number))
            engine = await lives.engine().open()
            await until(lambda number=number: f"counted {number}" in effects.lines())

            async def recorded(engine: Engine = engine, number: int = number) -> bool:
                return (await engine.status("run")).records >= 3 + 2 * number

            await until(recorded)
            await lives.crash(engine)
        async with lives.engine() as engine:
            assert await engine.result("run") == 3

    run_async(main())
    assert effects.counts() == {"counted 0": 1, "counted 1": 1, "counted 2": 1}


def test_law_2_commit_before_effect(lives: Lives, effects: Effects) -> None:
    """While the commit of a result is held back, the next step does not start and nobody hears of the result."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        hold = Hold()
        store.before("commit", hold)
        async with Engine(store, sweep_interval=0.02) as engine:
            run = await engine.start(law_two_steps(), id="run")
            await hold.reached.wait()
            for _ in range(100):  # the loop has every chance to do it wrong
                await asyncio.sleep(0)
            assert effects.lines() == ["counted 1"]
            with pytest.raises(TimeoutError):
                await run.result(timeout=0)
            hold.release.set()
            assert await run.result() == 3
        assert effects.lines() == ["counted 1", "counted 2"]

    run_async(main())


def test_law_3_one_commit_per_turn(lives: Lives) -> None:
    """A turn that starts a child, sends an event and asks for a step is one commit, with everything in it."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        turns = store.note_turns()
        async with Engine(store, sweep_interval=0.02) as engine:
            await engine.start(listening(), id="target")
            turns.clear()
            run = await engine.start(busy_turn("target"), id="run")
            first = turns[0]
            assert [entry.row.kind for entry in first.entries] == ["child_started", "sent"]
            assert all(entry.effect is not None for entry in first.entries)
            assert first.frontier is not None
            assert await run.result() == [1]
            assert await engine.result("target") == 5
            key = first.key or turns[-1].key
            sequence = [t.expected_seq for t in turns if t.key in (0, key) and t.entries]
            assert len(sequence) == len(set(sequence)), "a part of a turn was written by itself"

    run_async(main())


def test_law_4_delivery_order_is_journal_order() -> None:
    """The same two results in the other order: the other one wins, live and on replay."""
    for first, second, winner in (("counted", "counted#2", "1 won"), ("counted#2", "counted", "2 won")):
        with Drive(racing()) as drive:
            drive.finish(first, 1 if first == "counted" else 2)
            assert drive.run.pending.get(second) is None, "the loser is still waited for"
            outcome = drive.run.outcome
            assert isinstance(outcome, Complete)
            assert winner in bytes(outcome.value).decode()
            assert drive.rebuilt()[0].outcome == outcome


def test_law_5_the_kernel_is_pure() -> None:
    """Two runs of the same records in the same process, at other times, are the same (see test_kernel_is_pure.py)."""
    from kernel.programs import explore

    assert explore(5) == explore(5)


def test_law_6_writes_are_safe_to_repeat(lives: Lives, effects: Effects) -> None:
    """Every commit is durable but its answer is lost: nothing is lost, nothing is done twice."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        store.after("commit", lose_answer, sent_first())
        async with Engine(store, sweep_interval=0.02) as engine:
            run = await engine.start(law_two_steps(), id="run")
            assert await run.result() == 3
            kinds = [entry.kind for entry in await engine.admin.history("run")]
        assert kinds == ["started", "step_done", "step_done", "completed"]

    run_async(main())
    assert effects.lines() == ["counted 1", "counted 2"]


def test_law_7_terminal_is_absorbing(lives: Lives) -> None:
    """A run that was terminated while its last commit was on the way stays cancelled; all readers agree."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        hold = Hold()
        async with Engine(store, sweep_interval=0.02) as engine:
            run = await engine.start(listening(), id="run")
            store.before("commit", hold)
            await run.send(Tick(1))
            await hold.reached.wait()
            assert await engine.admin.terminate("run", "enough")
            hold.release.set()
            with pytest.raises(RunCancelled, match="enough"):
                await run.result()
        async with lives.engine() as engine:
            assert (await engine.status("run")).status == "cancelled"
            assert [entry.kind for entry in await engine.admin.history("run")][-1] == "cancelled"
            assert not await engine.cancel("run")

    run_async(main())


def test_law_8_park_never_lose(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that changed under a run parks it with a reason; the others go on; restored code finishes it."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(changing(), id="run")
            await engine.start(listening(), id="other")

            async def receiving() -> bool:
                return bool((await engine.status("run")).waiting)

            await until(receiving)
            await until(lambda: _records(engine, "run", 2))
        _code["renamed"] = True
        async with lives.engine() as engine:
            await engine.send("run", Tick(1))
            await engine.send("other", Tick(2))

            async def parked() -> bool:
                return (await engine.status("run")).status == "parked"

            await until(parked)
            assert "Diverged" in str((await engine.status("run")).reason)
            assert await engine.result("other") == 2
        _code["renamed"] = False
        async with lives.engine() as engine:
            assert await engine.admin.resume("run")
            assert await engine.result("run") == 1

    _code["renamed"] = False
    run_async(main())


_code = {"renamed": False}


@workflow
async def changing() -> int:
    await (counted(0) if not _code["renamed"] else nothing(0))
    return (await receive(Tick)).number


async def _records(engine: Engine, run_id: str, count: int) -> bool:
    return (await engine.status(run_id)).records >= count


@step
async def shapes() -> Any:
    return {"tuple": (1, 2), "none": None, "set": {1}, 3: b"x"}


@step(max_attempts=1)
async def breaks() -> None:
    raise LookupError("gone", {"key": (1,)})


@workflow
async def sees_values() -> list[str]:
    value = await shapes()
    seen = [repr(value), repr(await nothing(1))]
    try:
        await breaks()
    except LookupError as error:
        seen.append(repr(error))
    await sleep(0.001)
    return seen


def test_law_9_live_and_replay_see_the_same(lives: Lives) -> None:
    """Types, None and exceptions look the same the first time and after a crash at every record."""
    result = run_async(lives.crash_at_every_record(sees_values))
    assert result == [
        "{'tuple': (1, 2), 'none': None, 'set': {1}, 3: b'x'}",
        "None",
        "LookupError('gone', {'key': (1,)})",
    ]


@workflow
async def guards_a_wait() -> list[str]:
    seen: list[str] = []
    try:
        await receive(Tick)
    except BaseException as error:
        seen.append(f"caught {type(error).__name__}")
        raise
    finally:
        seen.append("finally")
    return seen


def test_law_10_suspension_is_not_an_exception() -> None:
    """A wait raises nothing in the code that waits, not even for `except BaseException`; `finally` runs once."""
    with Drive(guards_a_wait()) as drive:
        assert drive.pending() == ["receive receive"]
        assert steps_asked(drive.commands) == []
        drive.receive("receive", Tick(1))
        outcome = drive.run.outcome
        assert isinstance(outcome, Complete)
        assert bytes(outcome.value) == b'["finally"]'


def test_every_law_has_its_test() -> None:
    """One test per law."""
    text = Path(__file__).read_text()
    assert all(f"def test_law_{number}_" in text for number in range(1, 11))
