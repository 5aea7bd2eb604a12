"""A run whose step takes its process down each time is parked; everything else goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, current_step, event, receive, sleep, step, workflow
from perdure.errors import RunParked
from perdure.store.model import Status
from perdure.types import RunView
from steps.crash_children import beside_poison, poisonous
from support.effects import Effects
from support.lives import Lives, run_async, until
from support.processes import Process


def test_step_that_kills_its_process_is_parked_and_others_finish(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE S2 and W4: real kills, recoveries_max=2; the run beside it finishes; nothing is lost."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}

    async def one_life(engine: Engine, process: Process) -> bool:
        """Until the worker has killed itself (False), or survives because the run is parked (True)."""

        def dead() -> bool:
            return process._process.poll() is not None

        async def settled() -> bool:
            return dead() or (await engine.status("poison")).status is Status.PARKED

        await until(settled)
        if dead():
            return False

        async def finished() -> bool:
            return (await engine.status("beside")).status is Status.COMPLETED

        await until(finished)
        return True

    async def main() -> tuple[int, RunView]:
        async with Engine(path, worker=False) as engine:
            await engine.start(poisonous(), id="poison")
            await engine.start(beside_poison(), id="beside")
            for deaths in range(6):
                with Process("steps.crash_children:work", path, env=env) as process:
                    if await one_life(engine, process):
                        return deaths, await engine.status("poison")
        raise AssertionError("never parked")

    deaths, view = run_async(main())
    assert view.status is Status.PARKED
    assert view.reason is not None
    assert "poisoned" in view.reason
    assert "perdure resume poison" in view.reason
    assert effects.counts()["poison 1"] == deaths == 2, "recoveries_max is how often it may take a worker down"
    assert f"died {deaths} times" in view.reason
    assert {f"harmless {n}" for n in range(3)} <= set(effects.lines())


ran: list[str] = []


@step
async def never_returns() -> str:
    ran.append(f"attempt {current_step().attempt}")
    await asyncio.Event().wait()
    return ""


@workflow
async def dies_in_a_step() -> str:
    return await never_returns()


@step
async def ordinary() -> str:
    return "fine"


@workflow
async def lives_beside() -> str:
    return await ordinary()


def test_crashes_without_progress_park_the_run_and_resume_gives_it_another_chance(lives: Lives) -> None:
    """CONFORMANCE S2 and W4, in process: the attempt that died is not recorded but counts towards the limit."""
    ran.clear()

    async def crash_until_parked() -> int:
        for deaths in range(6):
            async with lives.engine(recoveries_max=2) as engine:
                await engine.start(dies_in_a_step(), id="run")

                async def moved(engine: Engine = engine, deaths: int = deaths) -> bool:
                    return len(ran) > deaths or (await engine.status("run")).status is Status.PARKED

                await until(moved)
                if (await engine.status("run")).status is Status.PARKED:
                    return deaths
                await lives.crash(engine)
        raise AssertionError("never parked")

    async def main() -> None:
        deaths = await crash_until_parked()
        # The start itself is the first life here; it is claimed twice more.
        assert deaths == 3
        async with lives.engine(recoveries_max=2) as engine:
            with pytest.raises(RunParked, match="poisoned"):
                await engine.result("run")
            assert await (await engine.start(lives_beside())).result() == "fine"
            assert await engine.admin.resume("run")
            await until(lambda: len(ran) == deaths + 1)
            assert (await engine.status("run")).records == 1, "nothing of it was lost or added"
            assert await engine.admin.terminate("run")

    run_async(main())
    assert set(ran) == {"attempt 1"}


@workflow
async def asleep_over_deaths() -> str:
    await sleep(0.5)
    return "awake"


def test_waiting_run_is_never_poisoned_by_the_deaths_of_its_workers(lives: Lives) -> None:
    """Crashes while a run only waits say nothing about it, however many there are."""

    async def main() -> str:
        for _ in range(6):
            async with lives.engine(recoveries_max=2) as engine:
                await engine.start(asleep_over_deaths(), id="run")
                await lives.crash(engine)
        async with lives.engine(recoveries_max=2) as engine:
            return str(await engine.result("run", timeout=10))

    assert run_async(main()) == "awake"


@event
@dataclass
class Wanted:
    number: int


@event
@dataclass
class Other:
    number: int


@workflow
async def waits_for_one_of_them() -> int:
    return (await receive(Wanted, match=lambda found: found.number > 1)).number


@pytest.mark.parametrize("unread", [Other(1), Wanted(1)], ids=["not asked for", "refused by its match"])
def test_waiting_run_with_an_unread_event_is_never_poisoned(lives: Lives, unread: Any) -> None:
    """It is loaded after each death, because there is something to read; that it then rests is not held against it."""

    async def main() -> int:
        async with lives.engine(worker=False) as client:
            await client.start(waits_for_one_of_them(), id="run")
            await client.send("run", unread)
        for _ in range(6):
            async with lives.engine(recoveries_max=2, sweep_interval=0.01) as engine:

                async def rests(engine: Engine = engine) -> bool:
                    row = await engine.store.get("run")
                    return row is not None and row.owner is not None and row.recoveries == 0

                await until(rests)
                await lives.crash(engine)
        async with lives.engine(recoveries_max=2) as engine:
            await engine.send("run", Wanted(7))
            return int(await engine.result("run", timeout=10))

    assert run_async(main()) == 7
