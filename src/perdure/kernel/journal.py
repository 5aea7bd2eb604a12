"""The journal: what a run is made of, record by record.

A `Record` is a position, a time, a location and a body. Bodies are small frozen structs; each knows its stored kind (a
short word, readable in `sqlite3`), what is true of it, and what it does to a run, and encodes to one JSON object. Those
about something that the code waits for stand with it (`kernel.operations`); here are the others and what all share.

Adding a field with a default is compatible in both directions; a new kind is refused by older releases with
`CorruptRecord`, which parks the run instead of guessing.

Values inside bodies are `msgspec.Raw`: the JSON that `kernel.values` made, embedded without re-encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Raw

from perdure.errors import CorruptRecord
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.outcomes import Complete, Continue, EndCancelled, Fail, Outcome

if TYPE_CHECKING:
    from perdure.kernel.run import Run

#: The engine's own replay rules, of the runs that this release starts. A run keeps the number it was started with, so
#: that rules can change without breaking journals written under the old ones; one above this is not replayed
#: (`check_semantics`). How a new number is introduced: docs/reference/journal.md.
SEMANTICS = 1
#: What a `Started` without a number means, for ever: defaults are left out of the encoding, so this must not follow
#: `SEMANTICS` (tests/change/test_semantics.py).
_FIRST_SEMANTICS = 1


#: The default of optional raw fields: falsy, and left out of the encoding. (`Raw | None` cannot be decoded:
#: inside a union msgspec takes only null for it.)
ABSENT = Raw()
_NOTHING: frozenset[int] = frozenset()


#: Every kind of record, by its stored word.
BODIES: dict[str, type[Body]] = {}


class Body(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of every record body. Nothing in one can refer back to it, so the garbage collector need not look."""

    kind: ClassVar[str] = ""
    #: What people call the operation that it is about.
    about: ClassVar[str] = ""
    #: Whether an operation of the code is over by it, or has only begun.
    settles: ClassVar[bool] = False
    #: Whether it says that an attempt of a step has failed.
    is_failure: ClassVar[bool] = False
    opens: ClassVar[bool] = False
    #: Whether it may stand behind the record that brought the code to its end.
    may_follow_end: ClassVar[bool] = False
    #: Whether it ends the generation.
    is_end: ClassVar[bool] = False
    #: Whether it is written beside what the code was doing, rather than delivered to it.
    is_beside: ClassVar[bool] = False
    #: Whether it says what a person wanted, and nothing about the code.
    is_by_people: ClassVar[bool] = False
    #: Whether it stands for earlier records, which may have been deleted.
    stands_for_others: ClassVar[bool] = False
    #: Whether a child is over by it.
    ends_child: ClassVar[bool] = False
    #: The error that the code sees for the recorded one, which it names.
    raised_as: ClassVar[str] = ""

    def __init_subclass__(cls, **_options: object) -> None:
        if cls.kind:
            BODIES[cls.kind] = cls

    def apply(self, run: Run, record: Record) -> None:
        """What it does to the run that it is delivered to. By default nothing: it is looked up when the code asks."""

    def edited(self, value: Raw) -> Body | None:
        """The record that stands for it in a run where what it is about came to another result, if it has one."""
        return None

    def outcome(self) -> Outcome | None:
        """How the run ended, if it ended by this, for what it said to others."""
        return None


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A recorded exception (see `kernel.values.encode_error`)."""

    type: str  # "module:Qualified.Name"
    message: str
    args: Raw = ABSENT  # tagged JSON list, absent when the arguments could not be stored
    attributes: Raw = ABSENT  # tagged JSON dict of the instance's own attributes
    notes: tuple[str, ...] = ()
    cause: Fault | None = None
    cause_is_context: bool = False  # shown as "during handling of", not "direct cause"
    suppress_context: bool = False
    members: tuple[Fault, ...] = ()  # of an exception group
    traceback: str = ""
    cut: bool = False  # something was left out to stay bounded


class Started(Body, frozen=True, gc=False):
    """First record of every generation."""

    kind = "started"
    workflow: str
    version: str
    input: Raw
    seed: int
    semantics: int = _FIRST_SEMANTICS
    parent: str | None = None
    state: Raw = ABSENT  # carried over from the generation before

    def apply(self, run: Run, record: Record) -> None:
        run.begin(record.at, self.seed, self.parent, self.input, self.state)


class PatchChosen(Body, frozen=True, gc=False):
    """`patched(...)` answered True at this location: the run takes the new way, for ever."""

    kind = "patch_chosen"
    about = "patch"
    may_follow_end = True  # written beside the last thing the code did
    is_beside = True

    site: str = ""


class Recorded(Body, frozen=True, gc=False):
    """A value that auto mode read from the process (a secret, the environment, the order of a set): no effect, so it
    shares the commit of whatever comes next, and a replay reads it here."""

    kind = "recorded"
    about = "value"
    may_follow_end = True
    is_beside = True

    value: Raw
    site: str = ""


class CancelRequested(Body, frozen=True, gc=False):
    """Somebody asked the run to cancel. Only the first request is recorded."""

    kind = "cancel_requested"
    reason: str = ""
    grace_until: int = 0  # after this moment the run is ended without its consent

    def apply(self, run: Run, record: Record) -> None:
        run.cancel(self.reason, self.grace_until)


class RetriedNow(Body, frozen=True, gc=False):
    """Somebody asked for the next attempt now: the backoff of the step at this location (of every step: "") is over."""

    kind = "hurried"
    is_by_people = True

    def apply(self, run: Run, record: Record) -> None:
        run.pending.retry_now(record.location, run.now)


class Resumed(Body, frozen=True, gc=False):
    """A failed run goes on. The journal is append-only, so what made it fail stays; replays pass over it.

    `taken_back` are the records that count no longer: the end itself, and the failures that led to it. The steps that
    are pending when this is delivered begin again with their first attempt.
    """

    kind = "resumed"
    may_follow_end = True
    is_by_people = True

    taken_back: tuple[int, ...]

    def apply(self, run: Run, record: Record) -> None:
        run.pending.begin_again(run.now)


class End(Body, frozen=True, gc=False):
    """What ends a generation. Only met when replaying one that has: the code must have come to its end as well."""

    may_follow_end = True
    is_end = True

    def apply(self, run: Run, record: Record) -> None:
        run.meet_end(record)


class Continued(End, frozen=True, gc=False):
    """The generation ended by `continue_as`; the next one's `Started` is in the same commit."""

    kind = "continued"
    workflow: str
    version: str


class Completed(End, frozen=True, gc=False):
    kind = "completed"
    value: Raw
    abandoned: tuple[str, ...] = ()  # tasks that were still running and were cancelled

    def outcome(self) -> Outcome:
        return Complete(self.value, self.abandoned)


class Failed(End, frozen=True, gc=False):
    kind = "failed"
    error: Fault
    abandoned: tuple[str, ...] = ()

    def outcome(self) -> Outcome:
        return Fail(self.error, self.abandoned)


class Cancelled(End, frozen=True, gc=False):
    kind = "cancelled"
    reason: str = ""
    terminated: bool = False  # ended from outside, without running the workflow's cleanup
    abandoned: tuple[str, ...] = ()

    def apply(self, run: Run, record: Record) -> None:
        run.meet_end(record, forced=True)

    def outcome(self) -> Outcome:
        return EndCancelled(self.reason, self.terminated, self.abandoned)


def end_of(outcome: Outcome) -> Body:
    """The record of an end."""
    match outcome:
        case Complete(value, abandoned):
            return Completed(value, abandoned)
        case Fail(error, abandoned):
            return Failed(error, abandoned)
        case EndCancelled(reason, terminated, abandoned):
            return Cancelled(reason, terminated, abandoned)
        case Continue(spec, _):
            return Continued(spec.name, spec.version)


TERMINAL_KINDS = frozenset({Completed.kind, Failed.kind, Cancelled.kind})


class Record(msgspec.Struct, frozen=True, gc=False):
    """One entry of a journal. `at` is microseconds since 1970 and never goes back within a run."""

    seq: int
    at: int
    location: str
    body: Body


class Row(NamedTuple):
    """A record as a store keeps it. `check` covers everything but itself."""

    seq: int
    at: int
    kind: str
    location: str
    data: bytes
    check: int


#: Makes a `Row` without the Python function that a named tuple has for it: one is made for every record.
_new_row: Callable[[type[Row], tuple[int, int, str, str, bytes, int]], Row] = tuple.__new__

_encode = msgspec.json.Encoder().encode
#: Made when the first record of a kind is read: making all of them would take milliseconds of every import.
_decoders: dict[str, Callable[[bytes], Body]] = {}


def _decoder(kind: str) -> Callable[[bytes], Body] | None:
    import perdure.kernel.operations as _  # noqa: F401  # whose records are then known

    body = BODIES.get(kind)
    if body is None:
        return None
    decode = _decoders[kind] = msgspec.json.Decoder(body).decode
    return decode


def to_row(record: Record) -> Row:
    """Encode a record for a store."""
    seq, at, location, body = record.seq, record.at, record.location, record.body
    data = _encode(body)
    kind = body.kind
    # Here and in `from_row`, not in a function of its own: every record of every run and replay comes by.
    check = crc32(data, crc32(f"{kind} {location}".encode(), (seq ^ at) & 0xFFFF_FFFF))
    return _new_row(Row, (seq, at, kind, location, data, check))


def started_record(
    spec: WorkflowSpec, data: bytes, seed: int, at: int, *, parent: str | None = None, state: bytes | None = None
) -> Record:
    """The first record of a generation."""
    carried = Raw(state) if state is not None else ABSENT
    return Record(1, at, "", Started(spec.name, spec.version, Raw(data), seed, SEMANTICS, parent, carried))


def beginning(records: Sequence[Record]) -> Started | None:
    """How a generation began; None if its first record is gone."""
    body = records[0].body if records else None
    return body if isinstance(body, Started) else None


def taken_back(records: Sequence[Record], kinds: Set[type[Body]] | None = None) -> frozenset[int]:
    """The records of a journal that count no longer. `kinds`: of all of its bodies, if they are known."""
    if kinds is not None and Resumed not in kinds:
        return _NOTHING
    found = [record.body for record in records if isinstance(record.body, Resumed)]
    return frozenset(seq for body in found for seq in body.taken_back) if found else _NOTHING


def check_semantics(records: Sequence[Record]) -> None:
    """Raises `CorruptRecord` if a journal follows replay rules that this release does not have."""
    started = beginning(records)
    if started is not None and started.semantics > SEMANTICS:
        raise CorruptRecord(
            f"the run follows replay rules {started.semantics}, and this release knows them up to {SEMANTICS}. "
            "It was started by a newer perdure: upgrade this worker, then resume the run."
        )


def from_row(row: Row) -> Record:
    """Decode a stored record.

    Raises `CorruptRecord` for a damaged row or a kind this release does not know; the caller parks the run.
    """
    seq, at, kind, location, data, check = row
    decode = _decoders.get(kind) or _decoder(kind)
    if decode is None:
        raise CorruptRecord(
            f"record {seq} is of the kind {kind!r}, which this release does not know. "
            "It was probably written by a newer perdure: upgrade this worker, then resume the run."
        )
    if crc32(data, crc32(f"{kind} {location}".encode(), (seq ^ at) & 0xFFFF_FFFF)) != check:
        raise CorruptRecord(
            f"record {seq} ({kind} at {location!r}) does not match its checksum: the stored bytes changed. "
            "Restore the store from a backup."
        )
    try:
        body = decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptRecord(f"record {seq} ({kind} at {location!r}) cannot be decoded: {error}.") from None
    return Record(seq, at, location, body)
