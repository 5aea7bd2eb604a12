"""Reads the YAML that `deploy/compose.yaml` is written in, which is a small part of YAML; refuses everything else.

Mappings and lists by indentation, lists and texts in JSON, plain texts, comments on lines of their own. There is no
parser of YAML among the tools of the project, and one file is no reason for one.
"""

from __future__ import annotations

import json
import re
from typing import Any

_PAIR = re.compile(r"([\w.-]+):(?: (.+))?")


def read(text: str) -> Any:
    """Raises `ValueError` with the line that is not understood."""
    lines = [
        (len(line) - len(line.lstrip(" ")), line.strip())
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    value, rest = _block(lines)
    if rest:
        raise ValueError(f"not understood: {rest[0][1]!r}")
    return value


def _block(lines: list[tuple[int, str]]) -> tuple[Any, list[tuple[int, str]]]:
    depth = lines[0][0]
    if lines[0][1].startswith("- "):
        items: list[Any] = []
        while lines and lines[0][0] == depth and lines[0][1].startswith("- "):
            items.append(_scalar(lines[0][1][2:]))
            lines = lines[1:]
        return items, lines
    pairs: dict[str, Any] = {}
    while lines and lines[0][0] == depth:
        found = _PAIR.fullmatch(lines[0][1])
        if found is None or found[1] in pairs:
            raise ValueError(f"not understood, or given twice: {lines[0][1]!r}")
        lines = lines[1:]
        if found[2] is not None:
            pairs[found[1]] = _scalar(found[2])
        elif lines and lines[0][0] > depth:
            pairs[found[1]], lines = _block(lines)
        else:
            pairs[found[1]] = None
    return pairs, lines


def _scalar(text: str) -> Any:
    if text[0] in '["{':
        return json.loads(text)
    if text[0] in "&*!|>%@`'?" or " #" in text or re.match(r"[\w.-]+: ", text):
        raise ValueError(f"not understood: {text!r}")
    return text
