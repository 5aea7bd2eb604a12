"""`perdure migrate`: everything to another store, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.cli_kit import APP, invoke, invoke_json
from cli.test_lifecycle import fail, finish, start
from support import postgres
from support.lives import STORES


@pytest.fixture
def filled(store: Path) -> Path:
    """An open run that waits, and one that has failed."""
    start(store)
    fail(store)
    return store


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new.db"


def migrate(*args: str) -> list[dict[str, Any]]:
    done = invoke("migrate", *args, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_everything_moves_and_goes_on_there(filled: Path, target: Path) -> None:
    """With what it did as the last line; the run ends in the new store."""
    lines = migrate(str(filled), f"sqlite:///{target}")
    pause = lines[-1].pop("pause")
    assert lines[-1] == {
        "runs": 2, "open": 1, "copied": 2, "events": 0, "dead_letters": 0, "handed_over": True,
        "target": f"sqlite:///{target}",
    }  # fmt: skip
    assert 0 < pause < 60
    assert {"phase": "copying", "done": 1, "total": 1} in lines
    assert lines[-2] == {"phase": "done", "done": 2, "total": 2}
    finish(target)
    verified = migrate(str(filled), str(target), "--verify")[-1]
    assert verified == {"same": 1, "went_on": 1, "removed": 0, "different": []}
    again = invoke("migrate", str(filled), str(target))
    assert f"everything was moved before: 2 runs are at sqlite:///{target}" in again.stdout


def test_the_old_store_says_where_everything_is(filled: Path, target: Path) -> None:
    """`ls`, `show` and `why` look there as ever; what would change something is told, with a stable code."""
    migrate(str(filled), str(target))
    where = f"sqlite:///{target}"
    assert "it went to" in invoke("ls", store=filled).stdout  # and where, as far as the table has room
    shown = invoke_json("show", "one", store=filled)
    assert (shown["status"], shown["reason"]) == ("moved", f"it went to {where}")
    reason = invoke_json("why", "one", store=filled)
    assert (reason["kind"], reason["text"]) == (
        "moved",
        f"it was moved to {where}, with everything in this store: ask there.",
    )
    assert invoke_json("show", "bad", store=filled)["status"] == "failed"
    for command in (
        ("send", "one", "CliApproved", "--data", '{"by": "ann"}'), ("cancel", "one"), ("terminate", "one"),
        ("pause", "one"), ("unpause", "one"), ("show", "nobody"), ("resume", "bad", "--app", APP),
        ("start", "cli_order", "order_id=o-2", "--app", APP),
    ):  # fmt: skip
        done = invoke(*command, "--json", store=filled)
        told = json.loads(done.stdout)
        assert (done.exit_code, told["error"], told["code"]) == (1, "RunMoved", "P-008"), command
        assert where in told["message"]


def test_copied_first_and_handed_over_later(filled: Path, target: Path) -> None:
    """`--copy-only`: the old store works on; the next call copies what is missing."""
    assert migrate(str(filled), str(target), "--copy-only")[-1]["handed_over"] is False
    assert invoke_json("show", "one", store=filled)["status"] != "moved"
    fail(filled, "bad since")
    moved = migrate(str(filled), str(target))[-1]
    assert (moved["runs"], moved["copied"]) == (3, 2)


def test_taken_back(filled: Path, target: Path) -> None:
    """`--undo` removes the copies; after the decision it is too late."""
    migrate(str(filled), str(target), "--copy-only")
    assert migrate(str(filled), str(target), "--undo") == [{"undone": True}]
    assert migrate(str(filled), str(target), "--undo") == [{"undone": False}]
    assert invoke_json("ls", store=target)["runs"] == []
    migrate(str(filled), str(target))
    late = invoke("migrate", str(filled), str(target), "--undo")
    assert late.exit_code == 1
    assert "everything has gone to" in late.stderr


def test_counted(filled: Path, target: Path) -> None:
    """`--dry-run` opens no target."""
    assert migrate(str(filled), str(target), "--dry-run") == [{"runs": 2, "counts": {"waiting": 1, "failed": 1}}]
    assert (
        "2 runs would be moved: 1 failed, 1 waiting" in invoke("migrate", str(filled), str(target), "--dry-run").stdout
    )
    assert not target.exists()


@pytest.mark.parametrize(
    ("source", "to", "words"),
    [
        ("{old}", "{old}", "both are the same store"),
        ("{old}", "sqlite:///{old}", "both are the same store"),
        ("{old}", ":memory:", "seen by one process only"),
        (":memory:", "{new}", "seen by one process only"),
        ("{new}", "{old}", "there is no store at"),
        ("{old}", "mysql://x", "is not a kind of store"),
    ],
)
def test_what_cannot_be_moved_is_refused(filled: Path, target: Path, source: str, to: str, words: str) -> None:
    done = invoke("migrate", source.format(old=filled, new=target), to.format(old=filled, new=target))
    assert done.exit_code == 1
    assert words in done.stderr
    assert invoke_json("ls", store=filled)["counts"] == {"waiting": 1, "failed": 1}


def test_a_copy_of_the_file_is_no_other_store(filled: Path, target: Path) -> None:
    target.write_bytes(filled.read_bytes())
    done = invoke("migrate", str(filled), str(target))
    assert done.exit_code == 1
    assert "one is a copy of the other" in done.stderr


def test_a_taken_id_is_named(filled: Path, target: Path) -> None:
    start(target)
    done = invoke("migrate", str(filled), str(target), "--json")
    assert done.exit_code == 1
    error = json.loads(done.stdout.splitlines()[-1])
    assert (error["error"], error["code"]) == ("MoveRefused", "P-309")
    assert "'one'" in error["message"]


def test_options_that_exclude_each_other(filled: Path, target: Path) -> None:
    assert invoke("migrate", str(filled), str(target), "--undo", "--verify").exit_code == 2


def test_differences_have_an_exit_code_of_their_own(filled: Path, target: Path) -> None:
    migrate(str(filled), str(target))
    invoke("terminate", "one", store=target)
    invoke("delete", "one", store=target)
    done = invoke("migrate", str(filled), str(target), "--verify")
    assert done.exit_code == 10
    assert "1 differ\n  one\n" in done.stdout


@pytest.mark.skipif("postgres" not in STORES, reason="PERDURE_TEST_STORES leaves PostgreSQL out")
def test_no_password_is_ever_shown(filled: Path, target: Path) -> None:
    """To PostgreSQL and back: what callers are told is a URL without its password."""
    url = postgres.server().url(postgres.server().fresh_schema(keep_sessions=True))
    password = url.partition("://")[2].partition("@")[0].partition(":")[2]
    assert password
    there = invoke("migrate", str(filled), url, "--json")
    moved = json.loads(there.stdout.splitlines()[-1])
    assert moved["runs"] == 2
    told = invoke("cancel", "one", store=filled)
    assert moved["target"] in told.stderr
    back = invoke("migrate", url, str(target), "--json")
    assert json.loads(back.stdout.splitlines()[-1])["runs"] == 2
    late = invoke("cancel", "one", "--store", url)
    assert f"sqlite:///{target}" in late.stderr
    for done in (there, told, back, late):
        assert password not in done.output
    finish(target)
