"""A real process is killed at every failpoint of the engine: nothing recorded is lost or done twice."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import apsw
import pytest

from events.kinds import Note
from perdure import Engine, RunCancelled
from perdure.errors import BadArgument
from perdure.testing.failpoints import FAILPOINTS, MOMENTS, armed
from processes.dying import long_walk, wait_for_note
from processes.test_kill_points import check_marks, finish
from support.effects import Effects
from support.faults import catalogue
from support.lives import run_async
from support.processes import Process

#: Points that the walk of one run passes, and how often before the process dies.
WALK = {
    "start.decided": (1,),
    "start.stored": (1,),
    "turn.decided": (1, 4, 7),
    "turn.in_store": (3, 5, 8),
    "turn.stored": (1, 4, 7),
    "turn.over": (1, 4, 7),
    "step.admitted": (1, 3),
    "step.begins": (1, 3),
    "step.returned": (1, 2),
    "step.over": (1, 2),
    "result.returned": (1,),
    "result.taken": (1,),
    "timer.due": (1,),
    "child.stored": (1,),
    "run.ended": (1, 2),
    "generation.stored": (1,),
}
TAKE_OVER = {"claim.stored": (1,), "replay.begins": (1,), "replay.over": (1,)}
ASKED = {"send.asked": "send", "send.stored": "send", "cancel.asked": "cancel", "cancel.stored": "cancel"}
PRUNED = ("prune.begins", "prune.uncommitted")
MIGRATED = {"migration.begins": 1, "migration.locked": 2, "migration.over": 1}


def killed(target: str, *args: str) -> None:
    with Process(f"processes.failpoints:{target}", *args) as child:
        assert child.wait() == -signal.SIGKILL, f"{args} was never reached: {child.line()}"


def test_every_failpoint_is_tried_and_stands_for_a_fault() -> None:
    """And every row of the first group of faults that is about one process has a place where it happens."""
    assert set(FAILPOINTS) == {*WALK, *TAKE_OVER, *ASKED, *PRUNED, *MIGRATED}
    rows = {row.id for row in catalogue() if row.id.startswith("A")}
    named = {fault for point in FAILPOINTS.values() for fault in point.faults}
    # FAULTS A8 is the user's own code, FAULTS A21 any place at all.
    assert named == rows - {"A8", "A21"}


def test_nothing_is_left_behind_in_the_engine() -> None:
    """Zero cost when off: the functions are the engine's own before and after."""
    for name, point in FAILPOINTS.items():
        owner, function = MOMENTS[point.moment]
        own = getattr(owner, function)
        with armed(name, lambda: None):
            assert getattr(owner, function) is not own
        assert getattr(owner, function) is own
    with pytest.raises(BadArgument, match="there is no failpoint"), armed("no such", lambda: None):
        pass


@pytest.mark.parametrize(("point", "hit"), [(point, hit) for point, hits in WALK.items() for hit in hits])
def test_a_worker_killed_at_a_failpoint(tmp_path: Path, effects: Effects, point: str, hit: int) -> None:
    """FAULTS A1, A2, A5 to A7, A9 to A14, A17: the next process goes on; only a step without a record runs again."""
    database = tmp_path / "killed.db"
    killed("walk", str(database), str(effects.path), point, str(hit))
    finish(database, effects)
    check_marks(effects, repeated=1)


@pytest.mark.parametrize("point", TAKE_OVER)
def test_a_worker_killed_while_it_takes_over(tmp_path: Path, effects: Effects, point: str) -> None:
    """FAULTS A3, A4: a run with a journal behind it; nothing is appended by the worker that dies."""
    database = tmp_path / "killed.db"
    killed("walk", str(database), str(effects.path), "turn.stored", "3")

    def records() -> list[tuple[object, ...]]:
        connection = apsw.Connection(str(database))
        rows = connection.execute("SELECT run_key, seq, kind, location FROM journal ORDER BY 1, 2").fetchall()
        connection.close()
        return rows

    before = records()
    assert len(before) > 2
    killed("take_over", str(database), point, "1")
    assert records() == before
    finish(database, effects)
    check_marks(effects, repeated=1)


@pytest.mark.parametrize("point", ASKED)
def test_a_client_killed_around_what_it_asks(tmp_path: Path, point: str) -> None:
    """FAULTS A15, A16: not asked, or done; a repeated send with its key is received once."""
    database = tmp_path / "killed.db"

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            run = await engine.start(wait_for_note(), id="run")
            killed("ask", str(database), ASKED[point], point)
            if point == "cancel.stored":
                with pytest.raises(RunCancelled, match="asked by a dying client"):
                    await run.result(timeout=20)
                return
            await run.send(Note("repeated"), key="note")
            assert await run.result(timeout=20) == ("note" if point == "send.stored" else "repeated")

    run_async(main())


@pytest.mark.parametrize("point", PRUNED)
def test_a_prune_killed_in_its_transaction(tmp_path: Path, effects: Effects, point: str) -> None:
    """FAULTS A19: nothing of it happened; the next prune removes what is to go, and open runs stay."""
    database = tmp_path / "killed.db"

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            for number in range(3):
                run = await engine.start(wait_for_note(), id=f"ended-{number}")
                await run.send(Note("go"))
                await run.result(timeout=20)
            await engine.start(wait_for_note(), id="run")
            killed("ask", str(database), "prune", point)
            assert len(await engine.list()) == 4
            assert [len(await engine.admin.history(f"ended-{number}")) for number in range(3)] == [3, 3, 3]
            assert await engine.admin.prune(0) == 3
            assert [view.id for view in await engine.list()] == ["run"]

    run_async(main())


@pytest.mark.parametrize("point", MIGRATED)
def test_a_process_killed_while_it_migrates(tmp_path: Path, effects: Effects, point: str) -> None:
    """FAULTS A18, A20: also while it holds the lock; the next process does not wait for it."""
    database = tmp_path / "killed.db"
    killed("open_store", str(database), point, str(MIGRATED[point]))

    async def main() -> None:
        began = time.monotonic()
        async with Engine(database, sweep_interval=0.02) as engine:
            assert time.monotonic() - began < 5
            await engine.start(long_walk(str(effects.path)), id="run")

    run_async(main())
    finish(database, effects)
