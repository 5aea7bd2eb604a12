"""What the checks of `perdure demo --fleet` are worth, on made-up evidence; and what it says without a server.

The demo itself runs in `tests/fleet/test_demo.py`, which needs PostgreSQL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from perdure.admin.views import HistoryEntry
from perdure.cli.demo_evidence import Execution
from perdure.cli.demo_fleet_evidence import Fall, FleetEvidence, fleet_checks
from perdure.cli.demo_fleet_report import report_json, timeline
from perdure.cli.demo_owners import Holding, Owners
from perdure.cli.main import cli
from perdure.store.memory import MemoryStore
from perdure.store.model import WorkerInfo
from perdure.testing.store.kit import new_run
from support.lives import run_async

STEPS = ("charge", "reserve", "ship", "notify")
PIDS = {"a": 11, "b": 12, "c": 13}


def entry(seq: int, kind: str, location: str = "") -> HistoryEntry:
    return HistoryEntry(seq, datetime.fromtimestamp(100 + seq, UTC), kind, location, {})


def journal(recorded: int = 4, ended: bool = True) -> list[HistoryEntry]:
    steps = [entry(n, "step_done", step) for n, step in enumerate(STEPS[:recorded], 2)]
    return [entry(1, "started"), *steps, *([entry(2 + recorded, "completed")] if ended else [])]


def ran(run: str, step: str, owner: str, begin: float, end: float | None) -> Execution:
    return Execution((run, step), PIDS[owner], begin, end)


def fall(number: int, owner: str, signal: Literal["SIGKILL", "SIGSTOP"], run: str, at: float) -> Fall:
    """In the middle of `reserve`."""
    return Fall(
        number=number, pid=PIDS[owner], signal=signal, at=at, seen=at + 0.01, ids=frozenset({owner}),
        runs=frozenset({run}), busy=frozenset({run}), states={run: "in a step"}, recorded=frozenset({(run, "charge")}),
    )  # fmt: skip


#: Order 1 was worker 1's, which was killed; order 2 worker 2's, which was stopped; worker 3 took both over.
GOOD = [
    *(ran("order-01", step, "a", 101, None if step == "reserve" else 102) for step in STEPS[:2]),
    *(ran("order-01", step, "c", 106, 107) for step in STEPS[1:]),
    *(ran("order-02", step, "b", 105, 120.1 if step == "reserve" else 106) for step in STEPS[:2]),
    *(ran("order-02", step, "c", 114, 115) for step in STEPS[1:]),
]
HOLDINGS = [
    Holding("order-01", "a", 100, 105),
    Holding("order-01", "c", 105, 108, True),
    Holding("order-02", "b", 100, 114),
    Holding("order-02", "c", 114, 116, True),
]


def evidence(**changes: Any) -> FleetEvidence:
    facts: dict[str, Any] = {
        "expected": {"order-01": "right", "order-02": "right"},
        "results": {"order-01": "right", "order-02": "right"},
        "histories": {"order-01": journal(), "order-02": journal()},
        "executions": GOOD,
        "holdings": HOLDINGS,
        "numbers": {"a": 1, "b": 2, "c": 3, "b2": 2},
        "ready": {1: 99.0, 2: 99.0, 3: 99.0},
        "killed": fall(1, "a", "SIGKILL", "order-01", 103),
        "stopped": fall(2, "b", "SIGSTOP", "order-02", 110),
        "continued": 120.0,
        "before": {"order-02": journal(2, ended=False)},
        "back": 120.5,
        "new_ids": frozenset({"b2"}),
        "said": "a new id",
        "sent_to_the_dead": None,
        "finished": 130.0,
        "drained_with": {2: 0, 3: 0},
    }
    return FleetEvidence(**{**facts, **changes})


def failed(found: FleetEvidence) -> list[str]:
    return [check.name for check in fleet_checks(found) if not check.ok]


def test_honest_evidence_passes() -> None:
    assert failed(evidence()) == []
    assert [one.place for one in evidence().late_ends()] == [("order-02", "reserve")]


@pytest.mark.parametrize(
    ("what", "changes", "caught"),
    [
        ("a wrong result", {"results": {"order-01": "right", "order-02": "wrong"}}, "every order has the right result"),
        (
            "an order that was charged twice",
            {"histories": {"order-01": [*journal(), entry(7, "step_done", "charge")], "order-02": journal()}},
            "every order was charged exactly once, as recorded",
        ),
        (
            "an order that was never charged",
            {"histories": {"order-01": journal(), "order-02": [entry(1, "started")]}},
            "every order was charged exactly once, as recorded",
        ),
        (
            "a gap in a journal",
            {"histories": {"order-01": journal(), "order-02": journal()[:2] + journal()[3:]}},
            "journals have no gaps",
        ),
        (
            "a recorded step that ran again",
            {"executions": [*GOOD, ran("order-01", "charge", "c", 107, 108)]},
            "nothing recorded before a signal ran again",
        ),
        (
            "a step that ran twice for no reason",
            {"executions": [*GOOD, ran("order-01", "ship", "c", 107, 108)]},
            "only steps that were cut off ran a second time",
        ),
        (
            "a run that nobody took over",
            {"holdings": [HOLDINGS[0]._replace(end=130), *HOLDINGS[2:]]},
            "all runs of the killed worker went on elsewhere",
        ),
        (
            "a take-over that took too long",
            {"holdings": [*HOLDINGS[:2], HOLDINGS[2]._replace(end=115.5), HOLDINGS[3]._replace(begin=115.5)]},
            "and those of the stopped one",
        ),
        (
            "an outcome that only the stopped worker can have recorded",
            {"before": {"order-02": journal(1, ended=False)}},
            "the stopped worker committed nothing more",
        ),
        (
            "a record that was changed",
            {"before": {"order-02": [entry(1, "started", "other"), *journal(2, ended=False)[1:]]}},
            "the stopped worker committed nothing more",
        ),
        ("a worker that did not come back", {"new_ids": frozenset()}, "it goes on under another id"),
        ("a worker that did nothing", {"numbers": {"a": 1, "b": 2, "c": 2}}, "all three workers had a share"),
        ("a worker that did not drain", {"drained_with": {2: 0, 3: 1}}, "the others drained on SIGTERM"),
    ],
)
def test_what_is_wrong_is_caught(what: str, changes: dict[str, Any], caught: str) -> None:
    """Each claim can fail."""
    assert caught in failed(evidence(**changes)), what


def test_a_run_that_ended_between_two_looks_was_taken_over() -> None:
    """Its step was recorded before the signal, and the next owner only had to end it."""
    quick = [HOLDINGS[0]._replace(is_last=True), *HOLDINGS[2:]]
    found = evidence(holdings=quick)
    assert "all runs of the killed worker went on elsewhere" not in failed(found)
    assert found.killed.taken(quick) == {"order-01": (2.0, None)}


def test_the_timeline_shows_who_had_which_order() -> None:
    lines = [line.plain for line in timeline(evidence())]
    assert max(map(len, lines)) <= 80
    rows = {line[:8]: line[10:] for line in lines}
    assert rows["order-01"].replace(" ", "").strip("1x3") == ""
    assert list(dict.fromkeys(rows["order-01"].strip())) == ["1", "x", "3"]
    assert list(dict.fromkeys(rows["order-02"].strip())) == ["2", "s", "3"]
    assert rows["worker 1"].strip().endswith("=!")
    assert list(dict.fromkeys(rows["worker 2"].strip())) == ["=", "s"]


def test_the_report_is_also_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that the checks and the picture are made of."""
    found = evidence()
    report_json(found, fleet_checks(found), 17.5)
    report = json.loads(capsys.readouterr().out)
    assert (report["event"], report["ok"], report["lease_seconds"], report["elapsed"]) == ("report", True, 3.0, 17.5)
    assert report["killed"]["taken_seconds"] == {"order-01": 2.0}
    assert report["killed"]["cut_off"] == [["order-01", "reserve"]]
    assert report["stopped"]["stood_still_seconds"] == 10.0
    assert report["stopped"]["late_ends"] == [["order-02", "reserve"]]
    assert [(one["run"], one["worker"]) for one in report["holdings"]] == [
        ("order-01", 1), ("order-01", 3), ("order-02", 2), ("order-02", 3),
    ]  # fmt: skip


def test_owners_are_read_from_the_store() -> None:
    """Nobody's, then a worker's, then ended; and which process an id was of, also when it is gone."""

    async def main() -> None:
        store = MemoryStore()
        owners = Owners(store, {4711: 2})
        await store.create(new_run("r", owner=None), None)
        await store.register_worker(WorkerInfo(id="id", name="n", host="h", pid=4711, started_at=1))
        await owners.look()
        assert await store.claim("id", 10, 1)
        await owners.until(lambda rows: rows["r"].owner == "id")
        await store.terminate("r", "enough", 20)
        await owners.until(lambda rows: rows["r"].status.terminal)
        await store.unregister_worker("id", 30)
        await owners.look()
        assert [(one.run, one.owner, one.is_last) for one in owners.holdings()] == [
            ("r", None, False), ("r", "id", True),
        ]  # fmt: skip
        assert owners.ids_of(2) == {"id"}

    run_async(main())


def demo(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["demo", *options], env={"PERDURE_STORE": "postgresql://not.used/"})
    return done.exit_code, " ".join(done.output.split())


def test_without_a_server_it_says_what_to_do() -> None:
    """Also with PERDURE_STORE: nobody's own database is used unless it was meant."""
    code, said = demo("--fleet")
    assert code == 2
    assert "--store postgresql://user@host/database" in said
    assert "make demo-fleet" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "postgresql://h/d"], "--store is for --fleet"),
        (["--fleet", "--store", "orders.db"], "needs a PostgreSQL server"),
        (["--fleet", "--store", "postgresql://h/d?schema=mine"], "leave schema= out"),
        (["--fleet", "--store", "postgresql://h/d?scheme=mine"], "not a known option"),
    ],
)
def test_what_it_refuses(options: Sequence[str], said: str) -> None:
    code, output = demo(*options)
    assert code in (1, 2)
    assert said in output


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code, said = demo("--fleet", "--store", "postgresql://ann:s3cret@127.0.0.1:1/d?connect_timeout=1")
    assert code == 1
    assert "cannot be reached" in said
    assert "s3cret" not in said
