"""`perdure publish`, `events`, `dead-letters`: what other processes published and what did not arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.cli_app import CliApproved, cli_order
from cli.cli_kit import APP, invoke, invoke_json, with_engine
from perdure import Engine


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


def start_order(store: Path) -> None:
    async def start(engine: Engine) -> None:
        await engine.start(cli_order("o-1"), id="order-1")

    with_engine(store, start, worker=False)


def make_letter(store: Path) -> None:
    """An order that is ended while its approval lies unread."""

    async def act(engine: Engine) -> None:
        await engine.start(cli_order("o-2"), id="ended")
        await engine.send("ended", CliApproved("bob\x1b[31m"))
        await engine.admin.terminate("ended")

    with_engine(store, act, worker=False)


def test_publish_reaches_a_run_and_events_shows_what_is_left(store: Path) -> None:
    start_order(store)
    said = invoke("publish", "CliApproved", "--data", '{"by": "ann"}', "--app", APP, "--key", "k", store=store)
    assert (said.exit_code, said.stdout) == (0, "published CliApproved\n")
    assert invoke_json(
        "publish", "CliApproved", "--data", '{"by": "ann"}', "--app", APP, "--key", "k", store=store
    ) == {
        "event": "CliApproved",
        "published": True,
    }
    shown = invoke_json("events", store=store)
    (one,) = shown["events"]
    assert (one["type"], one["data"], one["holder"]) == ("CliApproved", {"by": "ann"}, None)
    assert "after_create, one run" in invoke("events", "--type", "CliApproved", store=store).stdout

    async def finish(engine: Engine) -> Any:
        return await engine.result("order-1")

    assert with_engine(store, finish) == "receipt-o-1-500 approved by ann"
    assert invoke_json("events", store=store) == {"events": [], "expired": {}, "next": None}
    assert "Nothing published" in invoke("events", store=store).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CliApproved"], "publish needs --app"),
        (["CliAproved", "--app", APP], "Did you mean 'CliApproved'"),
        (["CliApproved", "--app", APP, "--data", "{"], "--data is not JSON"),
        (["CliApproved", "--app", APP, "--data", "{}"], "by"),
    ],
)
def test_publish_refuses_what_it_does_not_understand(store: Path, arguments: list[str], message: str) -> None:
    """Bad input: one line, exit code 1, nothing written."""
    start_order(store)
    said = invoke("publish", *arguments, store=store)
    assert said.exit_code == 1
    assert message in said.stderr
    assert invoke_json("events", store=store)["events"] == []


def test_dead_letters_are_listed_replayed_and_removed(store: Path) -> None:
    """CONFORMANCE E7 from the command line."""
    make_letter(store)
    start_order(store)
    (letter,) = invoke_json("dead-letters", "list", store=store)["letters"]
    assert (letter["type"], letter["target"], letter["target_status"]) == ("CliApproved", "ended", "cancelled")
    listed = invoke("dead-letters", "list", store=store).stdout
    assert "ended" in listed
    assert "before reading it" in listed
    assert "\x1b[31m" not in listed
    refused = invoke("dead-letters", "replay", str(letter["id"]), "--to", "ended", store=store)
    assert (refused.exit_code, "RunFinished" in refused.stderr) == (1, True)
    unknown = invoke("dead-letters", "replay", str(letter["id"]), "--to", "nobody", store=store)
    assert (unknown.exit_code, "RunNotFound" in unknown.stderr) == (3, True)
    sent = invoke("dead-letters", "replay", str(letter["id"]), "--to", "order-1", store=store)
    assert (sent.exit_code, sent.stdout) == (0, f"{letter['id']}: sent to order-1\n")
    gone = invoke("dead-letters", "replay", str(letter["id"]), store=store)
    assert (gone.exit_code, "DeadLetterNotFound" in gone.stderr) == (1, True)

    async def finish(engine: Engine) -> Any:
        return await engine.result("order-1")

    assert with_engine(store, finish).startswith("receipt-o-1-500 approved by bob")
    assert "No dead letters." in invoke("dead-letters", "list", store=store).stdout


def test_dead_letters_are_removed_by_number_or_age(store: Path) -> None:
    make_letter(store)
    assert invoke("dead-letters", "remove", store=store).exit_code == 1
    assert invoke_json("dead-letters", "remove", "--older-than", "1 hour", store=store) == {"removed": 0}
    assert invoke_json("dead-letters", "remove", "12345", store=store) == {"removed": 0}
    assert invoke("dead-letters", "remove", "--older-than", "0 s", store=store).stdout == "removed 1\n"
    make = invoke_json("dead-letters", "list", store=store)
    assert make == {"letters": [], "next": None}
