"""Nothing that comes from a store can act on the terminal of somebody who looks."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from cli.cli_kit import APP, invoke, invoke_json
from perdure.cli import text
from perdure.cli.logs import _Lines

#: Colour, cursor, title, a C1 control sequence, newline, bidi override, zero width; and markup of rich.
NASTY = "a\x1b[31mb\x1b]0;title\x07c\x9b2Jd\r\ne\u202ef\u200bg[red]h[/red]:smile:\x7f"
OBEYED = ["\x1b", "\x07", "\x9b", "\r", "\u202e", "\u200b", "\x7f"]


def assert_inert(shown: str) -> None:
    for character in OBEYED:
        assert character not in shown, f"{character!r} reached the terminal"


def test_payloads_and_errors_are_inert_in_every_view(store: Path) -> None:
    """FAULTS S3: escapes by payload, by custom status, and by exception text."""
    data = json.dumps({"price": "1", "tags": [NASTY], "note": NASTY})
    invoke("start", "cli_echo", "--input", data, "--id", "echo", "--work", "--app", APP, store=store)
    failing = invoke("start", "cli_fail", "--input", json.dumps({"text": NASTY}), "--id", "fail", "--work",
                     "--app", APP, store=store)  # fmt: skip
    assert_inert(failing.stdout + failing.stderr)
    for command in (["ls"], ["show", "echo"], ["show", "fail"], ["history", "echo"], ["history", "fail", "--full"]):
        for more in ([], ["--json"]):
            shown = invoke(*command, *more, store=store).stdout
            assert_inert(shown)
    assert "[red]h[/red]:smile:" in invoke("show", "echo", store=store).stdout
    assert "\\x1b[31m" in invoke("show", "fail", store=store).stdout


@pytest.mark.parametrize("run_id", ["\x9b31mred", "[red]x", "\u202etxt.exe", "e\u0301", "a\u200bb", "\u05d0-1", "🎉"])
def test_ids_keep_their_bytes_and_are_shown_escaped(store: Path, run_id: str) -> None:
    """FAULTS E19: exact identity; what cannot be seen is written out."""
    invoke("start", "cli_versioned", "--id", run_id, "--app", APP, store=store)
    assert invoke_json("show", run_id, store=store)["id"] == run_id
    shown = invoke("ls", store=store).stdout + invoke("show", run_id, store=store).stdout
    assert_inert(shown)
    assert text.identity(run_id) in shown
    assert "\u0301" not in shown


def test_a_newline_in_a_message_cannot_fake_a_log_line() -> None:
    """What comes from runs is escaped before it is printed. FAULTS S13."""
    record = logging.LogRecord("perdure.run", logging.INFO, "", 0, "run %s done\n2030 ERROR fake", ("\x1b[2J",), None)
    shown = _Lines().format(record)
    assert "\n" not in shown
    assert_inert(shown)


def test_machine_output_is_pure_ascii(store: Path) -> None:
    """FAULTS S3: JSON passes through terminals too."""
    invoke("start", "cli_fail", "--input", json.dumps({"text": NASTY}), "--id", "ü", "--app", APP, store=store)
    told = invoke("show", "ü", "--json", store=store).stdout
    assert told.isascii()
    assert json.loads(told)["input"] == {"text": NASTY}
