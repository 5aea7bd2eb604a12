"""Why a run is not moving: one exact reason, from what the store knows. Writes nothing, needs no worker and no code.

`why` looks at the run from outside in: has it ended, is it stopped, does anybody work on it, and only then what its
code waits for. A run that waits for a child is asked about in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from perdure import limits
from perdure.admin.attendance import Attendance
from perdure.admin.fleet import worker_views
from perdure.admin.reading import counting, frontier_of, records_of, row_of
from perdure.admin.reason import Reason as Reason
from perdure.admin.reason import clock, text_of
from perdure.admin.reason import lasting as lasting_of
from perdure.admin.views import moment
from perdure.errors import CorruptRecord
from perdure.kernel.ending import GRACE_LOCATION
from perdure.kernel.frontier import Waiting
from perdure.kernel.journal import from_row
from perdure.kernel.operations.base import KINDS, Operation
from perdure.kernel.operations.step import StepOperation, last_failure
from perdure.kernel.outcomes import EndCancelled, Fail
from perdure.store.model import InboxItem, ItemKind, RunRow, Status
from perdure.store.protocol import Store

#: How the reason of a parked run begins, and what kind of trouble that is.
_PARKED = {
    "Diverged": "diverged",
    "poisoned": "poisoned",
    "NotDecodable": "undecodable",
    "CorruptRecord": "undecodable",
    "MsgspecError": "undecodable",
    "DecodeError": "undecodable",
    "ValidationError": "undecodable",
    "Stuck": "stuck",
    "Spinning": "spinning",
    "TurnAbandoned": "spinning",
    "Forbidden": "forbidden",
    "Nondeterministic": "forbidden",
}


#: What keeps a step of a run from beginning, named as the limit; "" if its code runs; None if that is not known here.
PlaceOf: TypeAlias = Callable[[RunRow, str], str | None]

_PLACES = {
    "steps_max": "a place: as many steps as `steps_max` allows run there",
    "lease": "the lease of its worker, which could not be renewed lately",
    "concurrency": "its turn: as many attempts of this step as its `concurrency` allows run there",
    "step_threads": "a thread: all of `step_threads` are busy",
    "step_processes": "a process: all of `step_processes` are busy, or it is being started",
}


async def why(store: Store, run_id: str, now: int, place_of: PlaceOf = lambda row, location: None) -> Reason:
    """The reason, as of this moment. Raises `RunNotFound`."""
    return await _Looking(store, now, place_of).explain(await row_of(store, run_id), 0)


class _Looking:
    def __init__(self, store: Store, now: int, place_of: PlaceOf) -> None:
        self._store = store
        self._now = now
        self._place_of = place_of
        self._attendance: Attendance | None = None

    async def explain(self, row: RunRow, depth: int) -> Reason:
        if row.status.terminal:
            return await self._ended(row)
        if (elsewhere := await self._elsewhere(row)) is not None:
            return elsewhere
        if row.status is Status.PARKED:
            return self._parked(row)
        if row.status is Status.PAUSED:
            text = f"{row.reason or 'paused'}, since {clock(row.updated_at)}. `perdure unpause {row.id}` lets it go on."
            return Reason(row.id, "paused", text, since=moment(row.updated_at))
        workers = await self._look_for_workers()
        return workers.unattended(row) or workers.with_owner(row, await self._attended(row, depth, workers))

    # -- stopped -------------------------------------------------------------------------------------------------

    async def _ended(self, row: RunRow) -> Reason:
        ended = row.finished_at or row.updated_at
        text = f"it has ended: {row.status} at {clock(ended)}"
        rows = await self._store.journal(row.key, row.generation, row.next_seq - 2)
        try:
            end = from_row(rows[-1]).body.outcome() if rows else None
        except CorruptRecord as damage:
            return Reason(row.id, row.status, f"{text} ({damage.message})", since=moment(ended))
        match end:
            case Fail(error):
                text += f", with {error.type.partition(':')[2]}: {_line(error.message)}. `perdure resume {row.id}`"
                text += " tries again from there"
            case EndCancelled(reason, terminated):
                how = "terminated" if terminated else "cancelled"
                text += f" ({how}: {_line(reason)})" if reason else f" ({how})"
            case _:
                pass
        return Reason(row.id, row.status, f"{text}.", since=moment(ended))

    async def _elsewhere(self, row: RunRow) -> Reason | None:
        """It goes, or went, to another store, or comes from one."""
        if row.status is Status.ARRIVING:
            text = "it is coming here from another store, and goes on when all have come. Is `perdure migrate` at work?"
            return Reason(row.id, "arriving", text)
        departure = await self._store.departure()
        if departure is None:
            return None
        if departure.gone:
            text = f"it was moved to {departure.target}, with everything in this store: ask there."
        else:
            text = (
                f"everything in this store is being moved to {departure.target}. If `perdure migrate` is not at work "
                "any more, run it again: it goes on. `--undo` takes it back."
            )
        return Reason(row.id, "moved", text, since=moment(departure.at))

    def _parked(self, row: RunRow) -> Reason:
        reason = row.reason or "no reason was given"
        kind = _PARKED.get(reason.partition(":")[0], "other")
        text = f"parked since {clock(row.updated_at)}: {reason}"
        if f"perdure resume {row.id}" not in text:
            text += f"\n  When that is resolved: `perdure resume {row.id}`."
        return Reason(row.id, f"parked-{kind}", text, since=moment(row.updated_at))

    async def _look_for_workers(self) -> Attendance:
        if self._attendance is None:
            self._attendance = Attendance(await worker_views(self._store), self._now)
        return self._attendance

    # -- what the code waits for -------------------------------------------------------------------------------------

    async def _attended(self, row: RunRow, depth: int, workers: Attendance) -> Reason:
        frontier = frontier_of(row)
        waits = [] if frontier is None else list(frontier.operations)
        inbox = await self._store.inbox(row.key, limits.WHY_INBOX_MAX)
        grace = next((wait.deadline for wait in waits if wait.location == GRACE_LOCATION), None)
        waits = [wait for wait in waits if wait.location != GRACE_LOCATION]
        if not waits:
            text = f"its code is running, or about to, since {clock(row.updated_at)}{workers.by(row)}."
            reason = Reason(row.id, "nothing", text, since=moment(row.updated_at), worker=row.owner or "")
        else:
            waits.sort(key=_rank)
            reason = await self._waits_for(row, waits, depth, workers)
            more = (frontier.count if frontier is not None else 0) - 1 - (grace is not None)
            reason = msgspec.structs.replace(reason, also=self._notes(row, waits, more, inbox, workers))
        return self._cancelling(row, reason, grace, inbox) if row.cancel_requested else reason

    async def _waits_for(self, row: RunRow, waits: Sequence[Waiting], depth: int, workers: Attendance) -> Reason:
        wait = waits[0]
        since = moment(wait.since)
        where = f"{wait.location!r}{f' ({wait.site})' if wait.site else ''}"
        common = {"since": since, "location": wait.location, "site": wait.site, "worker": row.owner or ""}
        until = moment(wait.deadline) if wait.deadline else None
        match wait.kind:
            case "step" if wait.deadline:
                error = await self._last_error(row, wait.location)
                text = f"step {where} waits until {text_of(until)} for its next attempt, {wait.detail}{error}"
                text += f". `perdure retry {row.id}` begins it now."
                return Reason(row.id, "step-backoff", text, until=until, **common)  # type: ignore[arg-type]
            case "step" if row.owner is None:
                return Reason(row.id, "step-due", f"step {where} is to run when a worker takes it.", **common)  # type: ignore[arg-type]
            case "step":
                kind, text = self._under_way(row, wait, workers.by(row))
                return Reason(row.id, kind, f"step {where} {text}", **common)  # type: ignore[arg-type]
            case "child":
                child = await self._child(wait.detail, depth)
                text = f"it waits for the child {wait.detail!r} at {where} since {text_of(since)}, which "
                return Reason(row.id, "child", text + _of_child(child), child=child, **common)  # type: ignore[arg-type]
            case "receive":
                limit = min((w.deadline for w in waits if w.kind == "timer" and w.deadline), default=None)
                at_most = f", at most until {clock(limit)}" if limit is not None else ""
                text = f"it waits for the event {wait.detail} at {where} since {text_of(since)}{at_most}."
                return Reason(row.id, "event", text, until=None if limit is None else moment(limit), **common)  # type: ignore[arg-type]
            case "timer":
                text = f"it is asleep at {where} until {text_of(until)}, since {text_of(since)}."
                return Reason(row.id, "sleep", text, until=until, **common)  # type: ignore[arg-type]
            case "wait_for_run":
                target = await self._child(wait.detail, depth)
                text = f"it waits for the end of run {wait.detail!r} at {where} since {text_of(since)}, which "
                return Reason(row.id, "run", text + _of_child(target), child=target, **common)  # type: ignore[arg-type]
            case "publish":
                text = f"it publishes the event {wait.detail!r} at {where}."
                return Reason(row.id, "publish", text, **common)  # type: ignore[arg-type]
            case "reply":
                return Reason(row.id, "reply", f"it answers a request at {where}.", **common)  # type: ignore[arg-type]
            case _:
                return Reason(row.id, "send", f"it sends something to {wait.detail!r} at {where}.", **common)  # type: ignore[arg-type]

    def _under_way(self, row: RunRow, wait: Waiting, by: str) -> tuple[str, str]:
        """Of a step that a worker has. Only that worker knows whether its code has begun."""
        lasting, place = lasting_of(self._now - wait.since), self._place_of(row, wait.location)
        if place:
            return "step-waiting", f"has been waiting for {lasting}{by} for {_PLACES[place]}."
        how = "running" if place == "" else "running, or waiting for a place there,"
        return "step-running", f"has been {how} for {lasting}{by}."

    async def _child(self, child_id: str, depth: int) -> Reason | None:
        child = await self._store.get(child_id) if depth < limits.WHY_DEPTH_MAX else None
        return await self.explain(child, depth + 1) if child is not None else None

    async def _last_error(self, row: RunRow, location: str) -> str:
        try:
            records = counting(await records_of(self._store, row))
        except CorruptRecord:
            return ""
        error = last_failure(records, location)
        return f" with {error.type.partition(':')[2]}: {_line(error.message)}" if error is not None else ""

    def _cancelling(self, row: RunRow, reason: Reason, grace: int | None, inbox: Sequence[InboxItem]) -> Reason:
        if any(item.kind is ItemKind.CANCEL for item in inbox):
            text = "it was asked to cancel, and has not seen that yet."
        elif grace is not None:
            text = f"it was asked to cancel, and may clean up until {clock(grace)}."
        else:
            text = "it was asked to cancel, and is cleaning up."
        return msgspec.structs.replace(
            reason,
            kind="cancelling",
            text=f"{text} {reason.text[0].upper()}{reason.text[1:]}",
            until=reason.until if grace is None else moment(grace),
        )

    def _notes(
        self, row: RunRow, waits: Sequence[Waiting], more: int, inbox: Sequence[InboxItem], workers: Attendance
    ) -> tuple[str, ...]:
        notes = [f"{wait.kind} {wait.location!r}" for wait in waits[1:6]]
        if more > len(notes):
            notes.append(f"{more - len(notes)} more operations")
        unread: dict[str, int] = {}
        for item in inbox:
            if item.kind is ItemKind.EVENT:
                unread[item.type] = unread.get(item.type, 0) + 1
        notes += [
            f"{count} unread events of type {name!r}, which it does not ask for" for name, count in unread.items()
        ]
        if row.owner is None and row.status is Status.WAITING:
            until = f"until {clock(row.wake_at)}, or " if row.wake_at is not None else "until "
            notes.append(f"no worker has it in memory {until}something arrives for it")
        if row.owner is not None and row.recoveries > 2:
            notes.append(
                f"it is on probation: its workers died {row.recoveries - 1} times in a row before, without progress"
            )
        return (*notes, *workers.notes(row))


def _rank(wait: Waiting) -> tuple[int, int]:
    """What says most comes first: a running step; a timeout says less than what it limits."""
    kind = KINDS.get(wait.kind, Operation)
    return kind.rank + (kind is StepOperation and bool(wait.deadline)), wait.deadline or wait.since


def _of_child(child: Reason | None) -> str:
    if child is None:
        return "does not exist here."
    text = child.text
    return text.removeprefix("it ") if text.startswith("it ") else f"does not move: {text}"


def _line(text: str) -> str:
    first = text.partition("\n")[0]
    return first if len(first) <= 200 else f"{first[:200]}..."
