"""`perdure send`: with and without the user's code, and across processes."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest

from cli.cli_kit import APP, Perdure, invoke, invoke_json, with_engine
from perdure import Engine
from perdure.cli.send import checked_event
from support.lives import until

#: "Well under a second": what CONFORMANCE asks for, with room for a loaded machine.
WAKE_SECONDS_MAX = 0.8


def start(store: Path, run_id: str = "one") -> None:
    invoke("start", "cli_order", "order_id=o-1", "--id", run_id, "--app", APP, store=store)


@pytest.mark.parametrize("app", [(), ("--app", APP)], ids=["raw", "checked"])
def test_an_event_reaches_the_run_with_or_without_its_code(store: Path, app: tuple[str, ...]) -> None:
    """CONFORMANCE E1: sent before the run waits, it is kept."""
    start(store)
    sent = invoke("send", "one", "CliApproved", "--data", '{"by": "ann"}', *app, store=store)
    assert (sent.exit_code, sent.stdout) == (0, "one: sent CliApproved\n")
    assert invoke_json("show", "one", store=store)["inbox"] == {"CliApproved": 1}
    result = invoke("start", "cli_order", "order_id=o-1", "--id", "one", "--work", "--app", APP, store=store)
    assert result.stdout.splitlines()[1] == '"receipt-o-1-500 approved by ann"'
    late = invoke("send", "one", "CliApproved", "--data", '{"by": "ann"}', store=store)
    assert late.exit_code == 1
    assert "RunFinished" in late.stderr


def test_the_same_key_counts_once(store: Path) -> None:
    start(store)
    for _ in range(2):
        invoke("send", "one", "CliApproved", "--data", '{"by": "ann"}', "--key", "k", store=store)
    assert invoke_json("show", "one", store=store)["inbox"] == {"CliApproved": 1}


@pytest.mark.parametrize(
    ("event", "data", "app", "says"),
    [
        ("CliApproved", "{", (), "not JSON"),
        ("CliApproved", '{"bye": "ann"}', ("--app", APP), "by"),
        ("CliAproved", "{}", ("--app", APP), "Did you mean 'CliApproved'"),
        ("a b", "{}", (), "cannot name an event"),
    ],
)
def test_wrong_data_is_refused_and_nothing_is_sent(
    store: Path, event: str, data: str, app: tuple[str, ...], says: str
) -> None:
    start(store)
    result = invoke("send", "one", event, "--data", data, *app, store=store)
    assert result.exit_code == 1
    assert says in result.stderr
    assert invoke_json("show", "one", store=store)["inbox"] == {}


def test_data_may_come_from_standard_input(store: Path) -> None:
    """What is secret need not stand on a command line."""
    start(store)
    assert invoke("send", "one", "CliApproved", "--data", "-", store=store, stdin='{"by": "ann"}').exit_code == 0


def test_a_send_wakes_a_worker_in_another_process_well_under_a_second(store: Path) -> None:
    """CONFORMANCE W6: measured from before the send, as `perdure send` does it, to the end of the run seen by a third
    party."""
    start(store, "warm-up")
    start(store)
    with Perdure("worker", "--app", APP, "--store", str(store), "--json") as worker:
        worker.until('"ready"')

        async def measure(engine: Engine) -> float:
            await until(lambda: waits(engine, "one"))
            await until(lambda: waits(engine, "warm-up"))
            took = []
            for run_id in ("warm-up", "one"):
                began = time.perf_counter()
                data = checked_event("CliApproved", '{"by": "ann"}', known=False)
                await engine.admin.send_json(run_id, "CliApproved", data)
                assert await engine.result(run_id) == "receipt-o-1-500 approved by ann"
                took.append(time.perf_counter() - began)
            return min(took)

        seconds = with_engine(store, measure, worker=False)
        print(f"woken after {seconds * 1000:.0f} ms")
    assert seconds < WAKE_SECONDS_MAX


def test_the_send_command_itself_wakes_the_worker(store: Path) -> None:
    """CONFORMANCE W6, end to end: the command in a process of its own, timed by the journal."""
    start(store)
    with Perdure("worker", "--app", APP, "--store", str(store), "--json") as worker:
        worker.until('"ready"')
        with Perdure("send", "one", "CliApproved", "--data", '{"by": "ann"}', "--json", "--store", str(store)) as send:
            assert json.loads(send.line())["sent"] is True
            assert send.wait() == 0
        result = with_engine(store, lambda engine: engine.result("one", timeout=10), worker=False)
    assert result == "receipt-o-1-500 approved by ann"
    records = invoke_json("history", "one", "--full", store=store)["records"]
    received = next(record for record in records if record["kind"] == "event_received")
    sent_at = received["data"]["sent_at"] / 1e6
    assert _seconds(received["at"]) - sent_at < WAKE_SECONDS_MAX


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


async def waits(engine: Engine, run_id: str) -> bool:
    return any(wait.kind == "receive" for wait in (await engine.status(run_id)).waiting)
