"""The journal: what a run is made of, record by record.

A `Record` is a position, a time, a location and a body. Bodies are a closed union of small frozen structs;
each knows its stored kind (a short word, readable in `sqlite3`) and encodes to one JSON object. Adding a
field with a default is compatible in both directions; a new kind is refused by older releases with
`CorruptRecord`, which parks the run instead of guessing.

Values inside bodies are `msgspec.Raw`: the JSON that `kernel.codec` made, embedded without re-encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Raw

from perdure.errors import CorruptRecord
from perdure.native import in_c

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


class Body(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of every record body. Nothing in one can refer back to it, so the garbage collector need not look."""

    kind: ClassVar[str] = ""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A recorded exception (see `kernel.codec.encode_error`)."""

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


class StepDone(Body, frozen=True, gc=False):
    """A step's result. After this the step never runs again."""

    kind = "step_done"
    value: Raw
    attempt: int = 1
    args: Raw = ABSENT
    digest: int = 0  # crc32 of the encoded arguments
    site: str = ""  # "orders.py:41", where the workflow asked


class StepRetry(Body, frozen=True, gc=False):
    """A failed attempt that will be followed by another one at `next_at`."""

    kind = "step_retry"
    attempt: int
    error: Fault
    next_at: int
    args: Raw = ABSENT
    digest: int = 0
    site: str = ""


class StepFailed(Body, frozen=True, gc=False):
    """The step's last failure: raised into the workflow."""

    kind = "step_failed"
    attempt: int
    error: Fault
    args: Raw = ABSENT
    digest: int = 0
    site: str = ""


class TimerFired(Body, frozen=True, gc=False):
    """A sleep or timeout came due."""

    kind = "timer_fired"
    site: str = ""


class EventReceived(Body, frozen=True, gc=False):
    """An event left the inbox and reached a `receive`."""

    kind = "event_received"
    event_id: int
    type: str
    value: Raw
    sent_at: int
    site: str = ""
    published: bool = False  # meant for whoever was to have it, rather than sent to this run
    request: str = ""  # whoever asks waits for the reply to this


class Taken(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One event among those that a `receive_many` got."""

    event_id: int
    type: str
    value: Raw
    sent_at: int
    published: bool = False
    request: str = ""


class EventsReceived(Body, frozen=True, gc=False):
    """Events left the inbox together and reached a `receive_many`: all it waited for, or what was there in time."""

    kind = "events_received"
    events: tuple[Taken, ...] = ()
    site: str = ""


class ChildStarted(Body, frozen=True, gc=False):
    """A child run exists, created in the same commit as this record; or why it could not be."""

    kind = "child_started"
    child_id: str
    workflow: str
    version: str
    detached: bool = False
    refused: str = ""  # "conflict": the explicit id is taken by something else
    site: str = ""


class ChildDone(Body, frozen=True, gc=False):
    kind = "child_done"
    value: Raw
    child_id: str = ""


class ChildFailed(Body, frozen=True, gc=False):
    kind = "child_failed"
    error: Fault
    child_id: str = ""


class ChildCancelled(Body, frozen=True, gc=False):
    kind = "child_cancelled"
    reason: str = ""
    child_id: str = ""


class Sent(Body, frozen=True, gc=False):
    """An event (or a cancel request) left for another run, in the same commit as this record."""

    kind = "sent"
    target: str
    type: str  # the event's name, or "cancel"
    refused: str = ""  # "not_found", "finished", "full": nothing left
    site: str = ""


class Published(Body, frozen=True, gc=False):
    """An event was published, in the same commit as this record."""

    kind = "published"
    type: str
    value: Raw
    site: str = ""


class Replied(Body, frozen=True, gc=False):
    """The answer to a request left, in the same commit as this record."""

    kind = "replied"
    request: str
    value: Raw
    site: str = ""


class RunWatched(Body, frozen=True, gc=False):
    """From now on the end of another run is told to this one; or why not."""

    kind = "run_watched"
    run_id: str
    refused: str = ""  # "not_found"
    site: str = ""


class RunEnded(Body, frozen=True, gc=False):
    """The run that `wait_for_run` waited for has ended. Without value and error it was cancelled."""

    kind = "run_ended"
    run_id: str
    value: Raw = ABSENT
    error: Fault | None = None
    cancelled: str = ""


class PatchChosen(Body, frozen=True, gc=False):
    """`patched(...)` answered True at this location: the run takes the new way, for ever."""

    kind = "patch_chosen"
    site: str = ""


class Recorded(Body, frozen=True, gc=False):
    """A value that auto mode read from the process (a secret, the environment, the order of a set): no effect, so it
    shares the commit of whatever comes next, and a replay reads it here."""

    kind = "recorded"
    value: Raw
    site: str = ""


class LoopState(Body, frozen=True, gc=False):
    """An iteration of a `loop` is over, with everything in it: a replay goes on after it, with this state.

    Written at the end of the turn in which the iteration ended; `after` and `now` say where in that turn this was.
    The older iterations' records may be deleted in the commit that writes this.
    """

    kind = "loop_state"
    iteration: int
    state: Raw
    after: int  # the last record delivered to the code when the iteration ended
    now: int  # the run's time at that moment
    status: Raw = ABSENT  # what `status(...)` last said
    values: Raw = ABSENT  # the run's `state`


class CancelRequested(Body, frozen=True, gc=False):
    """Somebody asked the run to cancel. Only the first request is recorded."""

    kind = "cancel_requested"
    reason: str = ""
    grace_until: int = 0  # after this moment the run is ended without its consent


class Hurried(Body, frozen=True, gc=False):
    """Somebody asked for the next attempt now: the backoff of the step at this location (of every step: "") is over."""

    kind = "hurried"


class Resumed(Body, frozen=True, gc=False):
    """A failed run goes on. The journal is append-only, so what made it fail stays; replays pass over it.

    `taken_back` are the records that count no longer: the end itself, and the failures that led to it. The steps that
    are pending when this is delivered begin again with their first attempt.
    """

    kind = "resumed"
    taken_back: tuple[int, ...]


class Continued(Body, frozen=True, gc=False):
    """The generation ended by `continue_as`; the next one's `Started` is in the same commit."""

    kind = "continued"
    workflow: str
    version: str


class Completed(Body, frozen=True, gc=False):
    kind = "completed"
    value: Raw
    abandoned: tuple[str, ...] = ()  # tasks that were still running and were cancelled


class Failed(Body, frozen=True, gc=False):
    kind = "failed"
    error: Fault
    abandoned: tuple[str, ...] = ()


class Cancelled(Body, frozen=True, gc=False):
    kind = "cancelled"
    reason: str = ""
    terminated: bool = False  # ended from outside, without running the workflow's cleanup
    abandoned: tuple[str, ...] = ()


BODIES: tuple[type[Body], ...] = (
    Started,
    StepDone,
    StepRetry,
    StepFailed,
    TimerFired,
    EventReceived,
    EventsReceived,
    ChildStarted,
    ChildDone,
    ChildFailed,
    ChildCancelled,
    Sent,
    Published,
    Replied,
    RunWatched,
    RunEnded,
    PatchChosen,
    Recorded,
    LoopState,
    CancelRequested,
    Hurried,
    Resumed,
    Continued,
    Completed,
    Failed,
    Cancelled,
)

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
_bodies: dict[str, type[Body]] = {body.kind: body for body in BODIES}
#: Made when the first record of a kind is read: making all of them would take milliseconds of every import.
_decoders: dict[str, Callable[[bytes], Body]] = {}


def _decoder(kind: str) -> Callable[[bytes], Body] | None:
    body = _bodies.get(kind)
    if body is None:
        return None
    decode = _decoders[kind] = msgspec.json.Decoder(body).decode
    return decode


@in_c
def to_row(record: Record) -> Row:
    """Encode a record for a store."""
    seq, at, location, body = record.seq, record.at, record.location, record.body
    data = _encode(body)
    kind = "step_done" if type(body) is StepDone else body.kind  # most are, and a constant is found faster
    # Here and in `from_row`, not in a function of its own: every record of every run and replay comes by.
    check = crc32(data, crc32(f"{kind} {location}".encode(), (seq ^ at) & 0xFFFF_FFFF))
    return _new_row(Row, (seq, at, kind, location, data, check))


def check_semantics(records: Sequence[Record]) -> None:
    """Raises `CorruptRecord` if a journal follows replay rules that this release does not have."""
    started = records[0].body if records else None
    if type(started) is Started and started.semantics > SEMANTICS:
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
