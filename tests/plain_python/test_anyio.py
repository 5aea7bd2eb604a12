"""Task groups, cancel scopes and `move_on_after` of anyio work in workflows, over crashes, eviction and drains."""

from __future__ import annotations

import pytest

from events.kinds import Note, Stop
from perdure import Engine
from perdure.testing import crash_everywhere
from plain_python.scopes import WORKFLOWS, waits_in_a_group
from support.lives import Lives, run_async, until

SEEN = ["begin 0", "begin 1", "a", "end 100", "end 101"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_crash_after_any_commit_changes_nothing(name: str) -> None:
    """FAULTS D12: the same result and effects in every life, and no turn that never ends."""
    invocation, expected = WORKFLOWS[name]
    assert crash_everywhere(invocation, hash_seeds=(1,)).result == expected


async def _waits(engine: Engine, *ids: str) -> None:
    async def all_wait() -> bool:
        return len(await engine.list(status="waiting")) == len(ids)

    await until(all_wait)


def test_a_group_survives_eviction(lives: Lives) -> None:
    """One place in memory, three runs in their groups: each leaves memory and comes back for its events."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            ids = [f"run-{number}" for number in range(3)]
            runs = [await engine.start(waits_in_a_group(), id=run_id) for run_id in ids]
            await _waits(engine, *ids)
            for run in runs:
                await run.send(Note("a"))
            await _waits(engine, *ids)
            for run in runs:
                await run.send(Stop())
            for run in runs:
                assert sorted(await run.result(timeout=20)) == sorted(SEEN)

    run_async(main())


def test_a_group_survives_a_drain(lives: Lives) -> None:
    """The engine is closed while the group waits; the next one goes on with it."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(waits_in_a_group(), id="run")
            await _waits(engine, "run")
            await run.send(Note("a"))
            await _waits(engine, "run")
        async with lives.engine() as engine:
            await _waits(engine, "run")
            await engine.send("run", Stop())
            assert sorted(await engine.result("run", timeout=20)) == sorted(SEEN)

    run_async(main())
