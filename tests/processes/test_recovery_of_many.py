"""After a death everything goes on at once; a run that kills its workers is found without blaming its neighbours."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from perdure import Engine, limits
from perdure.store.model import Status
from processes.recovering import in_a_long_step, poison
from support.effects import Effects
from support.lives import run_async, until
from support.processes import Process

COUNT = 500
#: What the runs may need after the new worker is open.
SECONDS = 2.0


def test_after_one_death_all_steps_are_under_way_again_at_once(tmp_path: Path) -> None:
    """A real kill; each run was in its first step, of ten seconds, and had committed nothing since. The best of three:
    what one needs on a machine that is busy with something else says nothing."""
    took = SECONDS
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        took = _recover(str(folder / "test.db"), Effects(folder / "effects"))
        print(f"{COUNT} steps under way again {took:.2f} s after the worker was open")
        if took < SECONDS:
            break
    assert took < SECONDS


def _recover(path: str, effects: Effects) -> float:
    """The seconds after which all steps are under way again, the longer of two deaths."""
    env = {"EFFECTS": str(effects.path)}

    def begun() -> int:
        return len(effects.lines())

    async def main() -> float:
        with Process("processes.recovering:start_many", path, str(COUNT), "10", env=env) as process:
            process.expect("started")
            await until(lambda: begun() == COUNT)
        with Process("processes.recovering:work", path, env=env) as process:
            process.expect("open")
            opened = time.monotonic()
            await until(lambda: begun() == 2 * COUNT)
            took = time.monotonic() - opened
        # A second death, now of a worker that had claimed them: still no reason to suspect anybody.
        with Process("processes.recovering:work", path, env=env) as process:
            process.expect("open")
            opened = time.monotonic()
            await until(lambda: begun() == 3 * COUNT)
            return max(took, time.monotonic() - opened)

    took = run_async(main(), patience=90)
    assert set(effects.counts().values()) == {3}
    return took


@pytest.mark.parametrize("seconds", [0.2, pytest.param(10.0, marks=pytest.mark.long)])
def test_a_run_that_kills_its_workers_is_parked_alone(tmp_path: Path, effects: Effects, seconds: float) -> None:
    """CONFORMANCE W4: after `recoveries_max` deaths, with everybody else losing fewer attempts than that."""
    path, env = str(tmp_path / "test.db"), {"EFFECTS": str(effects.path)}

    async def main() -> tuple[int, list[str]]:
        async with Engine(path, worker=False) as client:
            for number in range(COUNT):
                await client.start(in_a_long_step(f"run-{number}", seconds), id=f"run-{number}")
                if number == COUNT // 2:
                    await client.start(poison(), id="poison")
            for deaths in range(limits.RECOVERIES_MAX_DEFAULT + 1):
                with Process("processes.recovering:work", path, env=env) as process:

                    async def settled(process: Process = process) -> bool:
                        dead = process._process.poll() is not None
                        return dead or (await client.status("poison")).status is Status.PARKED

                    await until(settled, patience=200)
                    if process._process.poll() is None:
                        for number in range(COUNT):
                            assert await client.result(f"run-{number}", timeout=60) == f"run-{number}"
                        parked = await client.list(status=Status.PARKED)
                        return deaths, [f"{view.id}: {view.reason}" for view in parked]
        raise AssertionError("never parked")

    deaths, parked = run_async(main(), patience=500)
    begun: Counter[str] = effects.counts()
    attempts = max(number for name, number in begun.items() if name != "poison")
    print(
        f"{deaths} deaths; attempts of the others: at most {attempts}, {begun.total() - deaths} of {COUNT} runs in all"
    )
    assert begun["poison"] == deaths == limits.RECOVERIES_MAX_DEFAULT
    assert len(parked) == 1
    assert parked[0].startswith("poison: poisoned: the worker died 10 times")
    assert attempts <= limits.RECOVERIES_MAX_DEFAULT + 1
