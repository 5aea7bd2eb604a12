"""A process killed at each point where it matters: what was acknowledged stands, nothing is doubled."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from events.kinds import Note
from perdure import Engine, RunCancelled, RunNotFound
from perdure.types import Status
from processes.dying import WALKED, long_walk, one_step, wait_for_note
from processes.failpoints import LEASE_SECONDS
from support.effects import Effects
from support.lives import run_async
from support.processes import Process

BEFORE_AND_AFTER = pytest.mark.parametrize("before", [True, False], ids=["before", "after"])

RECORDS = [
    "step_done", "step_retry", "timer_fired", "event_received", "sent", "child_started", "child_done", "continued",
    "completed",
]  # fmt: skip


def finish(database: Path | str, effects: Effects) -> None:
    """The next process goes on; a client repeats what it never got an answer for."""

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02, lease=LEASE_SECONDS) as engine:
            run = await engine.start(long_walk(str(effects.path)), id="run")
            await engine.send("run", Note("note"), key="note")
            assert await engine.result("run", timeout=20) == WALKED
            assert run.id == "run"
            assert (await engine.status("run")).generation == 2
            runs = await engine.list()
            assert {view.id: view.status for view in runs} == {
                "run": Status.COMPLETED,
                "run/marking_child": Status.COMPLETED,
            }
            received = Counter(entry.kind for entry in await engine.admin.history("run", generation=1))
            assert received["event_received"] == 2
            assert received["timer_fired"] == 1
            assert received["child_started"] == received["child_done"] == received["sent"] == 1

    run_async(main())


def check_marks(effects: Effects, *, repeated: int) -> None:
    """Steps ran once, `second` twice by design; a step that died before its record may have run once more."""
    marks = Counter(line.split(" ")[0] for line in effects.lines())
    assert set(marks) == {"first", "second", "child", "last"}
    extra = sum(marks.values()) - 5
    assert 0 <= extra <= repeated, marks
    keys = set(effects.lines())
    assert len(keys) == 4, "the idempotency key differs between attempts of one operation"


@BEFORE_AND_AFTER
@pytest.mark.parametrize("kind", RECORDS)
def test_a_worker_killed_around_a_record(tmp_path: Path, effects: Effects, kind: str, before: bool) -> None:
    """FAULTS A5, A6, A9 to A14, A17: before the commit it is decided again, after it it stands."""
    database = tmp_path / "killed.db"
    with Process("processes.dying:walk", str(database), str(effects.path), kind, str(before)) as child:
        child.expect("started")
        assert child.wait() == -signal.SIGKILL
    finish(database, effects)
    check_marks(effects, repeated=1 if before else 0)


@BEFORE_AND_AFTER
@pytest.mark.parametrize("point", ["claim", "load", "commit"])
def test_a_worker_killed_around_a_claim_or_a_load(tmp_path: Path, effects: Effects, point: str, before: bool) -> None:
    """FAULTS A3, A4, A5: nothing was appended, the next worker claims it."""
    database = tmp_path / "killed.db"

    async def create() -> None:
        async with Engine(database, worker=False) as engine:
            await engine.start(long_walk(str(effects.path)), id="run")

    run_async(create())
    with Process("processes.dying:claim_and_walk", str(database), point, str(before)) as child:
        assert child.wait() == -signal.SIGKILL
    assert len(effects.lines()) == 0

    async def look() -> None:
        async with Engine(database, worker=False) as engine:
            assert (await engine.status("run")).records == 1

    run_async(look())
    finish(database, effects)
    check_marks(effects, repeated=0)


@pytest.mark.parametrize("where", ["at its start", "at its end"])
def test_a_worker_killed_inside_a_step(tmp_path: Path, effects: Effects, where: str) -> None:
    """FAULTS A7, A8, A9: the step runs again, with the same idempotency key, and is recorded once."""
    database = tmp_path / "killed.db"
    with Process("processes.dying:run_step", str(database), str(effects.path), where) as child:
        assert child.wait() == -signal.SIGKILL

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            run = await engine.start(one_step(str(effects.path), where), id="run")
            assert await run.result(timeout=20) == where

    run_async(main())
    assert len(effects.lines()) == (1 if where == "at its start" else 2)
    assert len(set(effects.lines())) == 1


@BEFORE_AND_AFTER
def test_a_client_killed_around_a_start(tmp_path: Path, before: bool) -> None:
    """FAULTS A1, A2: before the commit there is no run, after it the repeated start returns the same one."""
    database = tmp_path / "killed.db"
    with Process("processes.dying:call", str(database), "start", str(before)) as child:
        assert child.wait() == -signal.SIGKILL
        assert child.line() == ""

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            if before:
                with pytest.raises(RunNotFound):
                    await engine.status("run")
            else:
                assert (await engine.status("run")).records >= 1
            run = await engine.start(wait_for_note(), id="run")
            await run.send(Note("go"))
            assert await run.result(timeout=20) == "go"
            assert len(await engine.list()) == 1

    run_async(main())


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_worker_killed_around_a_start(tmp_path: Path, effects: Effects, before: bool) -> None:
    """FAULTS A1, A2, on the fast path: the first turn is stored together with the run."""
    database = tmp_path / "killed.db"
    with Process("processes.dying:walk", str(database), str(effects.path), "create_all", str(before)) as child:
        assert child.wait() == -signal.SIGKILL
        assert child.line() == ""
    finish(database, effects)
    check_marks(effects, repeated=0)


@BEFORE_AND_AFTER
def test_a_client_killed_around_a_send(tmp_path: Path, before: bool) -> None:
    """FAULTS A15: before the commit nothing arrived, after it a repeat with the same key is a no-op."""
    database = tmp_path / "killed.db"

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            run = await engine.start(wait_for_note(), id="run")
            with Process("processes.dying:call", str(database), "send", str(before)) as child:
                assert child.wait() == -signal.SIGKILL
                assert child.line() == ""
            if before:
                assert (await run.status()).status is Status.WAITING
                await run.send(Note("repeated"), key="note")
                assert await run.result(timeout=20) == "repeated"
            else:
                await run.send(Note("repeated"), key="note")
                assert await run.result(timeout=20) == "note"

    run_async(main())


@BEFORE_AND_AFTER
def test_a_client_killed_around_a_cancel(tmp_path: Path, before: bool) -> None:
    """FAULTS A16: the cancel is either absent or carried out; never half."""
    database = tmp_path / "killed.db"

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            run = await engine.start(wait_for_note(), id="run")
            with Process("processes.dying:call", str(database), "cancel", str(before)) as child:
                assert child.wait() == -signal.SIGKILL
            if before:
                assert not (await run.status()).cancel_requested
                await run.send(Note("unharmed"))
                assert await run.result(timeout=20) == "unharmed"
            else:
                with pytest.raises(RunCancelled, match="asked by a dying client"):
                    await run.result(timeout=20)

    run_async(main())
