"""Going on after a failure: what made a run fail is taken back, and the step that failed is tried again.

Nothing is erased: one more record, `resumed`, says which ones count no longer (the end, and the failures that led to
it). Everything else stands, so a run can only be resumed if it did nothing after the failure that its code would not
do again: a refund that was paid out is not taken back by trying the delivery once more. That is judged by a dry
replay where the code is at hand, and refused where it cannot be judged.

A parent that failed because of a child goes on together with that child.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from perdure import limits
from perdure.admin.reading import counting, named, records_of, row_of
from perdure.admin.replay import Verdict
from perdure.errors import ActionRefused
from perdure.kernel import journal
from perdure.kernel.frontier import unchecked_frontier
from perdure.kernel.items import read_child_item
from perdure.kernel.journal import Fault, Record, from_row, to_row
from perdure.kernel.operations.child import open_children, started_child
from perdure.kernel.operations.send import cancels_child
from perdure.kernel.outcomes import Fail
from perdure.store.model import ItemKind, Reopen, RunRow, Status
from perdure.store.protocol import Store

#: Replays a proposed journal of a run, without writing.
Replayer: TypeAlias = Callable[[RunRow, Sequence[Record], bytes], Awaitable[Verdict]]


async def resume(store: Store, run_id: str, at: int, replay: Replayer) -> bool:
    """Let a parked or failed run go on. False if it is neither. Raises `RunNotFound`, `ActionRefused`."""
    row = await row_of(store, run_id)
    match row.status:
        case Status.PARKED:
            return await store.resume(run_id, at)
        case Status.FAILED:
            return await _reopen(store, row, at, replay)
        case Status.PAUSED:
            raise ActionRefused(f"run {run_id!r} is paused, not stopped by a fault: `perdure unpause {run_id}`.")
        case Status.COMPLETED | Status.CANCELLED:
            raise ActionRefused(
                f"run {run_id!r} is {row.status}: there is nothing to go on with. `perdure fork {run_id}` makes a new "
                "run from any point of it."
            )
        case _:
            return False


async def _reopen(store: Store, row: RunRow, at: int, replay: Replayer) -> bool:
    plans = await _Planner(store, at, replay).plan(row, with_parent=False)
    # The parent first: a child that goes on and ends while its parent still counts as ended would tell nobody.
    for number, plan in enumerate(plans):
        if not await store.reopen(plan.reopen):
            moved = plan.row.id
            state = await store.get(moved)
            if state is not None and state.epoch == plan.reopen.epoch + 1 and not state.status.terminal:
                continue  # an earlier call did it, and its answer got lost
            done = f" {plans[0].row.id!r} goes on already; resume {moved!r} as well." if number else ""
            raise ActionRefused(f"run {moved!r} changed while it was being resumed. Try again.{done}")
    return True


class _Plan(NamedTuple):
    row: RunRow
    reopen: Reopen


class _Planner:
    def __init__(self, store: Store, at: int, replay: Replayer) -> None:
        self._store = store
        self._at = at
        self._replay = replay

    async def plan(self, row: RunRow, *, with_parent: bool) -> list[_Plan]:
        """What has to be changed for this run and the children that made it fail. Raises `ActionRefused`."""
        records = await records_of(self._store, row)
        end = records[-1]
        failure = end.body.outcome()
        if not isinstance(failure, Fail):
            raise ActionRefused(f"the journal of run {row.id!r} does not end with its failure; it cannot be resumed.")
        live = counting(records)
        void = {end.seq, *_causes(live, failure.error)}
        first = min(void)
        void |= {r.seq for r in live if r.seq > first and cancels_child(r.body, r.location)}
        kept = [record for record in live if record.seq not in void]
        parent_seq = None if with_parent else await self._parent_seq(row)
        children = await self._children(row, kept)
        record = Record(
            row.next_seq, max(self._at, row.updated_at), "", journal.Resumed(taken_back=tuple(sorted(void)))
        )
        frontier = unchecked_frontier(_seen(live, kept, end))
        await self._check(row, records, record, frontier, [r for r in kept if r.seq > first])
        reopen = Reopen(
            key=row.key,
            epoch=row.epoch,
            record=to_row(record),
            frontier=frontier,
            parent_seq=parent_seq,
        )
        plans = [_Plan(row, reopen)]
        for child in children:
            plans += await self.plan(child, with_parent=True)
        return plans

    async def _check(
        self, row: RunRow, records: Sequence[Record], record: Record, frontier: bytes, since: Sequence[Record]
    ) -> None:
        """Whether the code, without what is taken back, still gets to the rest of the journal."""
        verdict = await self._replay(row, [*records, record], frontier)
        done = [one for one in since if one.body.settles or not one.body.is_beside]
        if verdict.kind == "fine" or (verdict.kind == "unknown" and not done):
            return
        listed = ", ".join(named(one) for one in done[:5]) + (", ..." if len(done) > 5 else "")
        if verdict.kind == "unknown":
            raise ActionRefused(
                f"run {row.id!r} went on after its failure: {listed}. Whether that still holds when the failure is "
                "taken back can only be told from its code: give it with --app, or resume it in a program that has it."
            )
        if done:
            raise ActionRefused(
                f"run {row.id!r} went on after its failure, and that cannot be undone: {listed}. "
                f"To take another way from an earlier point, `perdure fork {row.id}`."
            )
        raise ActionRefused(f"run {row.id!r} would not get far: {verdict.text}")

    async def _parent_seq(self, row: RunRow) -> int | None:
        """How far the parent is, if it will have to be kept from hearing of the failure."""
        link = row.parent
        found = await self._store.load([link.key]) if link is not None else []
        if link is None or not found or found[0].run.generation != link.generation:
            return None
        parent = found[0].run
        heard = [
            record
            for record in counting([from_row(one) for one in found[0].rows])
            if record.location == link.location and record.body.ends_child and record.body.raised_as
        ]
        if heard:
            also = (
                f"`perdure resume {parent.id}` resumes both."
                if parent.status is Status.FAILED
                else "it has gone on from there."
            )
            raise ActionRefused(f"the parent {parent.id!r} of run {row.id!r} has been told of the failure: {also}")
        return None if parent.status.terminal else parent.next_seq

    async def _children(self, row: RunRow, kept: Sequence[Record]) -> list[RunRow]:
        """Of the children it will wait for, those that failed and have to go on with it."""
        told = {
            read_child_item(item.data).child_id
            for item in await self._store.inbox(row.key, limits.FORK_INBOX_MAX)
            if item.kind is ItemKind.CHILD
        }
        again: list[RunRow] = []
        for started in open_children(kept).values():
            child_id = started_child(started.body)
            if child_id in told:
                continue
            child = await self._store.get(child_id)
            if child is None:
                raise ActionRefused(f"run {row.id!r} waits for its child {child_id!r}, which was deleted.")
            if child.cancel_requested or child.status is Status.CANCELLED:
                raise ActionRefused(
                    f"the child {child.id!r} of run {row.id!r} was cancelled when that failed, and cannot go on. "
                    f"`perdure fork {row.id}` makes a new run from an earlier point."
                )
            if child.status is Status.FAILED:
                again.append(child)
            elif child.status is Status.COMPLETED:
                raise ActionRefused(f"run {row.id!r} would wait for its child {child.id!r}, which has ended since.")
        return again


def _seen(live: Sequence[Record], kept: Sequence[Record], end: Record) -> int:
    """How far the code had got before it failed. The record it failed on is to be delivered anew, as if for the first
    time: fixed code may take another path from there (`patched`), and write its log."""
    delivered = [record for record in live if record is not end and not record.body.is_beside]
    last = delivered[-1]
    return last.seq - 1 if last in kept else kept[-1].seq


# -- what made it fail ----------------------------------------------------------------------------------


def _causes(live: Sequence[Record], error: Fault) -> Iterator[int]:
    """The failures of steps and children that the error of the run came from: the outermost that matches a record, of
    each member of a group."""
    failures = [record for record in live if record.body.raised_as]
    used: set[int] = set()

    def search(fault: Fault) -> Iterator[int]:
        for record in reversed(failures):
            if record.seq not in used and _same(record, fault):
                used.add(record.seq)
                yield record.seq
                return
        for member in fault.members:
            yield from search(member)
        if not fault.members and fault.cause is not None:
            yield from search(fault.cause)

    return search(error)


def _same(record: Record, fault: Fault) -> bool:
    error: Fault = getattr(record.body, "error")  # noqa: B009  # which all that are raised into the code have
    if (error.type, error.message) == (fault.type, fault.message):
        return True
    # Raised into the code as one of ours, which names the original.
    return fault.type == record.body.raised_as and error.message in fault.message
