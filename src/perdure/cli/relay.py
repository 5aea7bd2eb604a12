"""What a supervisor prints: its own few lines, and those of its children, each of which says whose it is.

With --json standard output stays one JSON document a line, whatever the code of a step prints: what is no document of a
worker becomes one.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from perdure.cli import logs, output

#: How documents of a worker begin: what it says and logs, and why it ended.
_DOCUMENTS = ('{"event": ', '{"error": ')


class Relay:
    """Used by several threads at once."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._say = logs.speaker(as_json=as_json)
        self._lock = threading.Lock()

    def say(self, event: str, **facts: Any) -> None:
        """Something of the supervisor itself."""
        with self._lock:
            _unless_nobody_reads(lambda: self._say(event, **facts))

    def pass_on(self, process: int, stream: str, line: str) -> None:
        """A line of a child, from its "stdout" or "stderr"."""
        with self._lock:
            if self._as_json:
                _unless_nobody_reads(lambda: output.print_json(_document(process, stream, line)))
            else:
                target = sys.stderr if stream == "stderr" else sys.stdout
                _unless_nobody_reads(lambda: _write(target, f"[{process}] {line}"))


def _document(process: int, stream: str, line: str) -> dict[str, Any]:
    if stream == "stdout" and line.startswith(_DOCUMENTS):
        try:
            return {**json.loads(line), "process": process}
        except (ValueError, TypeError):
            pass
    return {"event": "output", "process": process, "stream": stream, "text": line}


def _write(target: TextIO, line: str) -> None:
    target.write(f"{line}\n")
    target.flush()


def _unless_nobody_reads(write: Callable[[], object]) -> None:
    """A log that broke must not take the workers with it."""
    with contextlib.suppress(OSError, ValueError):  # a broken pipe, a terminal that is gone, a closed stream
        write()
