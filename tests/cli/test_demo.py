"""`perdure demo`: the real thing once, and what its checks are worth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.admin.views import HistoryEntry
from perdure.cli.demo import Teller
from perdure.cli.demo_evidence import Evidence, Execution, Snapshot, Trace, checks, executions_of
from perdure.cli.demo_timeline import timeline


def test_the_demo_survives_its_own_kill(tmp_path: Path) -> None:
    """A fleet, a SIGKILL in the middle, another worker, nothing lost; in 80 columns, without a TTY."""
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "demo"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    for part in ("kill -9 worker 1", "worker 2 has taken over", "order-12", "ran again", "integrity_check: ok"):
        assert part in done.stdout
    assert "FAILED" not in done.stdout
    assert list(tmp_path.iterdir()) == []  # it cleans up behind itself


def test_the_demo_speaks_json(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "demo", "--json", "--orders", "8"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    report = [json.loads(line) for line in done.stdout.splitlines()][-1]
    assert (done.returncode, report["event"], report["ok"]) == (0, "report", True)
    assert report["at_kill"]["in_flight"]


# -- the checks themselves, on made-up evidence ------------------------------------------------------------------


def entry(seq: int, kind: str, location: str = "") -> HistoryEntry:
    return HistoryEntry(seq, datetime.fromtimestamp(100 + seq, UTC), kind, location, {})


STEPS = ("charge", "reserve", "ship", "notify")
JOURNAL = [
    entry(1, "started"),
    *(entry(n, "step_done", step) for n, step in enumerate(STEPS, 2)),
    entry(9, "completed"),
]


def evidence(executions: Sequence[Execution], integrity: str = "ok", result: str = "right") -> Evidence:
    return Evidence(
        expected={"order-01": "right"},
        results={"order-01": result},
        histories={"order-01": JOURNAL},
        executions=executions,
        at_kill=Snapshot({"order-01": "in a step"}, frozenset({("order-01", "charge")})),
        pids=(1, 2),
        first_ready=100.0,
        killed=103.0,
        second_began=103.1,
        second_ready=103.5,
        taken_over=103.6,
        sent_meanwhile=[],
        finished=110.0,
        drained_with=0,
        integrity=integrity,
    )


def ran(step: str, pid: int, begin: float = 101.0, end: float | None = 102.0) -> Execution:
    return Execution(("order-01", step), pid, begin, end)


GOOD = [ran("charge", 1), ran("reserve", 1, end=None), *(ran(step, 2, 104.0, 105.0) for step in STEPS[1:])]


def failed(found: Evidence) -> list[str]:
    return [check.name for check in checks(found) if not check.ok]


def test_honest_evidence_passes() -> None:
    assert failed(evidence(GOOD)) == []


def test_a_recorded_step_that_ran_again_is_caught() -> None:
    """CONFORMANCE R1: the claim that matters most must be able to fail."""
    assert "no step recorded before the kill ran again" in failed(evidence([*GOOD, ran("charge", 2)]))


def test_a_step_that_ran_twice_for_no_reason_is_caught() -> None:
    assert failed(evidence([*GOOD, ran("ship", 2)])) == ["only interrupted steps ran a second time"]


def test_a_wrong_result_and_a_damaged_database_are_caught() -> None:
    assert failed(evidence(GOOD, result="wrong")) == ["every order has the right result"]
    assert failed(evidence(GOOD, integrity="row 3 missing")) == ["the database is sound"]


def test_a_kill_that_interrupted_nothing_is_no_demonstration() -> None:
    whole = [ran("charge", 1), *(ran(step, 2) for step in STEPS[1:])]
    assert failed(evidence(whole)) == ["the kill came in the middle"]


def test_begins_without_an_end_are_interrupted() -> None:
    traces = [Trace("begin", "r", "s", 1, 1.0), Trace("begin", "r", "s", 2, 2.0), Trace("done", "r", "s", 2, 3.0)]
    assert executions_of(traces) == [Execution(("r", "s"), 1, 1.0, None), Execution(("r", "s"), 2, 2.0, 3.0)]


def test_the_timeline_fits_80_columns_and_shows_the_cut() -> None:
    lines = [line.plain for line in timeline(evidence(GOOD))]
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if line.startswith("order-01"))
    assert "r" in row
    assert "!" in row


def test_what_happens_is_told_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A busy moment has more to tell than fits into a line."""
    states = {"done": 2, "in a step": 3, "between steps": 1, "asleep": 4, "waiting for Approved": 2}
    Teller(as_json=False).tell("kill -9 worker 1", found=states)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert all(f"{count} {state}" in text for state, count in states.items())
