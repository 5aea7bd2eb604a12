"""Counting what steps really did, in this process or in several."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path


class Effects:
    """A file to which steps append one line for each thing they did; lines survive any kill."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def counts(self) -> Counter[str]:
        return Counter(self.lines())
