"""`MemoryStore`: the reference store. Plain dicts, nothing durable; what it does is what every store must do.

Who uses it: tests, `Engine(":memory:")`, and the simulator as its oracle. Several engines of one event loop
may share an instance. Every change happens between two awaits, so each call is atomic without a lock.

Process death is simulated: a registered worker is alive until `unregister_worker` or `kill_worker`. Closing
erases nothing, so a test can "restart" on the same instance.

What a call does is in `runs`, `turns`, `inbox`, `events`, `dead_letters`, `workers` and `reads`, as in `store.sqlite`;
what they work on is in `tables`. This module only says what can be asked, and tells those who watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from uuid import uuid4

from perdure.kernel.journal import Row
from perdure.store.health import Examined
from perdure.store.memory import dead_letters, events, health, inbox, moving, reads, runs, turns, workers
from perdure.store.memory.tables import Tables
from perdure.store.memory.turns import commit_turns
from perdure.store.model import (
    DEFAULT_TERMS,
    Acquittal,
    Appended,
    DeadLetter,
    Delivery,
    InboxItem,
    LeaseTerms,
    Loaded,
    NewItem,
    NewRun,
    News,
    Publication,
    Published,
    Release,
    Renewed,
    Reopen,
    RunFilter,
    RunKey,
    RunRow,
    Snapshot,
    Spread,
    Standing,
    Status,
    WorkerInfo,
)
from perdure.store.move import Departure, Packed, Receipt, Received, Remainder
from perdure.store.turn import CommitResult, Created, Creation, Existing, Turn

T = TypeVar("T")


class MemoryStore:
    """See the module docstring; the methods are described in `perdure.store.protocol`."""

    def __init__(self) -> None:
        self.tables = Tables()

    def __repr__(self) -> str:
        return f"<MemoryStore with {len(self.tables.runs)} runs>"

    async def open(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """Nothing to free: what was stored stays, for the next `open`."""

    def kill_worker(self, worker_id: str) -> None:
        """Pretend that the worker's process died: the next `reap` by somebody else frees its runs."""
        self.tables.dead_workers.add(worker_id)
        self.tables.hint()

    def _changed(self, answer: T) -> T:
        """Tell those who watch, unless nothing has changed."""
        if not any(answer is nothing for nothing in (None, False)):
            self.tables.hint()
        return answer

    async def examine(self) -> Examined:
        """How it is, for `perdure doctor`. Open or not; writes nothing."""
        return health.examine(self.tables)

    # -- clients -----------------------------------------------------------------------------------------

    async def create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        return self._changed(turns.create(self.tables, new, turn))

    async def create_all(self, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
        return self._changed(turns.create_all(self.tables, creations))

    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        appended = inbox.append(self.tables, run_id, item, pending_max)
        self._changed(appended.delivery)
        return appended

    async def request_cancel(self, run_id: str, item: NewItem) -> Delivery | None:
        delivery = inbox.request_cancel(self.tables, run_id, item)
        self.tables.hint()
        return delivery

    async def terminate(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        return self._changed(runs.terminate(self.tables, run_id, reason, at))

    async def resume(self, run_id: str, at: int) -> bool:
        return self._changed(runs.resume(self.tables, run_id, at))

    # -- people ------------------------------------------------------------------------------------------

    async def pause(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        return self._changed(runs.pause(self.tables, run_id, reason, at))

    async def unpause(self, run_id: str, at: int) -> bool:
        return self._changed(runs.unpause(self.tables, run_id, at))

    async def reopen(self, reopen: Reopen) -> bool:
        return self._changed(runs.reopen(self.tables, reopen))

    async def restore(self, snapshot: Snapshot) -> Created | Existing:
        restored = runs.restore(self.tables, snapshot)
        self._changed(isinstance(restored, Created))
        return restored

    async def delete(self, keys: Sequence[RunKey]) -> int:
        return self._changed(runs.delete(self.tables, keys))

    # -- events ------------------------------------------------------------------------------------------

    async def publish(self, item: NewItem, pending_max: int) -> Published:
        return self._changed(events.publish(self.tables, item, pending_max))

    async def spread(self, at: int, runs_max: int, pending_max: int) -> Spread:
        spread = events.spread(self.tables, at, runs_max, pending_max)
        self._changed(bool(spread.deliveries))
        return spread

    async def reply(self, request: str) -> bytes | None:
        return reads.reply(self.tables, request)

    async def replay_dead_letter(self, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
        return self._changed(dead_letters.replay(self.tables, letter_id, run_id, at, pending_max))

    async def remove_dead_letters(self, letter_ids: Sequence[int]) -> int:
        return dead_letters.remove(self.tables, letter_ids)

    async def tidy_events(self, at: int, before: int, limit: int) -> int:
        return events.tidy(self.tables, at, before, limit)

    # -- workers -----------------------------------------------------------------------------------------

    async def register_worker(self, worker: WorkerInfo, terms: LeaseTerms = DEFAULT_TERMS) -> None:
        self.tables.workers[worker.id] = worker

    async def drain_worker(self, worker_id: str, at: int) -> None:
        workers.drain(self.tables, worker_id, at)

    async def unregister_worker(self, worker_id: str, at: int) -> None:
        workers.remove_worker(self.tables, worker_id)
        self.tables.hint()

    async def renew(self, worker_id: str, at: int) -> Renewed:
        """Workers live until somebody has reaped them. One that was killed stays killed, whatever it says itself."""
        departure = self.tables.departure
        return Renewed(alive=worker_id in self.tables.workers, moved_to=None if departure is None else departure.target)

    def trusted_until(self, worker_id: str) -> float | None:
        return None

    async def reap(self, worker_id: str, at: int) -> int:
        freed = workers.reap(self.tables, worker_id)
        self._changed(bool(freed))
        return freed

    async def claim(
        self,
        worker_id: str,
        at: int,
        limit: int,
        suspects_max: int = 1,
        unknown: Sequence[tuple[str, str]] = (),
        trusted: int = 0,
        again: bool = False,
    ) -> Sequence[RunRow]:
        return workers.claim(self.tables, worker_id, at, limit, suspects_max, unknown, trusted)

    async def acquit(self, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
        workers.acquit(self.tables, worker_id, acquittals)

    async def held(self, worker_id: str) -> Mapping[RunKey, int]:
        return workers.held(self.tables, worker_id)

    async def load(self, keys: Sequence[RunKey]) -> Sequence[Loaded]:
        return reads.load(self.tables, keys)

    def commit(self, turns: Sequence[Turn]) -> asyncio.Future[Sequence[CommitResult]]:
        future: asyncio.Future[Sequence[CommitResult]] = asyncio.get_running_loop().create_future()
        future.set_result(commit_turns(self.tables, turns))
        return future

    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        workers.release(self.tables, worker_id, releases)
        self.tables.hint()

    async def park(self, key: RunKey, epoch: int, reason: str, at: int) -> bool:
        return workers.park(self.tables, key, epoch, reason, at)

    async def news(self, worker_id: str, cursor: int) -> News:
        return workers.news(self.tables, worker_id, cursor)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self.tables.watchers.add(callback)

    # -- moving ------------------------------------------------------------------------------------------

    async def identity(self) -> str:
        self.tables.identity = self.tables.identity or uuid4().hex  # not before: simulated worlds count what is drawn
        return self.tables.identity

    async def departure(self) -> Departure | None:
        return self.tables.departure

    async def depart(self, target: str, target_id: str, at: int) -> Departure:
        return self._changed(moving.depart(self.tables, target, target_id, at))

    async def stay(self, at: int) -> bool:
        return self._changed(moving.stay(self.tables, at))

    async def leave(self, at: int) -> bool:
        return self._changed(moving.leave(self.tables, at))

    async def pack(self, keys: Sequence[RunKey]) -> Sequence[Packed]:
        return moving.pack(self.tables, keys)

    async def remainder(self) -> Remainder:
        return moving.remainder(self.tables)

    async def receive(self, source: str, runs: Sequence[Packed]) -> Receipt:
        return moving.receive(self.tables, source, runs)

    async def confirm(self, source: str, marks: Mapping[str, str]) -> None:
        moving.confirm(self.tables, source, marks)

    async def received(self, source: str, after: RunKey, limit: int) -> Sequence[Received]:
        return moving.received(self.tables, source, after, limit)

    async def withdraw(self, source: str, run_ids: Sequence[str]) -> int:
        return moving.withdraw(self.tables, source, run_ids)

    async def arrive(self, source: str, remainder: Remainder, at: int) -> bool:
        return self._changed(moving.arrive(self.tables, source, remainder, at))

    async def has_arrived(self, source: str) -> bool:
        return source in self.tables.arrived

    # -- reading -----------------------------------------------------------------------------------------

    async def get(self, run_id: str) -> RunRow | None:
        return reads.get(self.tables, run_id)

    async def list_runs(self, where: RunFilter, limit: int, before: RunKey | None = None) -> Sequence[RunRow]:
        return reads.list_runs(self.tables, where, limit, before)

    def ready_times(self) -> list[int]:
        """When the runs that nobody owns may be claimed. For virtual time, which has to jump there."""
        return [run.ready_at for run in self.tables.unowned.values()]

    async def count_runs(self) -> Mapping[Status, int]:
        return reads.count_runs(self.tables)

    async def journal(
        self, key: RunKey, generation: int, after_seq: int = 0, limit: int | None = None
    ) -> Sequence[Row]:
        return reads.journal(self.tables, key, generation, after_seq, limit)

    async def inbox(self, key: RunKey, limit: int) -> Sequence[InboxItem]:
        return reads.inbox(self.tables, key, limit)

    async def workers(self) -> Sequence[WorkerInfo]:
        return list(self.tables.workers.values())

    async def dead_workers(self) -> frozenset[str]:
        return frozenset(self.tables.dead_workers & self.tables.workers.keys())

    async def standings(self) -> Mapping[str, Standing]:
        return workers.standings(self.tables)

    async def publications(self, type: str | None, limit: int, after: int = 0) -> Sequence[Publication]:  # noqa: A002
        return reads.publications(self.tables, type, limit, after)

    async def dead_letters(self, type: str | None, limit: int, after: int = 0) -> Sequence[DeadLetter]:  # noqa: A002
        return reads.dead_letters(self.tables, type, limit, after)

    async def expired_events(self) -> Mapping[str, int]:
        return reads.expired_events(self.tables)
