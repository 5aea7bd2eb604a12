"""Which runs a worker claims: its share of what is due, found without reading what was due long ago.

Each claim leaves an entry behind in the index of due runs, and a vacuum removes it only when no transaction is older.
An old snapshot (a report, a backup, a forgotten session) keeps them all, and a look that begins at the start of the
index reads every one: 20 ms after 100,000 claims. So a look begins where the last one that found everything ended, a
little earlier (docs/decisions/0147-look-for-due-runs-where-the-last-look-ended.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.limits import CLAIM_BEYOND_SHARE, CLAIM_COUNTED_MAX, NEVER
from perdure.store.model import RunRow
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.session import Session
from perdure.store.sql import workers as claims

#: How far back a look goes: transactions that were under way, rows that somebody else had locked, clocks that differ.
_MARGIN: Final = 10_000_000
#: Looks in a row that begin at a mark. The next one begins at the start, for whatever is there against all odds.
_MARKED_LOOKS_MAX: Final = 9


class Marks(NamedTuple):
    """Where a look begins, among runs that are due at once and among those that waited for their time."""

    at_once: int = -(2**63)
    timed: int = 0


_FROM_THE_START: Final = Marks()


class Due(NamedTuple):
    """What a look has counted, and the database's time."""

    runs: int
    workers: int
    now: int
    at_once: int


class Claims:
    """Of one worker. `count` and `take` run on threads, one after the other; the rest on the event loop."""

    def __init__(self) -> None:
        self._marks = _FROM_THE_START
        self._marked_looks = 0
        self._unknown: Sequence[tuple[str, str]] = ()
        #: How many runs the worker may still claim in its present look.
        self._share = 0
        self._due = Due(0, 0, 0, 0)
        self._at = 0

    def begin(self, at: int, unknown: Sequence[tuple[str, str]]) -> None:
        """A look begins."""
        if len(unknown) < len(self._unknown) or self._marked_looks >= _MARKED_LOOKS_MAX:
            self.start_over()
        self._unknown, self._at = tuple(unknown), at
        self._marked_looks += 1

    def start_over(self) -> None:
        """The next look reads everything: something may have become due that was due long ago."""
        self._marks, self._marked_looks = _FROM_THE_START, 0

    def count(self, session: Session) -> Due:
        ((runs, workers, now, at_once),) = session.rows(SQL["count_due"], (self._at, CLAIM_COUNTED_MAX, *self._marks))
        return Due(runs, workers, now, at_once)

    def counted(self, due: Due) -> None:
        """What this worker may take of it, so that the others get theirs."""
        self._due = due
        if not due.runs:
            self._share = 0
            self._move_marks()
        elif due.workers <= 1:
            self._share = NEVER
        else:
            self._share = -(-due.runs // due.workers) + CLAIM_BEYOND_SHARE

    @property
    def share(self) -> int:
        return self._share

    def take(
        self, session: Session, worker_id: str, at: int, limit: int, suspects_max: int, trusted: int
    ) -> Sequence[RunRow]:
        return claims.claim(session, worker_id, at, limit, suspects_max, self._unknown, trusted, self._marks)

    def taken(self, count: int, limit: int) -> None:
        self._share -= count
        if count < limit and self._share > 0:
            self._move_marks()  # that was all

    def _move_marks(self) -> None:
        due = self._due
        if due.now:
            self._marks = Marks(due.at_once - _MARGIN, max(0, min(due.now, self._at) - _MARGIN))
