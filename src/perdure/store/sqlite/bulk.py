"""A whole group of plain changes as one statement: the fast lane of the writer.

`apsw` gives up the interpreter's lock while SQLite works, and must then wait for the busy event loop to give it back:
up to five milliseconds, for every statement. Row by row the two threads would take turns where they should overlap. So
the usual work of a busy worker, advancing and starting runs, is one INSERT into a view, whose trigger does the rest
from JSON: SQLite goes through all rows, commits and syncs without asking Python for anything.

All or nothing: whatever is unusual (a turn that does not fit, an id that is taken, a large or binary value) makes the
statement fail and the group go the long way, where refused and repeated turns are recognised one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
import msgspec

from perdure.store.base import PLAIN, Created, Creation, NewRun, Turn
from perdure.store.refusals import FIRST_POSITION
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session

_BULK, _KEY = SQL["bulk"], SQL["key_of_run"]

#: Fewer rows are not worth the detour.
BULK_ROWS_MIN: Final = 16
#: Larger values go the long way: SQLite reads the JSON text of a row once for each of its columns.
BULK_BYTES_MAX: Final = 8_192

_encode = msgspec.json.Encoder().encode


class _Unusual(Exception):
    """Something that should not go through JSON."""


def prepare(session: Session) -> None:
    """Make the view and its trigger, for this connection only."""
    session.execute(SQL["bulk_view"])
    session.execute(SQL["bulk_trigger"])


class Bulk:
    """The rows of one group."""

    def __init__(self) -> None:
        self._advanced: list[tuple[Any, ...]] = []
        self._finished: list[tuple[Any, ...]] = []
        self._records: list[tuple[Any, ...]] = []
        self._runs: list[tuple[Any, ...]] = []
        self._first_records: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._advanced) + len(self._finished) + len(self._runs)

    def add(self, turns: Sequence[Turn], creations: Sequence[Creation]) -> bool:
        """False if one of them is not plain; the whole is then of no use."""
        try:
            for turn in turns:
                self._add_turn(turn)
            for new, opening in creations:
                self._add_run(new, opening)
        except (_Unusual, UnicodeDecodeError):
            return False
        return True

    def commit(self, session: Session) -> int:
        """Make it durable. Returns the key of the first new run, the others follow it one by one; 0 if there is none.

        Raises `apsw.ConstraintError`, with nothing changed, if anything did not fit.
        """
        lists = (self._advanced, self._finished, self._records, self._runs, self._first_records)
        rows = [_encode(each).decode() for each in lists]
        session.execute(_BULK, (*rows, len(self._advanced), len(self._finished)))
        if not self._runs:
            return 0
        first: int = session.value(_KEY, (self._runs[0][0],))
        return first

    def _add_turn(self, turn: Turn) -> None:
        if turn.consumed or turn.pruned or turn.continued is not None or turn.notice is not None:
            raise _Unusual
        if turn.waits is not None or turn.returned or turn.dead:
            raise _Unusual
        key, generation, expected, entries = turn.key, turn.generation, turn.expected_seq, turn.entries
        records = self._records
        for entry in entries:
            seq, at, kind, location, data, check = entry.row
            if entry.effect is not None or len(data) > BULK_BYTES_MAX:
                raise _Unusual
            records.append((key, generation, seq, at, kind, location, data.decode(), check))
        status, frontier = turn.status, turn.frontier
        rows = self._finished if status.terminal else self._advanced
        rows.append(
            (
                status,
                expected + len(entries),
                turn.at,
                turn.wake_at,
                frontier and _text(frontier),
                turn.custom_status and _text(turn.custom_status),
                turn.state and _text(turn.state),
                key,
                turn.epoch,
                generation,
                expected,
            )
        )

    def _add_run(self, new: NewRun, opening: Turn | None) -> None:
        if opening is None or new.parent is not None or opening.waits or not only_opens(opening):
            raise _Unusual
        if (opening.epoch, opening.generation, opening.expected_seq) != FIRST_POSITION:
            raise _Unusual  # a mistake of the caller, refused on the long way
        seq, at, kind, location, data, check = new.started
        self._first_records.append((seq, at, kind, location, _text(data), check))
        self._runs.append(
            (
                new.id,
                new.workflow,
                new.version,
                opening.status,
                int(new.owner is not None),
                new.owner,
                new.created_at,
                new.input_digest.hex(),
                opening.wake_at,
                opening.frontier and _text(opening.frontier),
                opening.custom_status and _text(opening.custom_status),
                opening.state and _text(opening.state),
            )
        )


def only_opens(turn: Turn) -> bool:
    """Whether a first turn merely says what the run waits for: then it is part of the new row, not a change of it."""
    return not turn.entries and not turn.status.terminal and turn.continued is None


def _text(data: bytes) -> str:
    if len(data) > BULK_BYTES_MAX:
        raise _Unusual
    return data.decode()


Request = tuple[Sequence[Turn], Sequence[Creation]]


def is_worthwhile(requests: Iterable[Request]) -> bool:
    """Whether there is enough to do: runs to change or create, and records."""
    rows = 0
    for turns, creations in requests:
        rows += len(turns) + 2 * len(creations)
        if rows < BULK_ROWS_MIN:
            rows += sum([len(turn.entries) for turn in turns])
        if rows >= BULK_ROWS_MIN:
            return True
    return False


def commit_all(session: Session, requests: Sequence[Request]) -> list[Sequence[Any]] | None:
    """Carry out all requests in one transaction of their own, one list of answers each. None: nothing was done, they
    have to go the long way."""
    if not is_worthwhile(requests):
        return None
    bulk = Bulk()
    if not all(bulk.add(turns, creations) for turns, creations in requests):
        return None
    try:
        key = bulk.commit(session)
    except apsw.ConstraintError:
        return None
    answers: list[Sequence[Any]] = []
    for turns, creations in requests:
        created: list[Any] = [PLAIN] * len(turns)
        for new, _ in creations:
            created.append(Created(key=key, epoch=int(new.owner is not None), committed=PLAIN))
            key += 1
        answers.append(created)
    return answers
