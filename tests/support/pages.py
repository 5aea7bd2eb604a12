"""Reading the pages of the documentation: their blocks of code, and which of them are run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

#: A fenced block, the language it names, and the marker before it: `<!-- runnable -->` or `<!-- runnable: name.py -->`.
BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>runnable)(?:: (?P<file>\S+))? -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    runnable: bool
    file: str | None

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            bool(found["marker"]),
            found["file"],
        )
        for found in BLOCK.finditer(text)
    ]


def part_of(page: Path, file: str) -> str:
    """All blocks of a page that are marked with this name, one after the other."""
    found = "".join(block.text for block in blocks_of(page) if block.file == file)
    assert found, f"{page.name} has no block marked 'runnable: {file}'"
    return found
