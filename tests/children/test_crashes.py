"""Parents and children around crashes: started once, heard of once, in any order of their ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from events.kinds import Note
from perdure import ChildFailed, Engine, receive, start_child, step, workflow
from support.effects import Effects
from support.lives import Lives, run_async
from support.processes import Process


@step
async def leave_a_mark(path: str, text: str) -> str:
    Effects(Path(path)).add(text)
    return text


@workflow
async def marked_child(path: str, name: str) -> str:
    await leave_a_mark(path, f"{name} began")
    return await leave_a_mark(path, f"{name} ended")


@workflow
async def failing_child(path: str) -> None:
    await leave_a_mark(path, "failing")
    raise LookupError("failing child")


@workflow
async def family(path: str) -> list[str]:
    first = await marked_child(path, "first")
    handle = await start_child(marked_child(path, "early"))
    second, third = await asyncio.gather(marked_child(path, "second"), marked_child(path, "third"))
    own = await leave_a_mark(path, "parent")
    try:
        await failing_child(path)
    except ChildFailed as error:
        failed = str(error.__cause__)
    return [first, second, third, own, await handle, failed]


EXPECTED = ["first ended", "second ended", "third ended", "parent", "early ended", "failing child"]


@pytest.mark.parametrize("before", [False, True], ids=["after the commit", "before the commit"])
def test_a_crash_at_every_record_of_the_whole_family(lives: Lives, effects: Effects, before: bool) -> None:
    """CONFORMANCE C7: records of children count too, so either may be the one that is cut off."""

    async def main() -> None:
        limit, died = 0, True
        while died:
            limit += 1
            one = lives.fresh()
            path = f"{effects.path}-{limit}"

            async def act(engine: Engine, path: str = path) -> list[str]:
                return await (await engine.start(family(path), id="run")).result()

            died = await one.live_until(limit, act, before=before)
            async with one.engine() as engine:
                assert await act(engine) == EXPECTED, f"after a crash at record {limit}"
                runs = await engine.list()
                assert len(runs) == 6  # no child was started twice, none is missing
                assert all(run.status.terminal for run in runs)
            # The step that was cut off may have run again; nothing else did.
            counts = Effects(Path(path)).counts()
            assert sum(counts.values()) <= len(counts) + 3, counts
            assert max(counts.values()) <= 2
        assert limit > 15

    run_async(main(), patience=90)


@workflow
async def ends_before_its_child(path: str) -> str:
    await start_child(listening_child(path), id="slow", detach=True)
    return "parent done"


@workflow
async def listening_child(path: str) -> str:
    text = (await receive(Note)).text
    await leave_a_mark(path, text)
    return text


def test_a_parent_that_ends_first_leaves_its_detached_child_working(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C7: parent first, child later, with a crash at every record of both."""

    async def main() -> None:
        for before in (False, True):
            limit, died = 0, True
            while died:
                limit += 1
                one = lives.fresh()
                path = f"{effects.path}-{before}-{limit}"

                async def act(engine: Engine, path: str = path) -> str:
                    run = await engine.start(ends_before_its_child(path), id="run")
                    assert await run.result() == "parent done"
                    await engine.send("slow", Note("go"), key="go")
                    return await engine.result("slow")

                died = await one.live_until(limit, act, before=before)
                async with one.engine() as engine:
                    assert await act(engine) == "go"

    run_async(main(), patience=60)


async def work_with_children(database: str, effects_path: str) -> None:
    """In a child process: run families until somebody kills it."""
    async with Engine(database, sweep_interval=0.02) as engine:
        runs = [await engine.start(slow_family(effects_path, number), id=f"run-{number}") for number in range(5)]
        print("started", flush=True)
        for run in runs:
            await run.result()
        print("finished", flush=True)


@step
async def wait_for_the_kill(path: str, text: str) -> str:
    """Writes its line; in the process that is to be killed it never returns."""
    Effects(Path(path)).add(text)
    if text.endswith("hangs") and not Path(f"{path}.killed").exists():
        print("hanging", flush=True)
        await asyncio.Event().wait()
    return text


@workflow
async def slow_child(path: str, name: str) -> str:
    await wait_for_the_kill(path, f"{name} began")
    return await wait_for_the_kill(path, f"{name} hangs")


@workflow
async def slow_family(path: str, number: int) -> list[str]:
    return list(await asyncio.gather(*(slow_child(path, f"{number}-{child}") for child in range(3))))


def test_children_of_a_run_whose_worker_was_really_killed(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE C7 with SIGKILL: 5 parents, 15 children, all in the middle of a step; each finishes once."""
    database = str(tmp_path / "killed.db")
    with Process("children.test_crashes:work_with_children", database, str(effects.path)) as child:
        hanging = 0
        while hanging < 15:
            line = child.line()
            assert line, "the child ended by itself"
            hanging += line == "hanging"
        child.kill()
        assert child.wait() == -signal.SIGKILL
    Path(f"{effects.path}.killed").touch()

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            for number in range(5):
                expected = [f"{number}-{child} hangs" for child in range(3)]
                assert await engine.result(f"run-{number}") == expected
            assert len(await engine.list()) == 20

    run_async(main())
    counts = effects.counts()
    assert all(counts[f"{n}-{c} began"] == 1 for n in range(5) for c in range(3)), "a recorded step ran again"
    assert all(counts[f"{n}-{c} hangs"] == 2 for n in range(5) for c in range(3))
