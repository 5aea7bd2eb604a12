"""Installs the guard of `kernel.guard` where Python asks before it opens a file, a socket or a process.

An audit hook is for the whole process and can never be removed. This one does nothing unless workflow code is running
on the thread that asks, and then as the engine of that run has it (`io_check="refuse"`, `"warn"`, `"off"`).
"""

from __future__ import annotations

import sys
from typing import Any

from perdure.kernel.guard import WATCHED, refuse

_installed = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    # Also called for every look at the stack, twice a step: nothing may come before this line.
    if event in WATCHED:
        try:
            frame = sys._getframe(1)
        except ValueError:
            # No Python code is running on this thread: the interpreter itself opens a source file to show a line of an
            # uncaught exception. An error from here would refuse that (tests/guard/test_uncaught_errors.py).
            return
        refuse(event, arguments, frame)


def install_guard() -> None:
    """Once per process, by the first engine that opens."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_hook)
