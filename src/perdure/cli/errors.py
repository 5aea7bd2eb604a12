"""A recorded exception (`kernel.journal.Fault`, as plain JSON) as text, the way Python prints one."""

from __future__ import annotations

import linecache
import re
from typing import Any

_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"

_FRAME = re.compile(r'  File "(?P<file>.+\.py)", line (?P<line>\d+), in ')


def error_line(fault: dict[str, Any]) -> str:
    """`ValueError: no such card`."""
    name = str(fault.get("type", "")).partition(":")[2] or str(fault.get("type", ""))
    message = str(fault.get("message", ""))
    return f"{name}: {message}" if message else name


def error_text(fault: dict[str, Any], indent: str = "    ") -> str:
    """The error with its traceback, notes, causes and group members. Not yet safe: print it by `text.lines`."""
    parts: list[str] = []
    cause = fault.get("cause")
    if cause:
        parts += [
            error_text(cause, indent),
            "",
            indent + (_CONTEXT if fault.get("cause_is_context") else _CAUSE),
            "",
        ]
    trace = str(fault.get("traceback", "")).rstrip("\n")
    for line in trace.split("\n") if trace else ():
        parts += [indent + line, *(indent + "    " + text for text in _source(line))]
    last = error_line(fault)
    if not trace.endswith(last):
        parts.append(indent + last)
    parts += [f"{indent}note: {note}" for note in fault.get("notes", ())]
    for number, member in enumerate(fault.get("members", ()), 1):
        parts += [f"{indent}member {number}:", error_text(member, indent + "    ")]
    return "\n".join(parts)


def _source(frame: str) -> list[str]:
    """The line of source that a frame was at, if this machine has the file. Like Python it shows what is there now."""
    found = _FRAME.match(frame)
    if found is None:
        return []
    linecache.checkcache(found["file"])
    text = linecache.getline(found["file"], int(found["line"])).strip()
    return [text] if text else []
