"""What must hold after every single change of the store, written as checks only.

The ledger keeps its own copy of what it saw last and compares. It looks into `MemoryStore`, which is what every other
store must behave like; it knows nothing of how the engine works.

    I1  journals are append-only, dense, and never go back in time; only pruned records leave, and are counted
    I2  one open generation per run; earlier ones never change
    I3  epochs only grow, each has one owner, and only that one commits
    I4  an operation is settled once: no second outcome at a location
    I5  an inbox item is taken once, and was there
    I6  a terminal status never changes
    I7  a recorded outcome of a step comes from an attempt that really began
    I8  nothing begins before what asked for it is durable, nor after its outcome is
    I9  an accepted event is received, still unread, or a dead letter: exactly one of them
    I10 a child exists for every record that says so, and its parent hears once
    I11 no attempt fails because a host cancels its tasks: no step here cancels anything itself
    I12 no run records a step that another run's code asked for
    I13 a claim that has room leaves no run behind that has lost one worker since it last moved
    I14 a run that kills its workers is parked in time, and nobody else (`sim.plague`)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from perdure.engine.attempts import Attempt
from perdure.engine.resident import Resident
from perdure.kernel.journal import Row, from_row
from perdure.kernel.operations.child import ChildStarted
from perdure.kernel.operations.receive import EventReceived, EventsReceived
from perdure.kernel.operations.send import Sent
from perdure.kernel.operations.step import StepDone, StepFailed, StepOperation, StepRetry
from perdure.store.memory import MemoryStore
from perdure.store.model import ItemKind, RunRow, Status
from perdure.store.turn import Committed, Turn

#: Kinds of records of which there is at most one for each location.
_ONCE = {
    "step_done", "step_failed", "timer_fired", "event_received", "events_received", "child_done", "child_failed",
    "child_cancelled", "run_ended", "sent", "published", "replied",
}  # fmt: skip


#: Numbers of events from here on are sent or published by workflow code.
SENT_BY_RUNS = 10_000


#: Deaths of its worker that say nothing about a run.
_TRUSTED = 1

#: No program here needs as many records in a generation.
JOURNAL_MAX = 500


class Violation(Exception):
    """Something that must hold does not."""


class _Seen:
    """A run as it was after the last change."""

    __slots__ = ("epoch", "generation", "inbox", "mark", "next_seq", "pruned", "rows", "status")

    def __init__(self) -> None:
        self.epoch = 0
        self.generation = 1
        self.next_seq = 1
        self.pruned = 0
        self.status = Status.PENDING
        self.rows: dict[int, list[Row]] = {}
        self.inbox: frozenset[int] = frozenset()
        self.mark: tuple[Any, ...] = ()


class Ledger:
    """One for each simulated world."""

    def __init__(self, memory: MemoryStore, failed: Callable[[str], None]) -> None:
        self._memory = memory
        self._failed = failed
        self._seen: dict[int, _Seen] = {}
        self._owners: dict[tuple[int, int], str] = {}
        #: Settled operations: (run, generation, location).
        self._settled: set[tuple[str, int, str]] = set()
        self._taken: dict[int, str] = {}
        self._begun: set[tuple[str, int, str, int]] = set()
        #: Numbers of events that were certainly accepted, and those that may have been, by run.
        self.accepted: set[tuple[str, int]] = set()
        self.records = 0

    def require(self, condition: object, what: str) -> None:
        if not condition:
            self._failed(what)  # a caller that catches the exception must not hide it
            raise Violation(what)

    # -- after every call of the store -----------------------------------------------------------------------------

    def committed(self, worker: str, turns: list[Turn], results: list[Any]) -> None:
        for turn, result in zip(turns, results, strict=True):
            if isinstance(result, Committed):
                owner = self._owners.get((turn.key, turn.epoch))
                self.require(
                    owner == worker,
                    f"I3: a turn of run {turn.key} was accepted from {worker[:4]}, epoch {turn.epoch} is of {owner}",
                )

    def claimed(self, at: int, limit: int, claimed: Sequence[RunRow], unknown: Collection[tuple[str, str]]) -> None:
        """What could be under way again must be, however many there are."""
        if sum(row.recoveries <= _TRUSTED + 1 for row in claimed) >= limit:
            return  # there was no room for more
        for run in self._memory.tables.unowned.values():
            left = run.ready_at <= at and run.recoveries <= _TRUSTED and (run.workflow, run.version) not in unknown
            self.require(not left, f"I13: run {run.id} was left behind although there was room")

    def look(self) -> None:
        """Compare everything with what it was."""
        for key, run in self._memory.tables.runs.items():
            seen = self._seen.get(key)
            if seen is None:
                seen = self._seen[key] = _Seen()
            mark = (run.epoch, run.owner, run.generation, run.next_seq, run.status, run.pruned, run.last_item)
            if mark != seen.mark or len(run.inbox) != len(seen.inbox):
                self._compare(run, seen)
                seen.mark = mark

    def _compare(self, run: Any, seen: _Seen) -> None:
        require = self.require
        if seen.status.terminal:
            same = (run.status, run.generation, run.next_seq) == (seen.status, seen.generation, seen.next_seq)
            require(same, f"I6: run {run.id} was {seen.status} and changed to {run.status}")
        require(run.epoch >= seen.epoch, f"I3: the epoch of run {run.id} went back")
        if run.owner is not None and not run.status.terminal and run.status is not Status.PAUSED:
            owner = self._owners.setdefault((run.key, run.epoch), run.owner)
            require(owner == run.owner, f"I3: epoch {run.epoch} of run {run.id} has two owners")
        require(seen.generation <= run.generation <= seen.generation + 1, f"I2: run {run.id} skipped a generation")
        for generation, rows in run.journal.items():
            if generation >= seen.generation:
                self._compare_rows(run, seen, generation, rows)
            else:
                require(rows == seen.rows[generation], f"I2: an ended generation of run {run.id} changed")
        seen.epoch, seen.generation, seen.next_seq = run.epoch, run.generation, run.next_seq
        seen.status, seen.pruned, seen.inbox = run.status, run.pruned, frozenset(run.inbox)

    def _compare_rows(self, run: Any, seen: _Seen, generation: int, rows: list[Row]) -> None:
        require = self.require
        require(len(rows) <= JOURNAL_MAX, f"the journal of run {run.id} grows without end")
        before = seen.rows.get(generation, [])
        if generation == run.generation:
            require(len(rows) + run.pruned == run.next_seq - 1, f"I1: the journal of run {run.id} has a gap")
        last = before[-1].seq if before else 0
        kept = [row for row in rows if row.seq <= last]
        if len(kept) != len(before):
            require(run.pruned > 0 or generation < run.generation, f"I1: run {run.id} lost records")
        old = {row.seq: row for row in before}
        require(all(old.get(row.seq) is row or old.get(row.seq) == row for row in kept), f"I1: {run.id} was rewritten")
        fresh = rows[len(kept) :]
        for position, row in enumerate(fresh, 1):
            require(row.seq == last + position, f"I1: run {run.id} goes from record {last} to {row.seq}")
            self._new_record(run, seen, generation, row)
        # States of loops are not delivered, so a worker whose clock is behind may go on from a moment before one.
        times = [row.at for row in rows if row.kind != "loop_state"]
        require(times == sorted(times), f"I1: the journal of run {run.id} goes back in time")
        seen.rows[generation] = list(rows)

    def _new_record(self, run: Any, seen: _Seen, generation: int, row: Row) -> None:
        self.records += 1
        require = self.require
        body = from_row(row).body
        where = (run.id, generation, row.location)
        # A child may be asked to cancel by its handle and again when its parent is cancelled.
        if body.kind in _ONCE and not row.location.endswith("/cancel"):
            require(where not in self._settled, f"I4: {body.kind} at {row.location} of run {run.id}, which was settled")
            self._settled.add(where)
        match body:
            case StepDone() | StepFailed() | StepRetry():
                require(
                    (*where, body.attempt) in self._begun,
                    f"I7: run {run.id} recorded attempt {body.attempt} of {row.location}, which never began",
                )
                require(
                    isinstance(body, StepDone) or "CancelledError" not in f"{body.error.type} {body.error.message}",
                    f"I11: run {run.id} recorded a cancellation as the failure of {row.location}",
                )
                if _name(row.location) == "release":
                    asked = f'"{run.id}"'.encode() in bytes(body.args)
                    require(asked, f"I12: run {run.id} recorded a step with {bytes(body.args).decode()}")
            case EventReceived():
                self._take(run, seen, body.event_id)
            case EventsReceived(taken):
                for one in taken:
                    self._take(run, seen, one.event_id)
            case ChildStarted() if not body.refused:
                require(body.child_id in self._memory.tables.by_id, f"I10: run {run.id} has no child {body.child_id}")
            case _:
                pass

    def _take(self, run: Any, seen: _Seen, item: int) -> None:
        self.require(item not in self._taken, f"I5: item {item} was taken by {self._taken.get(item)} and {run.id}")
        self.require(item not in run.inbox, f"I5: item {item} of run {run.id} was recorded and is still unread")
        self._taken[item] = run.id

    # -- steps -----------------------------------------------------------------------------------------------------

    def asked(self, resident: Resident, operation: StepOperation) -> None:
        """A worker is about to begin an attempt."""
        run = self._memory.tables.runs.get(resident.key)
        self.require(run is not None, f"I8: a step of run {resident.id} begins before the run is stored")
        if run is None or run.epoch != resident.epoch or run.generation != resident.run.generation:
            return  # somebody else has the run: what this one still does cannot be recorded
        self.require(
            resident.run.last_seq < run.next_seq,
            f"I8: {operation.location} of run {run.id} begins before record {resident.run.last_seq} is durable",
        )

    def begins(self, attempt: Attempt) -> None:
        """The code of a step is about to run."""
        resident, location = attempt.resident, attempt.operation.location
        generation = resident.run.generation
        run = self._memory.tables.runs.get(resident.key)
        self._begun.add((resident.id, generation, location, attempt.number))
        if run is not None and run.epoch == resident.epoch and run.generation == generation:
            self.require(
                (resident.id, generation, location) not in self._settled,
                f"I8: {location} of run {resident.id} runs again, after its outcome was recorded",
            )

    # -- at the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Everything has come to rest."""
        memory = self._memory
        received: dict[tuple[str, int], int] = {}
        pruned: set[str] = set()
        for run in memory.tables.runs.values():
            for _generation, rows in run.journal.items():
                if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
                    pruned.add(run.id)
                for row in rows:
                    body = from_row(row).body
                    if isinstance(body, EventReceived) and not body.published:
                        number = _number(body.value)
                        received[run.id, number] = received.get((run.id, number), 0) + 1
        self._close_published()
        letters = {(one.target, _number(one.data)) for one in memory.tables.dead_letters.values()}
        unread = {
            (run.id, _number(item.data))
            for run in memory.tables.runs.values()
            for item in run.inbox.values()
            if item.kind is ItemKind.EVENT and not item.publication
        }
        for (run_id, number), count in sorted(received.items()):
            # What workflows send has a number from here on; one that stands in a loop sends it again.
            self.require(count == 1 or number >= SENT_BY_RUNS, f"I9: event {number} reached run {run_id} {count} times")
        for run_id, number in sorted(self.accepted):
            found = ((run_id, number) in received) + ((run_id, number) in letters) + ((run_id, number) in unread)
            self.require((run_id, number) not in unread, f"I9: event {number} lies unread in the ended run {run_id}")
            self.require(
                found == 1 or (found == 0 and run_id in pruned),
                f"I9: event {number} for run {run_id} was accepted and is in {found} places",
            )

    def _close_published(self) -> None:
        """A published event reached one run, or each run once; what runs sent was recorded by them as often."""
        taken: Counter[tuple[str, int]] = Counter()
        heard: Counter[tuple[str, str, int]] = Counter()
        sent, arrived, complete = 0, 0, True
        for run in self._memory.tables.runs.values():
            for rows in run.journal.values():
                complete = complete and [row.seq for row in rows] == list(range(1, len(rows) + 1))
                for row in rows:
                    match from_row(row).body:
                        case EventReceived(published=True) as body:
                            taken[body.type, _number(body.value)] += 1
                            heard[run.id, body.type, _number(body.value)] += 1
                        case EventReceived() as body:
                            arrived += _number(body.value) >= SENT_BY_RUNS
                        case Sent() as body:
                            sent += body.type == "Nudge" and not body.refused
                        case _:
                            pass
        arrived += sum(_number(one.data) >= SENT_BY_RUNS for one in self._memory.tables.dead_letters.values())
        if not complete:
            return  # loops in it say the same thing again and again, and the records of that are gone
        self.require(arrived == sent, f"I9: runs sent {sent} events and {arrived} arrived")
        for (kind, number), count in taken.items():
            self.require(
                count == 1 or kind != "Bell" or number >= SENT_BY_RUNS, f"I9: {kind} {number} was taken {count} times"
            )
        for (run_id, kind, number), count in heard.items():
            self.require(count == 1 or number >= SENT_BY_RUNS, f"I9: run {run_id} read {kind} {number} {count} times")


def _name(location: str) -> str:
    return location.rpartition("/")[2].partition("#")[0]


def _number(data: Any) -> int:
    digits = "".join(filter(str.isdigit, bytes(data).decode()))
    return int(digits)
