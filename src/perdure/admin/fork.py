"""A new run from the past of another: its journal up to a location, with another result or input if wanted.

The original is only read. What it had received after that point, and what it has not read yet, is in the new run's
inbox; everything else after it happens anew, under the new id (so with other idempotency keys).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure import limits
from perdure.admin.reading import (
    counting,
    frontier_of,
    portable,
    records_of,
    row_of,
)
from perdure.errors import ActionRefused, BadArgument, EncodingError, PerdureError, RunConflict, UnknownLocation
from perdure.given import shown, whole_of
from perdure.kernel import journal
from perdure.kernel.frontier import Frontier, Waiting, unchecked_frontier
from perdure.kernel.journal import Body, Record, Row, beginning, to_row
from perdure.kernel.operations.base import KINDS
from perdure.kernel.operations.child import open_children
from perdure.kernel.operations.loop import LoopState
from perdure.kernel.operations.receive import EventReceived, Taken, events_in
from perdure.kernel.operations.step import failure_of
from perdure.kernel.values import codec_for
from perdure.kernel.values.digests import input_digest
from perdure.kernel.verbs.checks import check_flag, check_run_id, check_text
from perdure.store.model import InboxItem, ItemKind, NewItem, RunRow, Snapshot, Status
from perdure.store.protocol import Store
from perdure.store.turn import Existing


class _Same:
    def __repr__(self) -> str:
        return "SAME"


#: Stands for "as it was", because None is a result.
SAME: Final = _Same()


async def fork(
    store: Store,
    run_id: str,
    new_id: str,
    at: int,
    *,
    location: str | None = None,
    result: Any = SAME,
    arguments: Mapping[str, Any] | None = None,
    generation: int | None = None,
    paused: bool = False,
) -> None:
    """Create `new_id` as `run_id` was just before the outcome of the operation at `location` (None: at its start).

    With `result`, that operation has this outcome; without, it happens again. `arguments` replaces arguments of the
    workflow by name. Values are plain JSON, as `perdure history` shows them, or of the type they have in the code.
    Raises `RunNotFound`, `UnknownLocation`, `ActionRefused`, `RunConflict`.
    """
    new_id, run_id = check_run_id(new_id), check_run_id(run_id, allow_children=True)
    location = check_text(location, "the location")
    arguments = _checked_arguments(arguments)
    if new_id == run_id:
        raise BadArgument(f"the new run needs an id of its own, not {run_id!r} again.")
    row = await row_of(store, run_id)
    number = row.generation if generation is None else whole_of(generation)
    if number is None or not 0 <= number <= row.generation:
        raise BadArgument(f"run {run_id!r} has the generations 1 to {row.generation}, not {shown(generation)}.")
    number = number or row.generation
    paused = check_flag(paused, "paused")
    whole = await records_of(store, row, number)
    records = [record for record in counting(whole) if not record.body.is_by_people]
    past = _Past(row, records, frontier_of(row) if number == row.generation else None)
    if location is None and result is not SAME:
        raise BadArgument("an edited result needs the location of the operation that has it.")
    kept, rest = (records[:1], records[1:]) if location is None else past.split(location, result, at)
    _refuse_open_children(row, kept)
    if location is not None:
        _refuse_pruned(row, whole, kept)
    kept = _with_arguments(kept, arguments, row)
    rows = [to_row(record) for record in _renumbered(kept)]
    unread = await store.inbox(row.key, limits.FORK_INBOX_MAX)
    inbox = [*_received(rest), *(_unread(i) for i in portable(unread) if i.kind is ItemKind.EVENT)]
    seen = len(rows) - (result is not SAME or len(rows) == 1)
    started = beginning(kept)
    if started is None:
        raise ActionRefused(f"the journal of run {run_id!r} does not begin as it should; it cannot be forked.")
    new = msgspec.structs.replace(
        row,
        id=new_id,
        generation=1,
        workflow=started.workflow,
        version=started.version,
        status=Status.PAUSED if paused else Status.PENDING,
        reason=f"paused: forked from {run_id!r}" if paused else None,
        next_seq=len(rows) + 1,
        wake_at=None,
        created_at=at,
        updated_at=max(at, kept[-1].at),
        finished_at=None,
        input_digest=input_digest(started.workflow, bytes(started.input)),
        parent=None,
        cancel_requested=any(isinstance(record.body, journal.CancelRequested) for record in kept),
        frontier=unchecked_frontier(seen),
        custom_status=None,
        state=None,
        pruned=0,
    )
    await put(
        store, Snapshot(run=new, journals={1: rows}, inbox=inbox), edited_seq=seen + 1 if result is not SAME else 0
    )


async def put(store: Store, snapshot: Snapshot, edited_seq: int = 0) -> None:
    """Create the run, or find that an earlier call did. Raises `RunConflict`.

    The record `edited_seq` has the time of the call that made it: a repeat is recognised by everything else.
    """

    def timeless(row: Row) -> Row:
        return row._replace(at=0, check=0) if row.seq == edited_seq else row

    answer = await store.restore(snapshot)
    if not isinstance(answer, Existing):
        return
    for number, rows in snapshot.journals.items():
        stored = await store.journal(answer.row.key, number, 0, len(rows))
        if [*map(timeless, stored)] != [*map(timeless, rows)]:
            raise RunConflict(f"a run {snapshot.run.id!r} already exists, and it is another one. Choose another id.")


class _Past:
    """The records of a generation that still count, and what it waits for now."""

    def __init__(self, row: RunRow, records: Sequence[Record], frontier: Frontier | None) -> None:
        self._row = row
        self._records = [record for record in records if not record.body.is_end]
        self._waits = {wait.location: wait for wait in frontier.operations} if frontier is not None else {}

    def split(self, location: str, result: Any, now: int) -> tuple[list[Record], list[Record]]:
        """The records before the outcome at a location, with the edited one if there is one; and those after it.

        The edited outcome happens now. With the time of the outcome it replaces, a timeout that begins after it would
        be over before the new run is there (tests/admin/test_fork.py).
        """
        records = self._records
        wait = self._waits.get(location)
        known = [r for r in records if r.location == location and (r.body.settles or failure_of(r.body))]
        begun = [r for r in records if r.location == location and r.body.opens]
        if not known and not begun and wait is None:
            raise self._unknown(location)
        if result is SAME:
            first = (begun or known)[:1]
            cut = records.index(first[0]) if first else len(records)
            return records[:cut], records[cut:]
        cut = records.index(known[0]) if known else len(records)
        template = known[-1] if known else None
        body = self._edited(location, template, wait, begun, result)
        rest = [record for record in records[cut:] if record.location != location]
        return [*records[:cut], Record(0, max(now, records[cut - 1].at), location, body)], rest

    def _edited(
        self, location: str, template: Record | None, wait: Waiting | None, begun: Sequence[Record], result: Any
    ) -> Body:
        value = Raw(encode(result, f"the new result at {location!r}"))
        body = None
        if template is not None:
            body = template.body.edited(value)
        elif wait is not None and not begun:
            body = KINDS[wait.kind].edited(wait, value)
        if body is None and begun and (template is None or template.body.ends_child):
            body = begun[0].body.edited(value)
        if body is None:
            raise ActionRefused(
                f"what is at {location!r} of run {self._row.id!r} has no result to edit: only steps, children and "
                "events (of one type) have."
            )
        return body

    def _unknown(self, location: str) -> UnknownLocation:
        import difflib  # only for the rare mistake, not for every start

        places = {r.location for r in self._records if r.body.settles} | self._waits.keys()
        if self._row.pruned and "~" in location:
            return UnknownLocation(
                f"nothing in the journal of run {self._row.id!r} is at {location!r} any more: finished iterations of "
                "loops are deleted (`loop(..., keep=...)` keeps more of them). "
                f"`perdure history {self._row.id}` lists what is left."
            )
        near = difflib.get_close_matches(location, places, n=5, cutoff=0.4) or sorted(places)[:5]
        known = f" Near ones: {', '.join(repr(place) for place in near)}." if near else " It has none yet."
        return UnknownLocation(
            f"nothing in run {self._row.id!r} is at {location!r}.{known} `perdure history {self._row.id}` lists all."
        )


def _refuse_open_children(row: RunRow, kept: Sequence[Record]) -> None:
    for location, started in open_children(kept).items():
        raise ActionRefused(
            f"at that point the child at {location!r} of run {row.id!r} was still running (since record "
            f"{started.seq}), and its end is told to {row.id!r} alone. Fork at {location!r} or earlier, after its end, "
            "or with a result for it."
        )


def _refuse_pruned(row: RunRow, whole: Sequence[Record], kept: Sequence[Record]) -> None:
    """Deleted iterations cannot be replayed: a state that stands for them must be among what is kept."""
    states = [record.body.after for record in kept if isinstance(record.body, LoopState)]
    reached = max(states, default=0)
    last = max(record.seq for record in kept)
    for before, record in pairwise(whole):
        if before.seq <= last and before.seq < record.seq - 1 and record.seq - 1 > reached:
            raise ActionRefused(
                f"records {before.seq + 1} to {record.seq - 1} of run {row.id!r} are deleted: finished iterations of a "
                "loop, whose oldest state that is left comes later than this point. Fork at a later location, or "
                "without one, from the start."
            )


def _renumbered(kept: Sequence[Record]) -> Iterator[Record]:
    """The records without gaps. A state of a loop names the record after which it counts."""
    positions = [record.seq for record in kept if record.seq]  # an edited one has none yet
    for seq, record in enumerate(kept, 1):
        body = record.body
        if isinstance(body, LoopState):
            body = msgspec.structs.replace(body, after=bisect_right(positions, body.after))
        yield msgspec.structs.replace(record, seq=seq, body=body)


def _checked_arguments(arguments: Any) -> dict[str, Any] | None:
    if arguments is None:
        return None
    try:
        found: dict[Any, Any] = dict(arguments)
    except Exception:  # code of what was given
        found = {None: None}
    if not all(type(name) is str for name in found):
        raise BadArgument(f"arguments is a dict of the workflow's arguments by name, not {shown(arguments)}.")
    return found


def _with_arguments(kept: list[Record], arguments: Mapping[str, Any] | None, row: RunRow) -> list[Record]:
    """The new run has no parent, and other arguments if wanted."""
    first, started = kept[0], beginning(kept)
    if started is None:
        return kept
    data = started.input
    if arguments:
        known: dict[str, Raw] = msgspec.json.decode(data, type=dict[str, Raw])
        for name, value in arguments.items():
            if name not in known:
                raise BadArgument(
                    f"the input of run {row.id!r} has no argument {shown(name)}; it has {', '.join(map(repr, known))}."
                )
            known[name] = Raw(encode(value, f"the argument {shown(name)}"))
        data = Raw(msgspec.json.encode(known))
    body = msgspec.structs.replace(started, parent=None, input=data)
    return [msgspec.structs.replace(first, body=body), *kept[1:]]


def encode(value: Any, what: str) -> bytes:
    """Raw JSON as it is; plain values as an unannotated value; objects by their class."""
    if type(value) is Raw:
        return bytes(value)
    try:
        return codec_for(Any).encode(value, what)
    except EncodingError as error:
        try:
            return codec_for(type(value)).encode(value, what)
        except PerdureError:
            raise
        except Exception:  # of its class, which cannot be looked at
            raise error from None


def _received(records: Sequence[Record]) -> list[NewItem]:
    return [_again(event) for record in records for event in events_in(record.body)]


def _again(event: EventReceived | Taken) -> NewItem:
    """Without `request`: the caller has heard from the original, or will."""
    return NewItem(kind=ItemKind.EVENT, type=event.type, data=bytes(event.value), sent_at=event.sent_at)


def _unread(item: InboxItem) -> NewItem:
    return NewItem(kind=ItemKind.EVENT, type=item.type, data=item.data, sent_at=item.sent_at, policy=item.policy)
