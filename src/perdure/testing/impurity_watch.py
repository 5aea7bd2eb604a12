"""Watches workflow code for what it should not do: reading clocks and randomness past perdure, and effects of its own.

A guard (see `VirtualEngine`) that forbids nothing and remembers who did what. It looks only while workflow code runs,
on its thread, and blames the user's own line that is nearest.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

from perdure.kernel.shims import WATCHED
from perdure.testing.module_state import PACKAGE, is_users

#: Reads whose value will differ the next time. Not wrong by themselves: a value that goes nowhere does no harm.
_READS: tuple[tuple[Any, str], ...] = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")),
    *((random, name) for name in ("random", "randint", "randrange", "choice", "choices", "shuffle", "sample")),
    (os, "urandom"),
    (os, "getpid"),
)
#: Effects: repeated by every replay.
_EFFECTS: tuple[tuple[Any, str], ...] = (
    (socket.socket, "connect"),
    (subprocess, "Popen"),
    (os, "remove"),
    (os, "mkdir"),
    (os, "rename"),
)


class ImpurityWatch:
    """One watch over all lives of a workflow."""

    def __init__(self) -> None:
        #: "time.time()" to the places where workflow code called it.
        self.reads: dict[str, set[str]] = {}
        self.effects: dict[str, set[str]] = {}
        self._depth = 0

    @contextlib.contextmanager
    def __call__(self) -> Generator[None]:
        self._depth += 1
        if self._depth > 1:
            try:
                yield
            finally:
                self._depth -= 1
            return
        thread = threading.get_ident()
        with contextlib.ExitStack() as undo:
            for owner, name in _READS:
                self._watch(undo, owner, name, self.reads, thread)
            for owner, name in _EFFECTS:
                self._watch(undo, owner, name, self.effects, thread)
            self._watch(undo, builtins, "print", self.effects, thread)
            self._watch(undo, builtins, "open", self.effects, thread)
            try:
                yield
            finally:
                self._depth -= 1

    def _watch(
        self, undo: contextlib.ExitStack, owner: Any, name: str, found: dict[str, set[str]], thread: int
    ) -> None:
        real: Callable[..., Any] = getattr(owner, name)
        label = f"{name}()" if owner is builtins else f"{getattr(owner, '__name__', owner)}.{name}()"

        def watched(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread and (place := _culprit()) is not None:
                found.setdefault(label, set()).add(place)
            return real(*args, **kwargs)

        watched.__dict__[WATCHED] = real  # auto mode looks at what is called
        setattr(owner, name, watched)
        undo.callback(setattr, owner, name, real)


def _culprit() -> str | None:
    """The nearest line of the user's program, or None if perdure did it: below its frames is the test, not the run."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        if is_users(frame.f_code.co_filename):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None
