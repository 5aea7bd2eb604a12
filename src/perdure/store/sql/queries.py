"""Loads a `queries.sql`: the text of every statement of one store, by name.

Texts are constants, so SQLite's statement cache always hits, and nothing that a user wrote can become SQL
(FAULTS S2): values travel as parameters only. What several statements have in common is a fragment of the same file,
put in when the file is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_HEADING = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_PLACE = re.compile(r"\{(\w+)\}")


def split(text: str) -> Mapping[str, str]:
    """The statements of a file, by name, without their comments and with their fragments."""
    kinds: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    parts = _HEADING.split(text)[1:]
    for kind, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if name in kinds[kind]:
            raise ValueError(f"two queries are named {name!r}")
        lines = (line for line in body.splitlines() if not line.startswith("--"))
        kinds[kind][name] = "\n".join(lines).strip().removesuffix(";")
    fragments: dict[str, str] = {}

    def filled(body: str) -> str:
        return _PLACE.sub(lambda place: fragments[place[1]], body)

    for name, body in kinds["fragment"].items():  # one may be a part of those below it
        fragments[name] = filled(body)
    return MappingProxyType({name: filled(body) for name, body in kinds["name"].items()})


def load(path: Path) -> Mapping[str, str]:
    """The statements of the file beside a store's modules."""
    return split(path.read_text(encoding="utf-8"))
