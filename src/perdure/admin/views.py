"""Runs and records as people see them: decoded, named, with times as datetimes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from perdure.errors import EncodingError, one_line
from perdure.kernel.frontier import Frontier, decode_frontier
from perdure.kernel.journal import Fault, Record, Row, from_row
from perdure.kernel.values import codec_for
from perdure.kernel.values.faults import PLACE
from perdure.limits import NEVER
from perdure.store.model import DeadLetter, Publication, RunRow, Status

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_any = codec_for(Any)


def moment(at: int) -> datetime:
    """A stored time as a datetime in UTC."""
    at = max(0, min(at, NEVER))
    return _EPOCH + timedelta(microseconds=at)


class Wait(msgspec.Struct, frozen=True):
    """One thing a run waits for."""

    kind: str
    location: str
    since: datetime
    until: datetime | None
    site: str
    detail: str


class RunView(msgspec.Struct, frozen=True):
    """One run, as stored a moment ago."""

    id: str
    workflow: str
    version: str
    status: Status
    generation: int
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    records: int
    #: What it waits for; the first few, `waiting_count` in all.
    waiting: tuple[Wait, ...]
    waiting_count: int
    wake_at: datetime | None
    cancel_requested: bool
    #: Why it is parked, or why nobody runs it; of a failed run its error, in one line.
    reason: str | None
    #: What the workflow last said with `status(...)`, and its `state`.
    custom_status: Any
    state: dict[str, Any]
    #: Records that are no longer in the journal: finished iterations of loops.
    pruned: int = 0


def run_view(row: RunRow, reason: str | None = None) -> RunView:
    """`reason`: what only its journal, or its store, says about the row."""
    frontier = _frontier(row)
    waits = frontier.operations if frontier is not None else ()
    return RunView(
        id=row.id,
        workflow=row.workflow,
        version=row.version,
        status=row.status,
        generation=row.generation,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        finished_at=moment(row.finished_at) if row.finished_at is not None else None,
        records=row.next_seq - 1 - row.pruned,
        pruned=row.pruned,
        waiting=tuple(
            Wait(
                w.kind,
                w.location,
                moment(w.since),
                moment(w.deadline) if w.deadline else None,
                w.site,
                w.detail,
            )
            for w in waits
        ),
        waiting_count=frontier.count if frontier is not None else 0,
        wake_at=moment(row.wake_at) if row.wake_at is not None else None,
        cancel_requested=row.cancel_requested,
        reason=row.reason or reason,
        custom_status=_value(row.custom_status),
        state=_value(row.state) or {},
    )


def _frontier(row: RunRow) -> Frontier | None:
    if row.frontier is None or row.status.terminal:
        return None
    try:
        return decode_frontier(row.frontier)
    except msgspec.MsgspecError:  # damaged: the run is parked for it, the others must still be listed
        return None


def _value(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return _any.decode(data, "a stored value")
    except EncodingError:  # a class this process does not have: show what is there
        return msgspec.json.decode(data)


class HistoryEntry(msgspec.Struct, frozen=True):
    """One record, for people. `data` is its body as plain JSON values."""

    seq: int
    at: datetime
    kind: str
    location: str
    data: dict[str, Any]
    record: Record | None = None


def history_entry(row: Row) -> HistoryEntry:
    """Raises `CorruptRecord` for a damaged row."""
    record = from_row(row)
    return HistoryEntry(row.seq, moment(row.at), row.kind, row.location, msgspec.json.decode(row.data), record)


class PublishedView(msgspec.Struct, frozen=True):
    """A published event that somebody may still get. `data` is its fields as plain JSON values."""

    id: int
    type: str
    data: Any
    published_at: datetime
    expires_at: datetime | None
    delivery: str
    consume: bool
    #: The run that is about to take it, if only one gets it.
    holder: str | None


def published_view(published: Publication) -> PublishedView:
    return PublishedView(
        id=published.id,
        type=published.type,
        data=msgspec.json.decode(published.data),
        published_at=moment(published.published_at),
        expires_at=moment(published.expires_at) if published.expires_at is not None else None,
        delivery=published.policy.delivery,
        consume=published.policy.consume,
        holder=published.holder,
    )


class DeadLetterView(msgspec.Struct, frozen=True):
    """An event that did not reach its run. `data` is its fields as plain JSON values."""

    id: int
    type: str
    data: Any
    #: The run it was for, and how that run stood at the time.
    target: str
    target_status: Status
    sent_at: datetime
    died_at: datetime
    reason: str


def dead_letter_view(letter: DeadLetter) -> DeadLetterView:
    return DeadLetterView(
        id=letter.id,
        type=letter.type,
        data=msgspec.json.decode(letter.data),
        target=letter.target,
        target_status=letter.target_status,
        sent_at=moment(letter.sent_at),
        died_at=moment(letter.died_at),
        reason=letter.reason,
    )


def error_line(fault: Fault) -> str:
    """A recorded error in one line, with the place that raised it: `ValueError: no such card (orders.py:41)`."""
    name = fault.type.partition(":")[2]
    text = one_line(f"{name}: {fault.message}" if fault.message else name)
    places = PLACE.findall(fault.traceback)
    return f"{text} ({places[-1][0]}:{places[-1][1]})" if places else text
