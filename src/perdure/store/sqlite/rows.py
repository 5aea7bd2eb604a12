"""From rows of the database to the records of the protocol. Positions are those of `schema.sql`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.journal import Row
from perdure.store.base import DeadLetter, InboxItem, ItemKind, ParentLink, RunRow, Status, WorkerInfo

Values: TypeAlias = tuple[Any, ...]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(EventPolicy).decode
_statuses = {str(status): status for status in Status}
_kinds = {str(kind): kind for kind in ItemKind}

#: Where `ready_at` is in a row of `runs`; claims are sorted by it, but the protocol does not show it.
READY_AT = 8


def run_row(values: Values) -> RunRow:
    """A row of `SELECT * FROM runs`. Columns that a newer release appended are ignored."""
    return RunRow(
        key=values[0],
        id=values[1],
        generation=values[2],
        workflow=values[3],
        version=values[4],
        status=_statuses[values[5]],
        epoch=values[6],
        owner=values[7],
        wake_at=values[9],
        next_seq=values[10],
        created_at=values[11],
        updated_at=values[12],
        finished_at=values[13],
        recoveries=values[14],
        input_digest=values[15],
        parent=None if values[16] is None else ParentLink(key=values[16], generation=values[17], location=values[18]),
        cancel_requested=bool(values[19]),
        frontier=values[20],
        reason=values[21],
        custom_status=values[22],
        state=values[23],
        last_item=values[24],
        pruned=values[25],
    )


def inbox_item(values: Values) -> InboxItem:
    """A row of `SELECT * FROM inbox`."""
    return InboxItem(
        id=values[0],
        kind=_kinds[values[2]],
        type=values[3],
        data=values[4],
        sent_at=values[5],
        previous=values[6],
        policy=read_policy(values[7]),
        expires_at=values[8],
        publication=values[9],
        request=values[11],
    )


def policy_text(policy: EventPolicy) -> str:
    """How an event travels, as a column keeps it. Nearly all have the defaults."""
    return "" if policy is DEFAULT_POLICY or policy == DEFAULT_POLICY else _encode(policy).decode()


@functools.lru_cache(maxsize=256)
def read_policy(text: str) -> EventPolicy:
    return _decode(text) if text else DEFAULT_POLICY


def dead_letter(values: Values) -> DeadLetter:
    """A row of `SELECT * FROM dead_letters`."""
    return DeadLetter(
        id=values[0],
        type=values[1],
        data=values[2],
        policy=read_policy(values[3]),
        target=values[4],
        target_status=_statuses[values[5]],
        sent_at=values[6],
        died_at=values[7],
        reason=values[8],
    )


def records(rows: Iterable[Values]) -> list[Row]:
    return [Row._make(values) for values in rows]


def worker_info(values: Values) -> WorkerInfo:
    return WorkerInfo(id=values[0], name=values[1], host=values[2], pid=values[3], started_at=values[4])
