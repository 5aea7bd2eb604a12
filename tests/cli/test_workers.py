"""`perdure workers`: who works on a store."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from cli.cli_kit import APP, Perdure, invoke, invoke_json, wait_for_file, with_engine
from cli.test_worker_signals import resting_run, start_worker
from perdure import Engine


def test_nobody_is_there(store: Path) -> None:
    """With what to do."""

    async def nothing(engine: Engine) -> None:
        pass

    with_engine(store, nothing, worker=False)
    assert invoke("workers", store=store).stdout.strip() == "No workers. Start one: perdure worker --app ..."
    assert invoke_json("workers", store=store) == {"workers": []}


def test_a_living_and_a_dead_worker(store: Path) -> None:
    """CONFORMANCE W8: name, process, state, what it runs and holds; a dead one is shown until it is reaped."""
    mark = resting_run(store, 600.0)
    with Perdure("worker", "--app", APP, "--store", str(store), "--name", "north") as worker:
        worker.until("ready")
        wait_for_file(mark)
        (shown,) = invoke_json("workers", store=store)["workers"]
        table = invoke("workers", store=store).stdout
        worker.signal(signal.SIGKILL)
        worker.wait()
    assert {key: shown[key] for key in ("name", "state", "held", "release", "lease", "draining_since")} == {
        "name": "north", "state": "alive", "held": 1, "release": "0.1.0", "lease": None, "draining_since": None,
    }  # fmt: skip
    assert shown["host"] == os.uname().nodename
    assert {"workflow": "cli_versioned", "version": "2"} in shown["serves"]
    assert ["north", shown["host"], str(shown["pid"]), "alive"] in [line.split()[:4] for line in table.splitlines()]
    assert "file lock" in table
    assert "1 workers with 1 open runs in memory." in table
    (dead,) = invoke_json("workers", store=store)["workers"]
    assert (dead["id"], dead["state"], dead["held"]) == (shown["id"], "dead", 1)
    assert "file lock is free" in invoke("workers", store=store).stdout


def test_a_worker_that_leaves_is_shown_as_leaving(store: Path) -> None:
    """CONFORMANCE W8: while a step of it still runs."""
    mark = resting_run(store, 600.0)
    with start_worker(store, "--grace", "600") as worker:
        wait_for_file(mark)
        worker.signal(signal.SIGTERM)
        worker.until("draining")

        def shown() -> str:
            (one,) = invoke_json("workers", store=store)["workers"]
            return str(one["state"])

        while shown() != "draining":
            pass
        assert "leaving for" in invoke("workers", store=store).stdout
        worker.signal(signal.SIGTERM)
        worker.wait()


def test_workflows_are_cut_unless_all_are_asked_for(store: Path) -> None:
    """With their number; names from a store are made safe."""
    with start_worker(store):
        assert " more" in invoke("workers", store=store, env={"COLUMNS": "400"}).stdout
        full = invoke("workers", "--full", store=store, env={"COLUMNS": "4000"}).stdout
    assert " more" not in full
    assert "cli_versioned@1, cli_versioned@2" in full
