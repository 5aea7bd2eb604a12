"""Long loops: the journal and the file stay small, and a kill at any point is soon made good."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perdure import Engine
from perdure.types import RunView
from support.lives import run_async
from support.processes import Process


async def _look(database: Path) -> RunView:
    async with Engine(database, worker=False) as engine:
        return await engine.status("run")


def _killed_and_finished(tmp_path: Path, count: int, kills: int) -> None:
    database = tmp_path / "loop.db"
    rng = random.Random(count)
    target = "compose.killed_compositions:run_long_loop"
    slowest = 0.0
    for _ in range(kills):
        with Process(target, str(database), str(count)) as process:
            kind, _, seconds = process.line(120).partition(" ")
            assert kind == "moving"
            slowest = max(slowest, float(seconds))
            until = rng.randint(1, count) * 2
            for _ in range(200_000):
                view = run_async(_look(database))
                if view.status.terminal or view.records + view.pruned >= until * 0.9:
                    break
            process.kill()
        view = run_async(_look(database))
        assert view.records < 1000
    with Process(target, str(database), str(count)) as process:
        seconds = process.line(120).partition(" ")[2]
        assert process.line(1200) == f"result {count}"
        assert process.wait(60) == 0
    view = run_async(_look(database))
    assert view.records < 1000
    assert view.records + view.pruned == 2 * count + 1
    size = sum(path.stat().st_size for path in tmp_path.glob("loop.db*"))
    print(f"{count} iterations: {view.records} records left, {size / 1e6:.1f} MB, slowest start {slowest:.3f} s")
    assert size < 50_000_000
    assert slowest < 1.0, "from opening the store until the next iteration is recorded"


def test_a_loop_keeps_its_journal_small_and_resumes_at_once(tmp_path: Path) -> None:
    """CONFORMANCE C4, at a fiftieth of the size: a step in each iteration, killed at random points."""
    _killed_and_finished(tmp_path, 2_000, 3)


@pytest.mark.long
def test_a_hundred_thousand_iterations_keep_the_journal_small(tmp_path: Path) -> None:
    """CONFORMANCE C4: under 1,000 records and 50 MB, resumed in under a second."""
    _killed_and_finished(tmp_path, 100_000, 5)
