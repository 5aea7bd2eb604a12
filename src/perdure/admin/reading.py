"""Reading a run for an action: its row, its journal, and which of its records still count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.errors import RunNotFound
from perdure.kernel.frontier import Frontier, decode_frontier
from perdure.kernel.journal import Record, from_row, taken_back
from perdure.kernel.verbs.checks import check_run_id
from perdure.store.model import InboxItem, ItemKind, RunRow
from perdure.store.protocol import Store
from perdure.store.refusals import moved


async def row_of(store: Store, run_id: str) -> RunRow:
    """Raises `RunNotFound`, `BadArgument`."""
    run_id = check_run_id(run_id, allow_children=True)
    row = await store.get(run_id)
    if row is None:
        await refuse_if_gone(store)
        raise RunNotFound(f"no run has the id {run_id!r}.")
    return row


async def refuse_if_gone(store: Store) -> None:
    """Raises `RunMoved` if everything in the store went to another one. Asked where a run is not there, or does not
    move: those that do never pay for it."""
    departure = await store.departure()
    if departure is not None and departure.gone:
        raise moved(departure.target, gone=True)


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
