"""From rows of the database to the records of the protocol. Positions are those of `schema.sql`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from perdure.kernel.journal import Row
from perdure.store.base import InboxItem, ItemKind, ParentLink, RunRow, Status, WorkerInfo

Values: TypeAlias = tuple[Any, ...]

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
        id=values[0], kind=_kinds[values[2]], type=values[3], data=values[4], sent_at=values[5], previous=values[6]
    )


def records(rows: Iterable[Values]) -> list[Row]:
    return [Row._make(values) for values in rows]


def worker_info(values: Values) -> WorkerInfo:
    return WorkerInfo(id=values[0], name=values[1], host=values[2], pid=values[3], started_at=values[4])
