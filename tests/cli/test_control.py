"""`perdure cancel`, `terminate`, `resume`."""

from __future__ import annotations

from pathlib import Path

from cli.cli_kit import APP, invoke, invoke_json, with_engine
from perdure import Engine, RunCancelled


def start(store: Path) -> None:
    invoke("start", "cli_order", "order_id=o-1", "--id", "one", "--app", APP, store=store)


def test_a_cancelled_run_ends_with_the_first_reason(store: Path) -> None:
    """CONFORMANCE L1, FAULTS F11: the second request changes nothing."""
    start(store)
    assert invoke_json("cancel", "one", "--reason", "first", store=store)["changed"] is True
    assert invoke_json("cancel", "one", "--reason", "second", store=store)["changed"] is False

    async def finish(engine: Engine) -> str:
        try:
            await engine.result("one", timeout=20)
        except RunCancelled as cancelled:
            return cancelled.message
        return ""

    assert "first" in with_engine(store, finish)
    assert "nothing to cancel (status cancelled)" in invoke("cancel", "one", store=store).stdout
    assert "cancelled: first" in invoke("show", "one", store=store).stdout


def test_terminate_ends_a_run_that_no_worker_has(store: Path) -> None:
    """The command needs a store and no worker. CONFORMANCE L2."""
    start(store)
    told = invoke_json("terminate", "one", "--reason", "enough", store=store)
    assert told == {"id": "one", "changed": True, "status": "cancelled"}
    assert invoke_json("terminate", "one", store=store)["changed"] is False
    assert "terminated: enough" in invoke("show", "one", store=store).stdout


def test_resume_lets_a_parked_run_go_on(store: Path) -> None:
    """Law 8: parked says why, and a person may resolve it."""
    start(store)

    async def park(engine: Engine) -> None:
        store_object = engine.store
        (row,) = await store_object.claim("nobody", 2**53, 1)
        assert await store_object.park(row.key, row.epoch, "Diverged: because\n  of this [P-101]", 2**53)

    with_engine(store, park, worker=False)
    assert "Diverged: because" in invoke("ls", store=store).stdout
    assert "of this [P-101]" in invoke("show", "one", store=store).stdout
    waiting = invoke("start", "cli_order", "order_id=o-1", "--id", "one", "--wait", "--app", APP, store=store)
    assert waiting.exit_code == 4
    assert "RunParked" in waiting.stderr
    assert invoke_json("resume", "one", store=store)["changed"] is True
    assert invoke_json("resume", "one", store=store)["changed"] is False
    assert "it is not parked" in invoke("resume", "one", store=store).stdout
