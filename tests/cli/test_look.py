"""`perdure ls`, `show`, `history`: what a client in another process can know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import APP, invoke, invoke_json, with_engine
from perdure import Engine
from support.lives import until


def waiting_order(store: Path, run_id: str = "one") -> None:
    """A run that has charged and waits for its approval; its worker has left."""
    invoke("start", "cli_order", "order_id=o-1", "--id", run_id, "--app", APP, store=store)

    async def live(engine: Engine) -> None:
        async def charged() -> bool:
            return (await engine.status(run_id)).records == 2

        await until(charged)

    with_engine(store, live)


def test_everything_about_a_waiting_run_is_readable_without_its_code(store: Path) -> None:
    """CONFORMANCE L6: status, custom status, state and what it waits for, with its place in the source."""
    waiting_order(store)
    shown = invoke_json("show", "one", store=store)
    assert shown["status"] == "waiting"
    assert shown["custom_status"] == {"stage": "charged"}
    assert shown["state"] == {"receipt": "receipt-o-1-500"}
    assert shown["waiting"][0]["detail"] == "'CliApproved'"
    assert shown["waiting"][0]["site"].startswith("cli_app.py:")
    text = invoke("show", "one", store=store).stdout
    for part in ("waiting", "CliApproved", "cli_app.py:", '{"stage": "charged"}', "receipt-o-1-500"):
        assert part in text


def test_the_list_says_what_failed_runs_failed_with(store: Path) -> None:
    """The type, the first line of the message and the user's line, for people and for programs; others have none."""
    invoke("start", "cli_versioned", "--id", "good", "--work", "--app", APP, store=store)
    invoke("start", "cli_fail", "text=no card", "--id", "bad", "--work", "--app", APP, store=store)
    reasons = {run["id"]: run["reason"] for run in invoke_json("ls", store=store)["runs"]}
    assert reasons["good"] is None
    assert reasons["bad"].split(" (")[0].endswith(": no card")
    assert "(cli_app.py:" in reasons["bad"]
    assert ": no card (cli_app.py:" in invoke("ls", store=store).stdout


def test_the_end_of_a_run_is_readable_with_its_result_or_error(store: Path) -> None:
    """Somebody who looks later sees how a run ended and with what. CONFORMANCE L6."""
    invoke("start", "cli_versioned", "--id", "good", "--work", "--app", APP, store=store)
    invoke("start", "cli_fail", "text=no card", "--id", "bad", "--work", "--app", APP, store=store)
    assert invoke_json("show", "good", store=store)["end"]["value"] == "two"
    assert invoke_json("show", "bad", store=store)["end"]["error"]["message"] == "no card"
    text = invoke("show", "bad", store=store).stdout
    for part in ("ValueError: no card", "KeyError: 'inner'", "direct cause", 'cli_app.py", line'):
        assert part in text


def test_the_journal_is_shown_record_by_record(store: Path) -> None:
    waiting_order(store)
    told = invoke_json("history", "one", store=store)
    assert [record["kind"] for record in told["records"]] == ["started", "step_done"]
    assert told["records"][1]["location"] == "cli_charge"
    text = invoke("history", "one", store=store).stdout
    assert "+0.000 s" in text
    assert '"receipt-o-1-500"' in text
    assert '"digest"' in invoke("history", "one", "--full", store=store).stdout
    assert invoke("history", "one", "--generation", "2", store=store).exit_code == 1


def test_runs_are_listed_filtered_and_paged(store: Path) -> None:
    """A long list comes in pages, and each run on one of them. CONFORMANCE L5, FAULTS F12."""
    for number in range(3):
        invoke("start", "cli_order", "order_id=o", "--id", f"a_{number}", "--app", APP, store=store)
    invoke("start", "cli_versioned", "--id", "b", "--work", "--app", APP, store=store)

    def ids(*args: str) -> list[str]:
        return [run["id"] for run in invoke_json("ls", *args, store=store)["runs"]]

    assert ids() == ["b", "a_2", "a_1", "a_0"]
    assert ids("--status", "completed") == ["b"]
    assert ids("--workflow", "cli_order", "--limit", "2") == ["a_2", "a_1"]
    assert ids("--workflow", "cli_order", "--limit", "2", "--after", "a_1") == ["a_0"]
    assert ids("--prefix", "a%") == []
    assert invoke_json("ls", "--limit", "2", store=store)["next"] == "a_2"
    text = invoke("ls", store=store).stdout
    assert "All runs: " in text
    assert "1 completed" in text


@pytest.mark.parametrize("command", [["show"], ["history"], ["send", "X"], ["cancel"], ["terminate"], ["resume"]])
def test_an_unknown_run_ends_with_3(store: Path, command: list[str]) -> None:
    """Scripts can tell it from other failures by the exit code. FAULTS F9."""
    invoke("start", "cli_versioned", "--app", APP, store=store)
    name, *rest = command
    result = invoke(name, "nobody", *rest, store=store)
    assert result.exit_code == 3
    assert result.stderr.startswith("RunNotFound: no run has the id 'nobody'")
    assert result.stderr.endswith("[P-001]\n")
    told = invoke_json(name, "nobody", *rest, store=store)
    assert (told["error"], told["code"]) == ("RunNotFound", "P-001")


COMMANDS: list[Any] = [["ls"], ["show", "x"], ["history", "x"], ["send", "x", "X"], ["cancel", "x"], ["terminate", "x"],
                       ["resume", "x"]]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_looking_never_creates_a_store(store: Path, command: list[str]) -> None:
    """FAULTS O13: a typed path that is wrong must not become an empty database."""
    result = invoke(*command, store=store)
    assert result.exit_code == 1
    assert f"there is no store at {store}" in result.stderr
    assert list(store.parent.iterdir()) == []
    store.touch()
    assert invoke(*command, store=store).exit_code == 1
    assert store.stat().st_size == 0
    assert invoke(*command, "--store", ":memory:").exit_code == 1


def test_help_lists_every_command_and_exit_code() -> None:
    text = invoke("--help").stdout
    for word in ("demo", "worker", "start", "ls", "show", "history", "send", "cancel", "terminate", "resume", "130"):
        assert word in text
