"""`perdure worker`: drains on the first signal, ends at once on the second, and loses nothing either way."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import apsw
import pytest

from cli.cli_kit import APP, Perdure, invoke, invoke_json, wait_for_file


def start_worker(store: Path, *more: str) -> Perdure:
    worker = Perdure("worker", "--app", APP, "--store", str(store), *more)
    worker.until("ready")
    return worker


def resting_run(store: Path, seconds: float, workflow: str = "cli_rest") -> Path:
    mark = store.parent / "mark"
    data = json.dumps({"path": str(mark), "seconds": seconds})
    invoke("start", workflow, "--input", data, "--id", "rest", "--app", APP, store=store)
    return mark


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_an_idle_worker_leaves_at_the_first_signal(store: Path, number: int, code: int) -> None:
    """There is nothing that it would have to wait for. FAULTS O16."""
    with start_worker(store) as worker:
        worker.signal(number)
        worker.until("draining")
        worker.until("stopped")
        assert worker.wait() == code
    assert not list(store.parent.glob("*.lock"))


def test_a_running_step_may_finish_within_the_grace(store: Path) -> None:
    """FAULTS O16: its result is stored before the worker leaves."""
    mark = resting_run(store, 0.5)
    with start_worker(store, "--grace", "20") as worker:
        wait_for_file(mark)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    kinds = [record["kind"] for record in invoke_json("history", "rest", store=store)["records"]]
    assert "step_done" in kinds


def test_a_worker_leaves_although_its_store_does_not_answer(store: Path) -> None:
    """FAULTS O17: another process keeps the file locked all the while; the end comes within bounds, and the run is left
    for the next worker."""
    mark = resting_run(store, 600.0)
    with start_worker(store, "--grace", "0.1") as worker:
        wait_for_file(mark)
        foreign = apsw.Connection(str(store))
        foreign.set_busy_timeout(10_000)
        foreign.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() in (0, 1)
        assert time.monotonic() - began < 40
        foreign.execute("ROLLBACK")
        foreign.close()
    assert invoke_json("show", "rest", store=store)["status"] not in ("failed", "cancelled", "completed")


@pytest.mark.parametrize("workflow", ["cli_rest", "cli_rest_in_thread"])
def test_a_long_step_is_cut_off_when_the_grace_is_over(store: Path, workflow: str) -> None:
    """FAULTS O16: the process ends within the grace, and the run is free for the next worker."""
    mark = resting_run(store, 600.0, workflow)
    with start_worker(store, "--grace", "0.1") as worker:
        wait_for_file(mark)
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert time.monotonic() - began < 10
    shown = invoke_json("show", "rest", store=store)
    assert shown["worker"] is None
    assert [record["kind"] for record in invoke_json("history", "rest", store=store)["records"]] == ["started"]


@pytest.mark.parametrize("workflow", ["cli_rest_stubbornly", "cli_rest_in_executor"])
def test_a_worker_leaves_although_code_of_a_step_stays(store: Path, workflow: str) -> None:
    """FAULTS O16: a step that swallows its cancellation, and a thread that the interpreter would wait for."""
    mark = resting_run(store, 600.0, workflow)
    with start_worker(store, "--grace", "0.1") as worker:
        wait_for_file(mark)
        worker.signal(signal.SIGTERM)
        worker.until("stopped")
        worker.until("gave up: detail code of a step was still running")
        assert worker.wait() == 0
    assert invoke_json("show", "rest", store=store)["worker"] is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_now(store: Path, number: int, code: int) -> None:
    """FAULTS O16: and the next worker goes on where it was."""
    mark = resting_run(store, 600.0)
    with start_worker(store, "--grace", "600") as worker:
        wait_for_file(mark)
        worker.signal(signal.SIGTERM)
        worker.until("draining")
        worker.signal(number)
        assert worker.wait() == code
    mark.unlink()
    with start_worker(store):
        wait_for_file(mark)  # the step, whose outcome was never recorded, runs again


def test_machine_output_is_one_document_a_line(store: Path) -> None:
    with start_worker(store, "--json") as worker:
        worker.signal(signal.SIGTERM)
        events = [json.loads(worker.line())["event"], json.loads(worker.line())["event"]]
        assert worker.wait() == 0
    assert events == ["draining", "stopped"]


def test_a_worker_without_workflows_is_a_mistake(store: Path) -> None:
    with Perdure("worker", "--store", str(store), env={"PERDURE_APP": ""}) as worker:
        worker.until("a worker needs workflows")
        assert worker.wait() == 2
    assert not store.exists()


@pytest.mark.parametrize("name", ["", "-wal"])
def test_a_worker_whose_store_is_deleted_ends_with_a_code_of_its_own(store: Path, name: str) -> None:
    """FAULTS B7: it says so once, ends by itself although nobody sent a signal, and leaves no lock behind."""
    with start_worker(store) as worker:
        Path(f"{store}{name}").unlink()
        assert "was deleted or replaced" in worker.until("this worker stops")
        worker.until("stopped")
        assert worker.wait() == 7
    assert not list(store.parent.glob("*.lock"))


def test_a_command_that_waits_for_a_run_of_a_deleted_store_ends(store: Path) -> None:
    """FAULTS B7: nobody waits for ever, and the code says why."""
    mark = store.parent / "mark"
    data = json.dumps({"path": str(mark), "seconds": 600})
    options = ("--input", data, "--id", "rest", "--app", APP, "--store", str(store))
    with Perdure("start", "cli_rest", *options, "--work") as waiting:
        wait_for_file(mark)
        store.unlink()
        waiting.until("P-307")
        assert waiting.wait() == 7
