"""What `perdure doctor` asks of a store: is it well, and what is in it?

A store answers with `Examined`: findings about itself, each with what to do, and figures about its runs and workers,
which `admin/doctor.py` judges for all stores alike. Nothing is written, the store need not be open, each check is
bounded in time, and one that fails says so and stops no other (`Checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from perdure.errors import PerdureError, describe_line
from perdure.store.model import Status

T = TypeVar("T")


class Level(StrEnum):
    """How a check came out. A problem loses or stops something, or will; what needs attention may."""

    OK = "ok"
    ATTENTION = "attention"
    PROBLEM = "problem"

    @property
    def rank(self) -> int:
        """The worse, the higher."""
        return (Level.OK, Level.ATTENTION, Level.PROBLEM).index(self)


def worst(levels: Iterable[Level]) -> Level:
    return max(levels, key=lambda level: level.rank, default=Level.OK)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check has found. `check` and `figures` are for programs, `text` and `advice` for people."""

    check: str
    level: Level
    #: What was found, with its figure.
    text: str
    #: What to do; empty where there is nothing to do.
    advice: str = ""
    figures: Mapping[str, Any] = {}


def fine(check: str, text: str, advice: str = "", **figures: Any) -> Finding:
    return Finding(check, Level.OK, text, advice, figures)


def attention(check: str, text: str, advice: str, **figures: Any) -> Finding:
    return Finding(check, Level.ATTENTION, text, advice, figures)


def problem(check: str, text: str, advice: str, **figures: Any) -> Finding:
    return Finding(check, Level.PROBLEM, text, advice, figures)


WorkerState: TypeAlias = Literal["alive", "draining", "silent", "dead"]


class WorkerHealth(msgspec.Struct, frozen=True):
    """A registered worker. Draining: it has begun to leave, and begins nothing new. Silent: it missed a heartbeat, and
    is not yet taken for dead."""

    id: str
    name: str
    host: str
    pid: int
    state: WorkerState
    #: None: not counted, or the store does not know.
    runs: int | None = None
    silent_seconds: float | None = None
    #: The workflows and versions that it runs.
    definitions: Sequence[tuple[str, str]] = ()

    def runs_definition(self, workflow: str, version: str) -> bool:
        """Whether it may take a run of this definition."""
        return (workflow, version) in self.definitions


class DueRun(msgspec.Struct, frozen=True):
    """A run that anybody could claim, and that nobody has."""

    id: str
    workflow: str
    version: str
    #: Since when it is due, in microseconds.
    since: int
    #: Claims in a row that ended in the death of the worker.
    recoveries: int = 0
    reason: str | None = None


class Parked(msgspec.Struct, frozen=True):
    """Parked runs of one kind of reason, and one of them."""

    kind: str
    count: int
    example: str


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about what is in a store. None: it could not be found out, and a finding says why."""

    #: The time by which workers go here.
    now: int
    counts: Mapping[Status, int] | None = None
    parked: Sequence[Parked] | None = None
    workers: Sequence[WorkerHealth] | None = None
    #: The one that has waited the longest, or none.
    due: Sequence[DueRun] | None = None
    #: How many, as far as it is worth counting.
    due_count: int | None = None
    dead_letters: int | None = None
    dead_letter_since: int | None = None


class Examined(msgspec.Struct, frozen=True):
    #: The store as people may see it, without a password.
    store: str
    findings: Sequence[Finding]
    contents: Contents | None = None


@runtime_checkable
class Examinable(Protocol):
    """A store that can say how it is. Open or not: it looks for itself, and writes nothing."""

    async def examine(self) -> Examined: ...


class Checks:
    """Collects findings. A check that fails is one itself."""

    def __init__(self, explained: Callable[[Exception], str | None] = lambda _: None) -> None:
        """`explained`: what a store's own errors mean; None: nothing special."""
        self.findings: list[Finding] = []
        self._explained = explained

    def run(self, check: str, look: Callable[[], Finding | Sequence[Finding]]) -> None:
        """Look, and add what was found."""
        found = self.read(check, look)
        if found is not None:
            self.findings += [found] if isinstance(found, Finding) else found

    def read(self, check: str, look: Callable[[], T]) -> T | None:
        """Look for a figure; None, and a finding that says why, if that fails."""
        try:
            return look()
        except Exception as error:  # whatever it is: the other checks are made
            self.findings.append(attention(check, f"could not be checked: {self._said(error)}", ""))
            return None

    def _said(self, error: Exception) -> str:
        known = self._explained(error)
        if known is not None:
            return known
        return str(error) if isinstance(error, PerdureError) else describe_line(error)


def kind_of(reason: str | None) -> str:
    """Of the reason why a run is parked: what stands before the colon."""
    return (reason or "").partition(":")[0]


# -- words -----------------------------------------------------------------------------------------------


def duration_text(seconds: float) -> str:
    """`3 ms`, `12 s`, `5 min`, `3.2 h`, `14.0 d`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    for size, unit, digits in ((86_400.0, "d", 1), (3_600.0, "h", 1), (60.0, "min", 0)):
        if seconds >= size * 2 or unit == "min":
            return f"{seconds / size:.{digits}f} {unit}"
    raise AssertionError("minutes are left")


def size_text(size: int) -> str:
    """`512 bytes`, `3.4 MB`."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def count_text(count: int, noun: str) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
