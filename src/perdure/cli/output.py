"""Printing: tables and text for people, JSON for machines. Nothing else in the CLI writes to stdout."""

from __future__ import annotations

import os
import sys
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.cli.text import json_text
from perdure.store.model import Status

#: When nobody says how wide it is: a pipe has no width, and cut ids are of no use to `grep`.
PIPE_COLUMNS = 160

STATUS_STYLES: dict[Status, str] = {
    Status.PENDING: "cyan",
    Status.RUNNING: "blue",
    Status.WAITING: "yellow",
    Status.PARKED: "bold magenta",
    Status.PAUSED: "magenta",
    Status.MOVED: "dim",
    Status.ARRIVING: "dim",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "red",
}


def console(columns: int = PIPE_COLUMNS) -> Console:
    """For stdout. No markup, no emoji codes, no highlighting: what is printed is what is there."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False, width=None if known else columns)


def table(*columns: str) -> Table:
    """An empty table. Cells are folded, never cut: half an id is of no use."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold")
    return made


def status_text(status: Status) -> Text:
    return Text(status.value, style=STATUS_STYLES[status])


def print_json(value: Any) -> None:
    """One document, on one line."""
    print_line(json_text(value))


def print_line(text: str) -> None:
    """One line, as it is: the caller made it safe (`cli.text`)."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """One line to stderr: what went wrong."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
