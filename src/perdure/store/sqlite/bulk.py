"""A whole group of plain changes as one statement: the fast path of the writer.

`apsw` gives up the interpreter's lock while SQLite works, and must then wait for the busy event loop to give it back:
up to five milliseconds, for every statement. Row by row the two threads would take turns where they should overlap. So
the usual work of a busy worker, advancing and starting runs, is one INSERT into a view, whose trigger does the rest
from JSON: SQLite goes through all rows, commits and syncs without asking Python for anything. What is JSON or binary
itself goes beside it, in one piece, so that nobody has to quote it and to take the quotes away again.

All or nothing: whatever is unusual (a turn that does not fit, an id that is taken, a large value) makes the statement
fail and the group go the long way, where refused and repeated turns are recognised one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from perdure.store.model import NewRun, RunKey
from perdure.store.refusals import FIRST_POSITION
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import STATEMENT_FAULTS, Session
from perdure.store.turn import NO_EFFECTS, Created, Creation, Turn, goes_from_step_to_step, only_opens

_BULK, _STEP, _KEY = SQL["bulk"], SQL["step"], SQL["key_of_run"]

#: Fewer rows are not worth the detour.
BULK_ROWS_MIN: Final = 16
#: Larger values go the long way: here all of them are copied into one piece.
BULK_BYTES_MAX: Final = 8_192

_NOWHERE: Final = (None, None)

#: A row that does not fit, or a value that this way cannot carry (half a character, a number of more than 64 bits). The
#: long way says which request it is of; here it would be taken for a fault of the store, and repeated for ever.
_UNSUITABLE: Final = (*STATEMENT_FAULTS, ValueError, TypeError, OverflowError)

_encode = msgspec.json.Encoder().encode


class _Unusual(Exception):
    """Something that should not go through JSON."""


def prepare(session: Session) -> None:
    """Make the views and their triggers, for this connection only."""
    for statement in (SQL["bulk_view"], SQL["bulk_trigger"], SQL["step_view"], SQL["step_trigger"]):
        session.execute(statement)


class Bulk:
    """The rows of one group."""

    __slots__ = ("_advanced", "_end", "_finished", "_parts", "_records", "_runs", "_stepped", "_with_more", "_worker")

    def __init__(self) -> None:
        self._stepped: list[tuple[Any, ...]] = []
        self._advanced: list[tuple[Any, ...]] = []
        self._finished: list[tuple[Any, ...]] = []
        self._records: list[tuple[Any, ...]] = []
        self._runs: list[tuple[Any, ...]] = []
        #: What rows refer to by its position, beginning with 1, and how far that has come.
        self._parts: list[bytes] = []
        self._end = 1
        #: Whether a run has a status or a state of its own.
        self._with_more = False
        #: Whose turns they are; None: there is none yet.
        self._worker: str | None = None

    def add(self, turns: Sequence[Turn], creations: Sequence[Creation]) -> bool:
        """False if one of them is not plain; the whole is then of no use."""
        try:
            self._add_turns(turns)
            for new, opening in creations:
                self._add_run(new, opening)
        except _Unusual:
            return False
        return True

    def parameters(self) -> tuple[Any, ...]:
        """Of the statement, which raises `apsw.ConstraintError`, with nothing changed, if anything does not fit."""
        lists = (self._stepped, self._advanced, self._finished, self._records, self._runs)
        rows = [_encode(each).decode() for each in lists]
        counts = (len(self._stepped), len(self._advanced), len(self._finished))
        return (*rows, b"".join(self._parts), *counts, self._with_more, self._worker)

    @property
    def work(self) -> int:
        """How much there is to do, in changes of a table or an index, more or less."""
        records = len(self._stepped) + len(self._records) + len(self._runs)
        return 2 * records + len(self._stepped) + len(self._advanced) + 4 * (len(self._finished) + len(self._runs))

    def first_key(self, session: Session) -> RunKey:
        """The key of the first run that was created, the others follow it one by one; 0 if there is none."""
        found: RunKey = session.value(_KEY, (self._runs[0][0],)) if self._runs else 0
        return found

    def _add_turns(self, turns: Sequence[Turn]) -> None:
        # Most turns go from step to step, so those are dealt with here, without a call for each.
        stepped, parts, end = self._stepped, self._parts, self._end
        if self._worker is None and turns:
            self._worker = turns[0].worker
        worker = self._worker
        for turn in turns:
            if turn.worker != worker:
                raise _Unusual  # two engines with one store
            if not goes_from_step_to_step(turn):
                self._end = end
                self._add_turn(turn)
                end = self._end
                continue
            seq, at, _, location, data, check = turn.entries[0].row
            frontier = turn.frontier or b""
            size, rest = len(data), len(frontier)
            if size + rest > BULK_BYTES_MAX:
                raise _Unusual
            stepped.append((turn.key, turn.epoch, seq, at, end + size, rest, location, check, end, size))
            parts += (data, frontier)
            end += size + rest
        self._end = end

    def _add_turn(self, turn: Turn) -> None:
        if turn.consumed or turn.pruned or turn.continued is not None or turn.notice is not None:
            raise _Unusual
        if turn.waits is not None or turn.returned or turn.dead:
            raise _Unusual
        key, generation, expected, entries = turn.key, turn.generation, turn.expected_seq, turn.entries
        begin = self._end
        for entry in entries:
            seq, at, kind, location, data, check = entry.row
            if entry.effect is not None or len(data) > BULK_BYTES_MAX:
                raise _Unusual
            self._parts.append(data)
            self._records.append((key, generation, seq, at, kind, location, check, begin, len(data)))
            begin += len(data)
        self._end = begin
        status = turn.status
        rows = self._finished if status.terminal else self._advanced
        rows.append(
            (
                status,
                expected + len(entries),
                turn.at,
                turn.wake_at,
                key,
                turn.epoch,
                generation,
                expected,
                *self._place(turn.frontier),
                *self._more(turn),
            )
        )

    def _add_run(self, new: NewRun, opening: Turn | None) -> None:
        if opening is None or new.parent is not None or opening.waits or not only_opens(opening):
            raise _Unusual
        if (opening.epoch, opening.generation, opening.expected_seq) != FIRST_POSITION:
            raise _Unusual  # a mistake of the caller, refused on the long way
        seq, at, kind, location, data, check = new.started
        self._runs.append(
            (
                new.id,
                new.workflow,
                new.version,
                opening.status,
                int(new.owner is not None),
                new.owner,
                new.created_at,
                opening.wake_at,
                *self._place(new.input_digest),
                *self._place(opening.frontier),
                *self._more(opening),
                seq,
                at,
                kind,
                location,
                check,
                *self._place(data),
            )
        )

    def _more(self, turn: Turn) -> tuple[int | None, ...]:
        """Where what the run says of itself is among the bytes."""
        if turn.custom_status is None and turn.state is None:
            return (*_NOWHERE, *_NOWHERE)
        self._with_more = True
        return (*self._place(turn.custom_status), *self._place(turn.state))

    def _place(self, data: bytes | None) -> tuple[int | None, int | None]:
        """Where a value is among the bytes."""
        if data is None:
            return _NOWHERE
        size, begin = len(data), self._end
        if size > BULK_BYTES_MAX:
            raise _Unusual
        self._end = begin + size
        self._parts.append(data)
        return begin, size


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


def commit_all(
    session: Session, requests: Sequence[Request], only_sqlite_is_left: Callable[[int], None]
) -> list[Sequence[Any]] | None:
    """Carry out all requests in one transaction of their own, one list of answers each. None: nothing was done, they
    have to go the long way. `only_sqlite_is_left` is called at the moment from which on the interpreter is not needed,
    with the amount of work that is left.
    """
    if not is_worthwhile(requests):
        return None
    bulk = Bulk()
    try:
        if not all(bulk.add(turns, creations) for turns, creations in requests):
            return None
        parameters = bulk.parameters()
        only_sqlite_is_left(bulk.work)
        session.execute(_BULK, parameters)
    except _UNSUITABLE:
        return None
    key = bulk.first_key(session)
    answers: list[Sequence[Any]] = []
    for turns, creations in requests:
        created: list[Any] = [NO_EFFECTS] * len(turns)
        for new, _ in creations:
            created.append(Created(key=key, epoch=int(new.owner is not None), committed=NO_EFFECTS))
            key += 1
        answers.append(created)
    return answers


def commit_step(session: Session, turn: Turn) -> bool:
    """Carry out one turn by one statement, in a transaction of its own: a chain of steps has no group to be part of.
    False: nothing was done, it has to go the long way."""
    seq, at, _, location, data, check = turn.entries[0].row
    try:
        session.execute(_STEP, (turn.key, turn.epoch, seq, at, location, data, check, turn.frontier, turn.worker))
    except _UNSUITABLE:
        return False
    return True
