"""Reading a run for an action: its row, its journal, and which of its records still count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.errors import RunNotFound
from perdure.kernel import journal
from perdure.kernel.changes import taken_back
from perdure.kernel.journal import Body, Record, from_row
from perdure.kernel.operation import Frontier, decode_frontier
from perdure.kernel.verbs import check_run_id
from perdure.store.base import InboxItem, ItemKind, RunRow, Store

#: Bodies by which an operation of the code is settled.
SETTLING: tuple[type[Body], ...] = (
    journal.StepDone,
    journal.StepFailed,
    journal.TimerFired,
    journal.EventReceived,
    journal.EventsReceived,
    journal.ChildDone,
    journal.ChildFailed,
    journal.ChildCancelled,
    journal.Sent,
    journal.Published,
    journal.Replied,
    journal.RunEnded,
)
#: Bodies by which a child is settled.
CHILD_ENDS: tuple[type[Body], ...] = (journal.ChildDone, journal.ChildFailed, journal.ChildCancelled)
#: Bodies that end a generation.
ENDS: tuple[type[Body], ...] = (journal.Completed, journal.Failed, journal.Cancelled, journal.Continued)


async def row_of(store: Store, run_id: str) -> RunRow:
    """Raises `RunNotFound`, `BadArgument`."""
    row = await store.get(check_run_id(run_id, allow_children=True))
    if row is None:
        raise RunNotFound(f"no run has the id {run_id!r}.")
    return row


def frontier_of(row: RunRow) -> Frontier | None:
    """What an open run waits for. None if that is not known, or damaged: the run is parked for it when it is loaded."""
    if row.frontier is None or row.status.terminal:
        return None
    try:
        return decode_frontier(row.frontier)
    except msgspec.MsgspecError:
        return None


async def records_of(store: Store, row: RunRow, generation: int | None = None) -> list[Record]:
    """The whole journal of a generation. Raises `CorruptRecord`."""
    return [from_row(one) for one in await store.journal(row.key, generation or row.generation)]


def counting(records: Sequence[Record]) -> list[Record]:
    """The records that were not taken back."""
    void = taken_back(records)
    return [record for record in records if record.seq not in void] if void else list(records)


def open_children(records: Sequence[Record]) -> dict[str, Record]:
    """Children that were started and have not ended, as far as these records go, by location."""
    found: dict[str, Record] = {}
    for record in records:
        body = record.body
        if isinstance(body, journal.ChildStarted) and not body.detached and not body.refused:
            found[record.location] = record
        elif isinstance(body, CHILD_ENDS):
            found.pop(record.location, None)
    return found


def portable(inbox: Iterable[InboxItem]) -> Iterator[InboxItem]:
    """Unread items that a copy of the run may have as well.

    Not what is for the worker that holds it, nor a published event that only one run gets: that one is here. A copy of
    a published event goes along, and is nobody's loss if it is never read.
    """
    for item in inbox:
        if item.kind is ItemKind.PAUSE or (item.publication and item.policy.single):
            continue
        if item.publication:
            policy = msgspec.structs.replace(item.policy, undelivered="discard")
            item = msgspec.structs.replace(item, policy=policy)
        yield item


def named(record: Record) -> str:
    """One record for a message: `step_done at 'charge' (record 3)`."""
    at = f" at {record.location!r}" if record.location else ""
    return f"{record.body.kind}{at} (record {record.seq})"
