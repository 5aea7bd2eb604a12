"""After a real kill only the tail runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import Engine
from perdure.kernel.journal import Row
from perdure.store.sqlite import SQLiteStore
from replay.killed import killed_gather, killed_group
from support.effects import Effects
from support.lives import run_async
from support.processes import Process


def test_after_a_kill_only_the_tail_runs(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE R2: SIGKILL inside the last step; what was finished after the last wait is not repeated."""
    database = str(tmp_path / "test.db")
    with Process("replay.killed:first_life", database, str(effects.path)) as process:
        process.expect("in the last step")
        process.kill()
    finished = {"one": 1, "two": 1, "three": 1, "four": 1, "five": 1}
    assert effects.counts() == {**finished, "last": 1}
    with Process("replay.killed:second_life", database) as process:
        process.expect("one two three four five last")
        assert process.wait() == 0
    assert effects.counts() == {**finished, "last": 2}


async def _journal(database: Path) -> list[Row]:
    store = SQLiteStore(database)
    await store.open()
    try:
        run = await store.get("run")
        return list(await store.journal(run.key, run.generation)) if run is not None else []
    finally:
        await store.close()


async def _finish(database: Path, effects: Effects, name: str) -> list[int]:
    invocation = {"killed_gather": killed_gather, "killed_group": killed_group}[name](str(effects.path))
    async with Engine(database, sweep_interval=0.02) as engine:
        return await (await engine.start(invocation, id="run")).result()


@pytest.mark.parametrize("name", ["killed_gather", "killed_group"])
def test_concurrent_coroutines_survive_a_kill_after_every_record(tmp_path: Path, name: str) -> None:
    """CONFORMANCE P4: killed as the n-th record became durable, for every n; recorded steps ran exactly once."""
    limit, records = 0, 1
    while limit < records:
        limit += 1
        directory = tmp_path / str(limit)
        directory.mkdir()
        effects = Effects(directory / "effects.txt")
        database = directory / "test.db"
        with Process("replay.killed:killed_after", str(database), str(effects.path), name, str(limit)) as process:
            assert process.line() == "", "it was to be killed before it could finish"
            assert process.wait() == -9
        rows = run_async(_journal(database))
        assert len(rows) >= limit
        recorded = {row.location for row in rows if row.kind == "step_done"}
        ran_before = effects.counts()
        assert run_async(_finish(database, effects, name)) == [110, 111, 112]
        final = run_async(_journal(database))
        records = len(final)
        assert [row.kind for row in final].count("step_done") == 6
        ran = effects.counts()
        assert len(ran) == 6
        assert sum(ran.values()) == 6 + sum(ran_before.values()) - len(recorded), "a recorded step ran again"
        assert max(ran.values()) <= 2
