"""A run as one JSON file: `export` reads it whole in one snapshot, `import` creates it elsewhere, byte for byte.

    {"format": "perdure-run", "version": 1, "checksum": "<blake2b of body>", "body": {...}}

The checksum covers the exact text of the body, so a file that was cut, edited or reformatted is refused. Records keep
their own checksums. An open run is imported paused: the original may still be running somewhere, and doing its steps a
second time must be somebody's decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure.admin.fork import put
from perdure.admin.reading import portable, row_of
from perdure.errors import ExportUnusable, PerdureError, RunNotFound
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.frontier import to_be_notified
from perdure.kernel.journal import ABSENT, Record, Row, Started, from_row
from perdure.kernel.verbs.checks import check_flag, check_reason, check_run_id
from perdure.store.model import CLAIMABLE, ItemKind, Loaded, NewItem, RunRow, Snapshot, Status
from perdure.store.protocol import Store

FORMAT: Final = "perdure-run"
#: Of the file. Records have versions of their own: a kind that this release does not know is refused.
VERSION: Final = 1


class StoredRecord(msgspec.Struct, frozen=True):
    seq: int
    at: int
    kind: str
    location: str
    check: int
    data: Raw


class Generation(msgspec.Struct, frozen=True):
    number: int
    records: tuple[StoredRecord, ...]


class Unread(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    type: str
    data: str
    sent_at: int
    policy: EventPolicy = DEFAULT_POLICY
    request: str = ""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything about a run that means something in another store."""

    id: str
    generation: int
    workflow: str
    version: str
    status: str
    created_at: int
    updated_at: int
    input_digest: str
    journals: tuple[Generation, ...]
    finished_at: int | None = None
    wake_at: int | None = None
    parent: str | None = None
    cancel_requested: bool = False
    reason: str | None = None
    frontier: Raw = ABSENT
    custom_status: Raw = ABSENT
    state: Raw = ABSENT
    inbox: tuple[Unread, ...] = ()
    #: Records of the current generation that were deleted: finished iterations of loops.
    pruned: int = 0


class File(msgspec.Struct, frozen=True):
    format: str
    version: int
    checksum: str
    body: Raw


async def export_run(store: Store, run_id: str) -> bytes:
    """The whole run as a file. Raises `RunNotFound`, and `CorruptRecord` if something in it is damaged."""
    row = await row_of(store, run_id)
    found = await store.load([row.key])  # row, current journal and inbox of one moment
    if not found:
        raise RunNotFound(f"no run has the id {run_id!r}: it was deleted just now.")
    loaded = found[0]
    row = loaded.run
    journals = {number: await store.journal(row.key, number) for number in range(1, row.generation)}
    journals[row.generation] = loaded.rows
    data = msgspec.json.encode(body_of(loaded, journals))
    return msgspec.json.encode(File(FORMAT, VERSION, _checksum(data), Raw(data))) + b"\n"


def body_of(loaded: Loaded, journals: Mapping[int, Sequence[Row]]) -> Body:
    """What is exported of a run. Raises `CorruptRecord`."""
    row = loaded.run
    return Body(
        id=row.id,
        generation=row.generation,
        workflow=row.workflow,
        version=row.version,
        status=row.status,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        wake_at=row.wake_at,
        input_digest=row.input_digest.hex(),
        parent=_parent(loaded.rows[0]),
        cancel_requested=row.cancel_requested,
        reason=row.reason,
        frontier=_raw(row.frontier),
        custom_status=_raw(row.custom_status),
        state=_raw(row.state),
        journals=tuple(
            Generation(number, tuple(_record(one) for one in rows)) for number, rows in journals.items() if rows
        ),
        inbox=tuple(
            Unread(item.kind, item.type, item.data.decode(), item.sent_at, item.policy, item.request)
            for item in portable(loaded.inbox)
        ),
        pruned=row.pruned,
    )


async def import_run(
    store: Store, data: bytes, *, run_id: str | None = None, source: str = "a file", paused: bool = True
) -> str:
    """Create the run of an exported file, under the same or another id; returns the id.

    An open run is paused unless `paused=False`. Importing the same file again changes nothing. Raises
    `ExportUnusable` or `RunConflict`, and then nothing was written.
    """
    source, paused = check_reason(source), check_flag(paused, "paused")
    body = read(data, source)
    new_id = body.id if run_id is None else check_run_id(run_id)
    await put(store, _snapshot(body, new_id, source, paused))
    return new_id


def read(data: bytes, source: str = "a file") -> Body:
    """Check a file from end to end. Raises `ExportUnusable`."""
    try:
        file = msgspec.json.decode(data, type=File)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ExportUnusable(f"{source} is not a run exported by perdure: {error}. Nothing was written.") from None
    if file.format != FORMAT:
        raise ExportUnusable(f"{source} is of the format {file.format!r}, not {FORMAT!r}. Nothing was written.")
    if file.version > VERSION:
        raise ExportUnusable(
            f"{source} is of version {file.version}; this perdure reads up to {VERSION}. Upgrade perdure. "
            "Nothing was written."
        )
    if _checksum(bytes(file.body)) != file.checksum:
        raise ExportUnusable(
            f"{source} does not match its checksum: it was cut or changed. Export the run again. Nothing was written."
        )
    try:
        body = msgspec.json.decode(file.body, type=Body)
        _check(body)
    except (msgspec.MsgspecError, PerdureError, ValueError) as error:
        raise ExportUnusable(f"{source} holds no usable run: {_message(error)} Nothing was written.") from None
    return body


def _check(body: Body) -> None:
    """What a worker relies on. The checksum is no signature: anybody can write one."""
    check_run_id(body.id, allow_children=True)
    Status(body.status)
    bytes.fromhex(body.input_digest)
    numbers = [generation.number for generation in body.journals]
    if not numbers or numbers[-1] != body.generation or numbers != sorted(set(numbers)) or numbers[0] < 1:
        raise ValueError("its generations are not in order.")
    for generation in body.journals:
        records = [from_row(row_of_record(one)) for one in generation.records]
        if not records or not isinstance(records[0].body, Started):
            raise ValueError(f"generation {generation.number} does not begin with its first record.")
        _check_positions(generation.number, records, body.pruned if generation.number == body.generation else None)
    if Status(body.status).terminal != (body.finished_at is not None):
        raise ValueError("its status does not fit its end.")
    for item in body.inbox:
        ItemKind(item.kind)


def _check_positions(number: int, records: Sequence[Record], pruned: int | None) -> None:
    """All records are there, but for iterations of loops. How many those were is known of the current generation."""
    positions = [record.seq for record in records]
    missing = positions[-1] - len(positions)
    looped = any(record.body.stands_for_others for record in records)
    if positions[0] != 1 or positions != sorted(set(positions)) or (missing and not looped):
        raise ValueError(f"records of generation {number} are missing.")
    if pruned is not None and missing != pruned:
        raise ValueError(f"{missing} records of generation {number} are missing, and {pruned} were pruned.")


def _snapshot(body: Body, run_id: str, source: str, paused: bool) -> Snapshot:
    status = Status(body.status)
    reason = body.reason
    if status in CLAIMABLE and paused:
        status, reason = Status.PAUSED, f"paused: imported from {source}; the original may still be running elsewhere"
    journals = {generation.number: [row_of_record(one) for one in generation.records] for generation in body.journals}
    row = RunRow(
        key=0,
        id=run_id,
        generation=body.generation,
        workflow=body.workflow,
        version=body.version,
        status=status,
        epoch=0,
        owner=None,
        next_seq=journals[body.generation][-1].seq + 1,
        wake_at=body.wake_at,
        created_at=body.created_at,
        updated_at=body.updated_at,
        finished_at=body.finished_at,
        recoveries=0,
        input_digest=bytes.fromhex(body.input_digest),
        parent=None,
        cancel_requested=body.cancel_requested,
        frontier=_optional(body.frontier) if status.terminal else to_be_notified(_optional(body.frontier)),
        reason=reason,
        custom_status=_optional(body.custom_status),
        state=_optional(body.state),
        pruned=body.pruned,
    )
    inbox = [
        NewItem(
            kind=ItemKind(item.kind), type=item.type, data=item.data.encode(), sent_at=item.sent_at,
            policy=item.policy, request=item.request,
        )
        for item in body.inbox
    ]  # fmt: skip
    return Snapshot(run=row, journals=journals, inbox=inbox)


def _record(row: Row) -> StoredRecord:
    from_row(row)  # a damaged one must not travel on
    return StoredRecord(row.seq, row.at, row.kind, row.location, row.check, Raw(row.data))


def row_of_record(record: StoredRecord) -> Row:
    return Row(record.seq, record.at, record.kind, record.location, bytes(record.data), record.check)


def _parent(first: Row) -> str | None:
    body = from_row(first).body
    return body.parent if isinstance(body, Started) else None


def _raw(data: bytes | None) -> Raw:
    return ABSENT if data is None else Raw(data)


def _optional(raw: Raw) -> bytes | None:
    return bytes(raw) or None


def _checksum(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _message(error: Any) -> str:
    text = error.message if isinstance(error, PerdureError) else str(error)
    return text if text.endswith(".") else f"{text}."
