"""The demo's timeline: one line per order, one character per moment, taken from the log of the steps and the journals.

Plain characters only, so that it reads the same in a pipe, in a log and without colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from rich.text import Text

from perdure.admin.views import HistoryEntry
from perdure.cli.demo_evidence import Evidence

LABEL_COLUMNS = 10
BAR_COLUMNS = 66

LETTERS = {"charge": "C", "reserve": "R", "ship": "S", "notify": "N"}
STYLES = {
    **dict.fromkeys("CRSN", "green"), **dict.fromkeys("crsn", "bold red"),
    "z": "blue", "?": "yellow", "!": "bold red", "=": "cyan", ".": "dim",
}  # fmt: skip

LEGEND = (
    "C charge  R reserve  S ship (child)  N notify   c r s n  cut off",
    "z asleep  ? waiting for Approved   . no worker, or queued   ! kill",
)


class Span(NamedTuple):
    """Something that went on for a while; later spans are drawn over earlier ones."""

    begin: float
    end: float
    mark: str


class Axis:
    """Seconds to columns."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin = begin
        self.seconds = max(end - begin, 0.001)

    def column(self, at: float) -> int:
        return min(BAR_COLUMNS - 1, max(0, math.floor((at - self.begin) / self.seconds * BAR_COLUMNS)))

    def draw(self, spans: Sequence[Span]) -> str:
        cells = [" "] * BAR_COLUMNS
        for span in spans:
            first = self.column(span.begin)
            for column in range(first, max(first + 1, self.column(span.end))):
                cells[column] = span.mark
        return "".join(cells)

    def ruler(self) -> str:
        cells = [" "] * (BAR_COLUMNS + 4)
        step = 1 if self.seconds < 15 else 5
        for second in range(0, math.floor(self.seconds) + 1, step):
            text = f"{second}s"
            column = self.column(self.begin + second)
            cells[column : column + len(text)] = text
        return "".join(cells).rstrip()


def timeline(evidence: Evidence) -> list[Text]:
    """The whole picture, line by line, at most 80 columns wide."""
    begin = min([one.begin for one in evidence.executions] + [_seconds(h[0].at) for h in evidence.histories.values()])
    axis = Axis(begin, evidence.finished)
    workers = (
        Span(evidence.first_ready, evidence.killed, "="),
        Span(evidence.second_ready, evidence.finished, "="),
        Span(evidence.killed, evidence.killed, "!"),
    )
    lines = [drawn("", axis.ruler()), drawn("worker 1", axis.draw((workers[0], workers[2])))]
    lines.append(drawn("worker 2", axis.draw(workers[1:2])))
    lines += [drawn(run, axis.draw(list(_spans(evidence, run)))) for run in evidence.expected]
    return lines + [Text(f"{' ' * LABEL_COLUMNS}{text}", style="dim") for text in LEGEND]


def drawn(label: str, bar: str, styles: Mapping[str, str] = STYLES) -> Text:
    """A line of the picture."""
    line = Text(f"{label:<{LABEL_COLUMNS}}")
    for mark in bar:
        line.append(mark, style=styles.get(mark, "") if label else "dim")
    line.rstrip()
    return line


def _spans(evidence: Evidence, run: str) -> Iterator[Span]:
    entries = evidence.histories[run]
    yield Span(_seconds(entries[0].at), _seconds(entries[-1].at), ".")
    yield from _waits(entries)
    cut_off = set(evidence.interrupted)
    for one in evidence.executions:
        owner, location = one.place
        if owner == run or owner.startswith(f"{run}/"):
            letter = LETTERS.get(location, "x")
            end = one.end if one.end is not None else evidence.killed
            yield Span(one.begin, end, letter.lower() if one in cut_off else letter)
    if evidence.at_kill.states.get(run) not in (None, "done"):
        yield Span(evidence.killed, evidence.killed, "!")


def _waits(entries: Sequence[HistoryEntry]) -> Iterator[Span]:
    """A wait lasts from the record before it to its own: nothing else happens in this workflow meanwhile."""
    for before, entry in pairwise(entries):
        mark = {"event_received": "?", "timer_fired": "z"}.get(entry.kind)
        if mark:
            yield Span(_seconds(before.at), _seconds(entry.at), mark)


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
