"""Loads `queries.sql`: the text of every statement, by name.

Texts are constants, so SQLite's statement cache always hits, and nothing that a user wrote can become SQL
(FAULTS S2): values travel as parameters only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def split(text: str) -> Mapping[str, str]:
    """The statements of a file, by name, without their comments."""
    parts = _NAME.split(text)[1:]
    queries: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in queries:
            raise ValueError(f"two queries are named {name!r}")
        lines = (line for line in body.splitlines() if not line.startswith("--"))
        queries[name] = "\n".join(lines).strip().removesuffix(";")
    return MappingProxyType(queries)


SQL: Final = split((Path(__file__).parent / "queries.sql").read_text(encoding="utf-8"))
