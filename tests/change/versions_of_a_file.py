"""Replacing a source file between two lives: the same file name, the same function names, another text.

A deploy does exactly this. The registry takes the second registration of one file and name for a reload.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from support.effects import Effects

PREAMBLE = """\
import asyncio
from pathlib import Path
from events.kinds import Note, Stop, Tick
from support.effects import Effects
from perdure import *
from perdure import random as perdure_random

EFFECTS = Effects(Path({effects!r}))

@step
async def charge(cents: int = 1) -> str:
    EFFECTS.add("charge")
    return "charged"

@step
async def reserve() -> str:
    EFFECTS.add("reserve")
    return "reserved"

@step
async def ship() -> str:
    EFFECTS.add("ship")
    return "shipped"

@step
async def notify() -> str:
    EFFECTS.add("notify")
    return "notified"

@step(max_attempts=None, initial_delay=3600, max_delay=3600)
async def flaky() -> str:
    EFFECTS.add("flaky")
    raise LookupError("not yet")

"""


class SourceFile:
    """One module's file, whose text a test replaces."""

    def __init__(self, path: Path, effects: Effects) -> None:
        self.path = path
        self._preamble = PREAMBLE.format(effects=str(effects.path))

    def load(self, text: str, *, above: str = "") -> dict[str, Any]:
        """Write the text to the file and execute it, as a fresh process would import it."""
        source = self._preamble + above + textwrap.dedent(text)
        self.path.write_text(source)
        namespace: dict[str, Any] = {"__name__": f"deployed_{self.path.stem}", "__file__": str(self.path)}
        exec(compile(source, str(self.path), "exec"), namespace)
        return namespace

    def line_of(self, text: str) -> int:
        """The first line below the preamble that contains `text`."""
        lines = self.path.read_text().splitlines()
        start = self._preamble.count("\n")
        return next(number for number, line in enumerate(lines, 1) if number > start and text in line)
