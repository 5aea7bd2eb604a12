"""Compositions, killed for real as each record in turn became durable."""

from __future__ import annotations

from pathlib import Path

import pytest

from compose.killed_compositions import PROGRAMS
from perdure import Engine
from perdure.types import RunView
from support.effects import Effects
from support.lives import run_async
from support.processes import Process


async def _finish(database: Path, effects: Effects, name: str) -> tuple[list[object], RunView]:
    async with Engine(database, sweep_interval=0.02) as engine:
        run = await engine.start(PROGRAMS[name][0](str(effects.path)), id="run")
        return await run.result(), await run.status()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kill_after_every_record_changes_nothing(tmp_path: Path, name: str) -> None:
    """CONFORMANCE C1 to C5: SIGKILL as the n-th record became durable, for every n.

    The result is the same, every effect happens, and at most the step that was under way happens twice.
    """
    expected = Effects(tmp_path / "calm.txt")
    (tmp_path / "calm").mkdir()
    result, view = run_async(_finish(tmp_path / "calm" / "test.db", expected, name))
    assert result == PROGRAMS[name][1]
    for limit in range(1, view.records + view.pruned):
        directory = tmp_path / str(limit)
        directory.mkdir()
        effects = Effects(directory / "effects.txt")
        database = directory / "test.db"
        target = "compose.killed_compositions:killed_after"
        with Process(target, str(database), str(effects.path), name, str(limit)) as process:
            assert process.line() == "", "it was to be killed before it could finish"
            assert process.wait() == -9
        assert run_async(_finish(database, effects, name))[0] == result, f"killed at record {limit}"
        ran = effects.counts()
        assert set(ran) == set(expected.lines()), f"killed at record {limit}"
        assert max(ran.values()) <= 2
        assert sum(ran.values()) <= len(expected.lines()) + 1, f"a recorded step ran again, killed at record {limit}"
        if name == "saga":
            undone = [line for line in dict.fromkeys(effects.lines()) if line.startswith("undo")]
            assert undone == [
                "undo hotel", "undo leg 2", "undo leg 1", "undo leg 0", "undo seat", "undo flight", "undo second",
            ]  # fmt: skip
