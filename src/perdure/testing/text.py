"""A journal in readable form, stable from run to run: for snapshots in tests and for people.

1  started         order('o-1', 1999)
2  step_retry      charge          attempt 1: ConnectionError: down
3  step_done       charge          -> "receipt-1"
4  timer_fired     sleep           after 30 days
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Literal

import msgspec

from perdure.admin.views import HistoryEntry

Names = Literal["short", "sites"]

_VALUE_CHARS_MAX = 200


def journal_text(history: Iterable[HistoryEntry], *, names: Names = "short") -> str:
    """One line for each record: number, time since the one before if any passed, kind, location, what it holds.

    No times of day, seeds or ids, so it is the same every time. `names="sites"` adds where the code asked.
    """
    entries = list(history)
    lines: list[tuple[str, str, str, str, str]] = []
    before = entries[0].at if entries else None
    for entry in entries:
        passed = entry.at - before if before is not None else timedelta(0)
        before = entry.at
        site = f"  [{entry.data['site']}]" if names == "sites" and entry.data.get("site") else ""
        lines.append((str(entry.seq), _passed(passed), entry.kind, entry.location, _detail(entry) + site))
    widths = [max((len(line[column]) for line in lines), default=0) for column in range(4)]
    return "\n".join(
        f"{seq:>{widths[0]}}  {passed:>{widths[1]}}  {kind:<{widths[2]}}  {location:<{widths[3]}}  {detail}".rstrip()
        for seq, passed, kind, location, detail in lines
    )


def _passed(passed: timedelta) -> str:
    """`+30d`, `+2h`, `+1.5s`: the largest unit that says it exactly, else seconds."""
    microseconds = passed // timedelta(microseconds=1)
    if microseconds <= 0:
        return ""
    for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000)):
        if microseconds % size == 0:
            return f"+{microseconds // size}{unit}"
    return f"+{microseconds / 1_000_000:.6f}".rstrip("0").rstrip(".") + "s"


def _detail(entry: HistoryEntry) -> str:
    data = entry.data
    match entry.kind:
        case "started":
            return f"{data['workflow']}{_arguments(data.get('input'))}  version {data['version']}"
        case "step_done":
            return f"{_arguments(data.get('args'))} -> {value_text(data.get('value'))}{_attempt(data)}".lstrip()
        case "step_retry" | "step_failed":
            return f"attempt {data.get('attempt', 1)}: {_error(data['error'])}"
        case "event_received":
            return f"{data['type']} {value_text(data.get('value'))}"
        case "child_started":
            return f"{data['workflow']} as {data['child_id']!r}" + _refused(data)
        case "child_failed" | "failed":
            return _error(data["error"])
        case "sent":
            return f"{data['type']} to {data['target']!r}" + _refused(data)
        case "completed" | "child_done":
            return f"-> {value_text(data.get('value'))}"
        case "cancel_requested" | "cancelled" | "child_cancelled":
            return str(data.get("reason", ""))
        case "continued":
            return f"as {data['workflow']} version {data['version']}"
        case _:
            hidden = {"site", "digest"}
            return " ".join(f"{name}={value_text(value)}" for name, value in data.items() if name not in hidden)


def _refused(data: dict[str, Any]) -> str:
    return f" refused: {data['refused']}" if data.get("refused") else ""


def _attempt(data: dict[str, Any]) -> str:
    return f"  (attempt {data['attempt']})" if data.get("attempt", 1) > 1 else ""


def _arguments(value: Any) -> str:
    match value:
        case None:
            return ""
        case dict():
            return f"({', '.join(f'{name}={value_text(each)}' for name, each in value.items())})"
        case list():
            return f"({', '.join(value_text(each) for each in value)})"
        case _:
            return f"({value_text(value)})"


def _error(error: dict[str, Any]) -> str:
    name = str(error.get("type", "")).rpartition(":")[2]
    message = str(error.get("message", "")).partition("\n")[0]
    return f"{name}: {message}" if message else name


def value_text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 1] + "…"
