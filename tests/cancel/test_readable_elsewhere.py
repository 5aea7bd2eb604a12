"""What a client in another process can read about a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cancel.readable_children import CarryOn, readable
from perdure import Engine
from support.lives import run_async, until
from support.processes import Process


def read(path: str, run_id: str) -> dict[str, Any]:
    with Process("cancel.readable_children:read", path, run_id) as process:
        found: dict[str, Any] = json.loads(process.line())
        assert process.wait() == 0
    return found


def test_status_result_error_custom_status_and_state_are_readable_in_another_process(tmp_path: Path) -> None:
    """CONFORMANCE L6: three processes on one file: a worker, this client, and a reader that shares nothing."""
    path = str(tmp_path / "test.db")

    async def start() -> None:
        async with Engine(path, worker=False) as engine:
            for run_id in ("good", "bad"):
                await engine.start(readable(), id=run_id)

                async def waits(run_id: str = run_id) -> bool:
                    return bool((await engine.status(run_id)).waiting)

                await until(waits)

    async def finish() -> None:
        async with Engine(path, worker=False) as engine:
            await engine.send("good", CarryOn("well"))
            await engine.send("bad", CarryOn("fail"))
            for run_id in ("good", "bad"):

                async def done(run_id: str = run_id) -> bool:
                    return (await engine.status(run_id)).status.terminal

                await until(done)

    with Process("cancel.readable_children:worker", path) as worker:
        worker.expect("open")
        run_async(start())
        assert read(path, "good") == {
            "status": "waiting",
            "custom": {"phase": "waiting", "percent": 50},
            "state": {"seen": ["a", "b"]},
            "waiting": [["receive", "'CarryOn'"]],
            "records": ["started"],
        }
        run_async(finish())
    good, bad = read(path, "good"), read(path, "bad")
    assert good == {
        "status": "completed",
        "custom": "after",
        "state": {"seen": ["a", "b"], "how": "well"},
        "waiting": [],
        "records": ["started", "event_received", "completed"],
        "result": {"answer": 42},
    }
    assert bad["status"] == "failed"
    assert bad["error"] == ["ValueError", "broken on purpose"]
    assert bad["state"] == {"seen": ["a", "b"], "how": "fail"}
