"""A worker as the child of a supervisor (`perdure worker --processes`): how it notices that it is one, what it says.

Both directions are ordinary pipes, which every system has. Standard input is the lifeline: the supervisor holds its
other end and never writes to it, so the end of it is the death of the supervisor, however it died. What the child tells
its supervisor goes through standard output, as lines that begin with a token which only the two of them know; all other
lines are passed on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

#: What a child finds in its environment: the token. Taken out at once, so that processes of steps do not inherit it.
VARIABLE: Final = "PERDURE_SUPERVISED"
#: On top of the grace: what a worker may take to store the last results, before the process ends anyway.
LEAVING_SECONDS_MAX: Final = 15.0
#: What the interpreter may take to exit after that.
EXIT_SECONDS_MAX: Final = 2.0


def leaving_seconds(grace: float) -> float:
    """How long a worker may take to be gone after the first signal."""
    return 3 * grace + LEAVING_SECONDS_MAX + EXIT_SECONDS_MAX


class Supervision:
    """The child's end."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._lifeline = _taken_stdin()
        self._cut: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._is_cut = False
        threading.Thread(target=self._watch, name="perdure-lifeline", daemon=True).start()

    @staticmethod
    def of_this_process() -> Supervision | None:
        """None: nobody supervises this process."""
        token = os.environ.pop(VARIABLE, None)
        return None if token is None else Supervision(token)

    def tell(self, kind: str, **facts: Any) -> None:
        """One message for the supervisor."""
        line = json.dumps({"kind": kind, **facts})
        sys.stdout.write(f"{self._token} {line}\n")
        sys.stdout.flush()

    def leave_by(self, cut: Callable[[], None]) -> None:
        """From now on the worker leaves in order when its supervisor is gone. Until then it just ends."""
        with self._lock:
            self._cut = cut
            is_cut = self._is_cut
        if is_cut:
            cut()

    def _watch(self) -> None:
        while _read(self._lifeline):
            pass
        _forget_output()
        with self._lock:
            self._is_cut = True
            cut = self._cut
        if cut is None:
            os._exit(1)  # nothing was begun yet
        cut()


def _taken_stdin() -> int:
    """The lifeline, away from where steps and their processes would read it."""
    lifeline = os.dup(0)
    os.set_inheritable(lifeline, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return lifeline


def _read(lifeline: int) -> bytes:
    try:
        return os.read(lifeline, 1)
    except OSError:
        return b""


def _forget_output() -> None:
    """Nobody reads it any more: code that prints must not fail for that."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
