"""Anything from a store, made safe for a terminal and for a log (FAULTS S3, S13, E19).

A person who may start a run may choose its id and its payloads, and must not thereby move the cursor, recolour the
screen or fake a line of somebody who looks at it. So nothing that a terminal obeys leaves here: control and
format characters (escapes, newlines, bidi overrides, zero-width) are written out. Everything is printed as rich
`Text`, which knows no markup; `[red]` stays `[red]`.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from typing import Any

import msgspec

#: A detail in a table; `--full` and `--json` show the rest.
DETAIL_CHARS_MAX = 100


def plain(text: str) -> str:
    """`text` on one line, with everything that a terminal would obey written out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def identity(text: str) -> str:
    """An id or a name: also combining marks are written out, so that two ids that differ look different."""
    if text.isascii():
        return plain(text)
    return "".join(_escaped(c) if unicodedata.combining(c) or not c.isprintable() else c for c in text)


def lines(text: str) -> str:
    """Text of several lines, such as a traceback: its newlines are kept."""
    return "\n".join(plain(line.expandtabs(4)) for line in text.split("\n"))


def _escaped(character: str) -> str:
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def shortened(text: str, chars_max: int = DETAIL_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 3]}..."


# -- values ------------------------------------------------------------------------------------------------


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Any value as JSON in pure ASCII, so that nothing in it can act on a terminal.

    What JSON does not know (a class of the user's, say) appears as its `repr`: this is for looking.
    """
    return json.dumps(_plain_data(value), ensure_ascii=True, indent=indent)


def value_text(value: Any, *, indent: int | None = None) -> str:
    """Any value as JSON for people: letters of every script stay readable, the rest is written out."""
    text = json.dumps(_plain_data(value), ensure_ascii=False, indent=indent)
    return lines(text) if indent is not None else plain(text)


def _plain_data(value: Any) -> Any:
    try:
        return json.loads(msgspec.json.encode(value, enc_hook=repr))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return repr(value)


# -- time --------------------------------------------------------------------------------------------------

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def duration(seconds: float) -> str:
    """`0.250 s`, `42 s`, `5.0 min`, `30.0 d`: short, and precise enough for a table."""
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if abs(seconds) >= 10 else f"{seconds:.3f} s"


def age(moment: datetime) -> str:
    return duration(max(0.0, (now() - moment).total_seconds()))


def now() -> datetime:
    return datetime.now(UTC)


def clock(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
