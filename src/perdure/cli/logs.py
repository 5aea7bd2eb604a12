"""What a worker says: its own few lines, and the library's log records. One safe line each (FAULTS S13)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from perdure.cli import output
from perdure.cli.text import plain, value_text

Say = Callable[..., None]


class _Lines(logging.Formatter):
    """One line a record: a newline in an id or message cannot fake another. Tracebacks follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n  ".join(plain(line) for line in self._parts(record))

    def _parts(self, record: logging.LogRecord) -> list[str]:
        record.asctime = self.formatTime(record)
        run_id = getattr(record, "run_id", None)
        # Lines of workflow code do not say whose they are; those of a worker do.
        prefix = f"run {run_id!r}: " if run_id and record.name == "perdure.run" else ""
        parts = [f"{record.asctime} {record.levelname} {record.name}: {prefix}{record.getMessage()}"]
        if record.exc_info:
            parts += self.formatException(record.exc_info).splitlines()
        return parts


class _JsonLines(logging.Handler):
    """One JSON document a record, on stdout."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            output.print_json(self._document(record))
        except Exception:
            self.handleError(record)

    def _document(self, record: logging.LogRecord) -> dict[str, Any]:
        document: dict[str, Any] = {
            "event": "log",
            "at": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if run_id := getattr(record, "run_id", None):
            document["run_id"] = run_id
        if record.exc_info:
            document["traceback"] = logging.Formatter().formatException(record.exc_info)
        return document


def configure(*, as_json: bool, verbose: bool) -> Say:
    """Set up logging, and return what prints the worker's own lines."""
    handler: logging.Handler = _JsonLines() if as_json else logging.StreamHandler(sys.stderr)
    if not as_json:
        handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    return speaker(as_json=as_json)


def speaker(*, as_json: bool) -> Say:
    """What prints the lines that are no log records: what a worker, or its supervisor, says of itself."""
    return _say_json if as_json else _say


def _say(event: str, **facts: Any) -> None:
    shown = ", ".join(f"{name.replace('_', ' ')} {_fact(value)}" for name, value in facts.items())
    output.print_line(f"perdure worker {event}{': ' + shown if shown else ''}")


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_fact(one) for one in value)
    return plain(value) if isinstance(value, str) else value_text(value)


def _say_json(event: str, **facts: Any) -> None:
    output.print_json({"event": event.replace(" ", "_"), **facts})
