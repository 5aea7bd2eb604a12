"""`MemoryStore`: the reference store. Plain dicts, nothing durable; what it does is what every store must do.

Who uses it: tests, `Engine(":memory:")`, and the simulator as its oracle. Several engines of one event loop
may share an instance. Every change happens between two awaits, so each call is atomic without a lock.

Process death is simulated: a registered worker is alive until `unregister_worker` or `kill_worker`. Closing
erases nothing, so a test can "restart" on the same instance.

Over 600 lines, and still one thing: the whole protocol on one set of dicts, so that it can be read as the reference.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.kernel.journal import Row
from perdure.limits import AT_ONCE, NEVER
from perdure.store import items, refusals
from perdure.store.base import (
    CLAIMABLE,
    Acquittal,
    Appended,
    CommitResult,
    Committed,
    Created,
    Creation,
    DeadLetter,
    Delivery,
    Entry,
    Existing,
    InboxItem,
    ItemKind,
    Loaded,
    NewItem,
    NewRun,
    News,
    NextGeneration,
    ParentLink,
    Publication,
    Publish,
    Published,
    Release,
    Reopen,
    Reply,
    RunFilter,
    RunKey,
    RunRow,
    Send,
    Snapshot,
    Spawn,
    Spread,
    Status,
    Turn,
    Watch,
    WorkerInfo,
    restored_status,
)
from perdure.store.memory_events import Book, Wait


@dataclass(slots=True)
class _Run:
    """Everything about one run. `ready_at` only matters while nobody owns it."""

    key: RunKey
    id: str
    workflow: str
    version: str
    input_digest: bytes
    created_at: int
    updated_at: int
    ready_at: int
    owner: str | None
    epoch: int
    status: Status
    parent: ParentLink | None
    journal: dict[int, list[Row]]
    generation: int = 1
    next_seq: int = 2
    wake_at: int | None = None
    finished_at: int | None = None
    recoveries: int = 0
    cancel_requested: bool = False
    frontier: bytes | None = None
    reason: str | None = None
    custom_status: bytes | None = None
    state: bytes | None = None
    last_item: int = 0
    pruned: int = 0
    inbox: dict[int, InboxItem] = field(default_factory=dict[int, InboxItem])
    unread: Counter[str] = field(default_factory=Counter[str])
    dedup: set[str] = field(default_factory=set[str])
    waits: dict[str, Wait] = field(default_factory=dict[str, Wait])

    def row(self) -> RunRow:
        return RunRow(
            key=self.key,
            id=self.id,
            generation=self.generation,
            workflow=self.workflow,
            version=self.version,
            status=self.status,
            epoch=self.epoch,
            owner=self.owner,
            next_seq=self.next_seq,
            wake_at=self.wake_at,
            created_at=self.created_at,
            updated_at=self.updated_at,
            finished_at=self.finished_at,
            recoveries=self.recoveries,
            input_digest=self.input_digest,
            parent=self.parent,
            cancel_requested=self.cancel_requested,
            frontier=self.frontier,
            reason=self.reason,
            custom_status=self.custom_status,
            state=self.state,
            last_item=self.last_item,
            pruned=self.pruned,
        )

    def accepts(self, turn: Turn) -> bool:
        return (
            self.epoch == turn.epoch
            and self.generation == turn.generation
            and self.next_seq == turn.expected_seq
            and self.status in CLAIMABLE
        )


class MemoryStore:
    """See the module docstring; the methods are described in `perdure.store.base.Store`."""

    def __init__(self) -> None:
        self._runs: dict[RunKey, _Run] = {}
        self._last_key = 0
        self._by_id: dict[str, _Run] = {}
        #: Claimable runs that nobody owns.
        self._unowned: dict[RunKey, _Run] = {}
        #: Runs that were terminated while a worker held them, until it lets go.
        self._ended: set[RunKey] = set()
        self._children: dict[RunKey, list[_Run]] = {}
        self._workers: dict[str, WorkerInfo] = {}
        self._dead: set[str] = set()
        #: Unread items of all runs, oldest first: what `news` looks through from its end.
        self._arrivals: dict[int, RunKey] = {}
        #: The first item gets 2, because 0 means "from now on" to `news` and a cursor must differ from it.
        self._last_item = 1
        self._watchers: dict[int, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}
        self._last_watcher = 0
        self._hinted: set[int] = set()
        self._book = Book(self._runs, self._put, self._drop_item, lambda run, kind: self._runs[run.key].unread[kind])

    def __repr__(self) -> str:
        return f"<MemoryStore with {len(self._runs)} runs>"

    async def open(self) -> None:
        """Nothing to prepare."""

    async def close(self) -> None:
        """Nothing to free: what was stored stays, for the next `open`."""

    def kill_worker(self, worker_id: str) -> None:
        """Pretend that the worker's process died: the next `reap` by somebody else frees its runs."""
        self._dead.add(worker_id)
        self._hint()

    # -- clients -----------------------------------------------------------------------------------------

    async def create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        created = self._create(new, turn)
        self._hint()
        return created

    async def create_all(self, creations: Sequence[Creation]) -> Sequence[Created | Existing]:
        created = [self._create(new, turn) for new, turn in creations]
        self._hint()
        return created

    def _create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        if turn is not None:
            refusals.check_first_turn(turn)
            _check_storable(*(entry.row.location for entry in turn.entries))
        _check_storable(new.id, new.workflow, new.version)
        if (existing := self._by_id.get(new.id)) is not None:
            self._last_key += 1  # as SQLite does, so that lives on both can be compared number by number
            return Existing(row=existing.row())
        run = self._insert(new, new.parent)
        committed = self._accept(run, turn) if turn is not None else None
        return Created(key=run.key, epoch=1 if new.owner is not None else 0, committed=committed)

    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        run = self._find(run_id)
        match self._offer(run, item, pending_max):
            case "finished":
                raise refusals.finished(run_id, run.status)
            case "full":
                raise refusals.inbox_full(run_id, item.type, pending_max)
            case "":
                return Appended(delivery=None)
            case Delivery() as delivery:
                self._hint()
                return Appended(delivery=delivery)
            case reason:
                raise AssertionError(reason)

    async def request_cancel(self, run_id: str, item: NewItem) -> Delivery | None:
        outcome = self._offer(self._find(run_id), item, 0)
        self._hint()
        return outcome if isinstance(outcome, Delivery) else None

    async def terminate(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        run = self._find(run_id)
        if run.status.terminal:
            return None
        at = max(at, run.updated_at)  # records of one run never go back in time
        run.journal[run.generation].append(items.terminated_row(run.next_seq, at, reason))
        run.next_seq += 1
        run.epoch += 1
        # The owner stays on the row, so that `news(...).ended` can tell it; its `release` clears it.
        owner = run.owner
        self._finish(run, Status.CANCELLED, at)
        if owner is not None:
            run.owner = owner
            self._ended.add(run.key)
        run.frontier = run.reason = None
        deliveries = list(self._book.end(run, run.journal[run.generation][-1], at, NEVER))
        if run.parent:
            deliveries += self._tell_parent(run, items.terminated_notice(run.parent, run.id, reason, at))
        for child in self._children.get(run.key, ()):
            asked = self._offer(child, items.orphaned_cancel(run.id, reason, at), 0)
            deliveries += [asked] if isinstance(asked, Delivery) else []
        self._hint()
        return deliveries

    async def resume(self, run_id: str, at: int) -> bool:
        run = self._find(run_id)
        if run.status is not Status.PARKED:
            return False
        run.status, run.ready_at, run.recoveries, run.reason = Status.PENDING, AT_ONCE, 0, None
        run.updated_at = max(at, run.updated_at)
        self._unowned[run.key] = run
        for _ in self._book.look_again(run, at):
            pass  # nobody owns the run: whoever claims it reads its inbox
        self._hint()
        return True

    # -- people ------------------------------------------------------------------------------------------

    async def pause(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        _check_storable(reason)
        run = self._find(run_id)
        if run.status not in CLAIMABLE:
            return None
        run.status, run.reason, run.updated_at = Status.PAUSED, reason, max(at, run.updated_at)
        run.epoch += 1
        self._unowned.pop(run.key, None)
        told = self._offer(run, items.pause_item(at), 0) if run.owner is not None else ""
        self._hint()
        return [*([told] if isinstance(told, Delivery) else []), *self._book.return_held(run, at)]

    async def unpause(self, run_id: str, at: int) -> bool:
        run = self._find(run_id)
        if run.status is not Status.PAUSED:
            return False
        run.status, run.owner, run.updated_at = Status.PENDING, None, max(at, run.updated_at)
        self._make_claimable(run)
        for _ in self._book.look_again(run, at):
            pass  # as in `resume`
        return True

    async def reopen(self, reopen: Reopen) -> bool:
        run = self._runs.get(reopen.key)
        if run is None or (run.epoch, run.next_seq, run.status) != (reopen.epoch, reopen.record.seq, Status.FAILED):
            return False
        parent = self._runs.get(run.parent.key) if run.parent is not None else None
        if reopen.parent_seq is not None:
            if parent is None or parent.next_seq != reopen.parent_seq:
                return False
            for told in items.notices_of(run.id, run.parent, parent.inbox.values()):
                self._drop_item(parent, told)
        ended_at = run.finished_at
        run.journal[run.generation].append(reopen.record)
        run.next_seq += 1
        run.epoch += 1
        run.status, run.finished_at, run.frontier = Status.PENDING, None, reopen.frontier
        run.updated_at = reopen.record.at
        self._make_claimable(run)
        self._book.give_back(run, ended_at)
        return True

    async def restore(self, snapshot: Snapshot) -> Created | Existing:
        row = snapshot.run
        self._last_key += 1
        if (existing := self._by_id.get(row.id)) is not None:
            return Existing(row=existing.row())
        run = _Run(
            key=self._last_key,
            id=row.id,
            generation=row.generation,
            workflow=row.workflow,
            version=row.version,
            input_digest=row.input_digest,
            created_at=row.created_at,
            updated_at=row.updated_at,
            finished_at=row.finished_at,
            ready_at=AT_ONCE,
            owner=None,
            epoch=0,
            status=restored_status(row.status),
            parent=None,
            journal={number: list(rows) for number, rows in snapshot.journals.items()},
            next_seq=row.next_seq,
            wake_at=row.wake_at,
            cancel_requested=row.cancel_requested,
            frontier=row.frontier,
            reason=row.reason,
            custom_status=row.custom_status,
            state=row.state,
            pruned=row.pruned,
        )
        self._runs[run.key] = self._by_id[run.id] = run
        self._book.begin_here(run)
        for item in snapshot.inbox:
            self._put(run, item)
        if run.status in CLAIMABLE:
            self._unowned[run.key] = run
        self._hint()
        return Created(key=run.key, epoch=0, committed=None)

    async def delete(self, keys: Sequence[RunKey]) -> int:
        gone = [run for key in set(keys) if (run := self._runs.get(key)) is not None]
        gone = [run for run in gone if run.status.terminal and run.owner is None]
        for run in gone:
            del self._runs[run.key], self._by_id[run.id]
            for item_id in run.inbox:
                self._arrivals.pop(item_id, None)
            self._book.forget_replies(run.id)
            self._children.pop(run.key, None)
            if run.parent is not None and run.parent.key in self._children:
                self._children[run.parent.key].remove(run)
        self._hint()
        return len(gone)

    async def publish(self, item: NewItem, pending_max: int) -> Published:
        _check_storable(item.type, item.dedup)
        published = self._book.publish(item, pending_max)
        self._hint()
        return published

    async def spread(self, at: int, runs_max: int, pending_max: int) -> Spread:
        spread = self._book.spread(at, runs_max, pending_max)
        if spread.deliveries:
            self._hint()
        return spread

    async def reply(self, request: str) -> bytes | None:
        found = self._book.replies.get(request)
        return None if found is None else found[0]

    async def replay_letter(self, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
        item = items.event_again(self._book.take_letter(letter_id), at)
        if run_id is None:
            published = self._book.publish(item, pending_max)
        else:
            appended = await self.append(run_id, item, pending_max)
            published = Published(id=None, deliveries=[appended.delivery] if appended.delivery is not None else [])
        del self._book.letters[letter_id]
        self._hint()
        return published

    async def remove_letters(self, letter_ids: Sequence[int]) -> int:
        return sum(self._book.letters.pop(letter_id, None) is not None for letter_id in set(letter_ids))

    async def tidy_events(self, at: int, before: int, limit: int) -> int:
        return self._book.tidy(at, before, limit)

    # -- workers -----------------------------------------------------------------------------------------

    async def register_worker(self, worker: WorkerInfo) -> None:
        self._workers[worker.id] = worker

    async def unregister_worker(self, worker_id: str, at: int) -> None:
        self._workers.pop(worker_id, None)
        for run in self._runs.values():
            if run.owner == worker_id:
                run.recoveries = 0  # it left in order: that is no recovery
        self._free({worker_id})
        self._hint()

    async def renew(self, worker_id: str, at: int) -> None:
        """Workers live until they are killed."""

    async def reap(self, worker_id: str, at: int) -> int:
        dead = self._dead - {worker_id}
        for each in dead:
            self._workers.pop(each, None)
        owners = {run.owner for run in self._runs.values() if run.owner is not None}
        return self._free(dead | (owners - self._workers.keys() - {worker_id}))

    async def claim(
        self,
        worker_id: str,
        at: int,
        limit: int,
        suspects_max: int = 1,
        unknown: Sequence[tuple[str, str]] = (),
        trusted: int = 0,
    ) -> Sequence[RunRow]:
        due = [
            run
            for run in self._unowned.values()
            if run.ready_at <= at and (not unknown or (run.workflow, run.version) not in unknown)
        ]
        chosen = _first(limit, (run for run in due if run.recoveries <= trusted))
        suspects = (run for run in due if run.recoveries > trusted)
        chosen += heapq.nsmallest(suspects_max, suspects, key=lambda run: (-run.recoveries, run.ready_at, run.key))
        for run in chosen:
            del self._unowned[run.key]
            run.owner = worker_id
            run.epoch += 1
            run.recoveries += 1
            if run.status is Status.PENDING:
                run.status = Status.RUNNING
        return [run.row() for run in chosen]

    async def acquit(self, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
        for each in acquittals:
            run = self._runs.get(each.key)
            if run is not None and run.owner == worker_id and run.epoch == each.epoch:
                run.recoveries = min(run.recoveries, each.recoveries)

    async def held(self, worker_id: str) -> Mapping[RunKey, int]:
        """The open runs of a worker and their epochs: what to compare with when a claim's answer got lost."""
        return {run.key: run.epoch for run in self._runs.values() if run.owner == worker_id and run.status in CLAIMABLE}

    async def load(self, keys: Sequence[RunKey]) -> Sequence[Loaded]:
        runs = [run for key in keys if (run := self._runs.get(key)) is not None]
        return [
            Loaded(run=run.row(), rows=list(run.journal[run.generation]), inbox=list(run.inbox.values()))
            for run in runs
        ]

    def commit(self, turns: Sequence[Turn]) -> asyncio.Future[Sequence[CommitResult]]:
        future: asyncio.Future[Sequence[CommitResult]] = asyncio.get_running_loop().create_future()
        future.set_result([self._commit(turn) for turn in turns])
        return future

    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        for each in releases:
            run = self._runs.get(each.key)
            if run is None or run.owner != worker_id:
                continue
            if run.status not in CLAIMABLE:
                self._forget_owner(run)  # ended or paused from outside: the owner has seen it
            elif run.epoch == each.epoch:
                # Looked at in the same change that gives the run up: an event that arrived after the
                # worker's last look would otherwise sleep until `ready_at` (testing/store/release.py).
                newer = any(item_id > each.seen_item for item_id in run.inbox)
                self._disown(run, AT_ONCE if newer else each.ready_at)
                run.recoveries, run.reason = 0, each.reason
        self._hint()

    async def park(self, key: RunKey, epoch: int, reason: str, at: int) -> bool:
        _check_storable(reason)
        run = self._runs.get(key)
        if run is None or run.epoch != epoch:
            return False
        if run.status in CLAIMABLE:
            run.status, run.owner, run.reason = Status.PARKED, None, reason
            run.updated_at = max(at, run.updated_at)  # `terminate` writes a record of that time
            self._unowned.pop(key, None)
            for _ in self._book.return_held(run, at):
                pass  # told by the hint, like everything that comes from another process
            self._hint()
            return True
        return run.status is Status.PARKED and run.reason == reason  # the same call again, after a lost answer

    async def news(self, worker_id: str, cursor: int) -> News:
        fresh: list[Delivery] = []
        for item_id in reversed(self._arrivals) if cursor else ():
            if item_id <= cursor:
                break
            run = self._runs[self._arrivals[item_id]]
            if run.owner == worker_id:
                fresh.append(Delivery(run.key, worker_id, run.inbox[item_id]))
        ended = [key for key in self._ended if self._runs[key].owner == worker_id]
        return News(cursor=self._last_item, items=fresh[::-1], ended=ended)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._last_watcher += 1
        number = self._last_watcher
        self._watchers[number] = (asyncio.get_running_loop(), callback)

        def stop() -> None:
            self._watchers.pop(number, None)

        return stop

    # -- reading -----------------------------------------------------------------------------------------

    async def get(self, run_id: str) -> RunRow | None:
        run = self._by_id.get(run_id)
        return None if run is None else run.row()

    async def list_runs(self, where: RunFilter, limit: int, before: RunKey | None = None) -> Sequence[RunRow]:
        found: list[RunRow] = []
        for run in reversed(self._runs.values()):
            if len(found) >= limit:
                break
            if (before is None or run.key < before) and _matches(run, where):
                found.append(run.row())
        return found

    async def count_runs(self) -> Mapping[Status, int]:
        return dict(Counter(run.status for run in self._runs.values()))

    async def journal(
        self, key: RunKey, generation: int, after_seq: int = 0, limit: int | None = None
    ) -> Sequence[Row]:
        run = self._runs.get(key)
        rows = run.journal.get(generation, []) if run is not None else []
        return [row for row in rows if row.seq > after_seq][:limit]

    async def inbox(self, key: RunKey, limit: int) -> Sequence[InboxItem]:
        run = self._runs.get(key)
        return list(run.inbox.values())[:limit] if run is not None else []

    async def workers(self) -> Sequence[WorkerInfo]:
        return list(self._workers.values())

    async def dead_workers(self) -> frozenset[str]:
        return frozenset(self._dead & self._workers.keys())

    async def publications(self, type: str | None, limit: int, after: int = 0) -> Sequence[Publication]:  # noqa: A002
        found = [one for one in self._book.publications.values() if one.id > after and type in (None, one.type)]
        return [self._book.shown(one) for one in found[:limit]]

    async def letters(self, type: str | None, limit: int, after: int = 0) -> Sequence[DeadLetter]:  # noqa: A002
        return [one for one in self._book.letters.values() if one.id > after and type in (None, one.type)][:limit]

    async def expired_events(self) -> Mapping[str, int]:
        return dict(self._book.expired)

    # -- a turn ------------------------------------------------------------------------------------------

    def _commit(self, turn: Turn) -> CommitResult:
        for entry in turn.entries:
            if not entry.row.location.isascii():
                _check_storable(entry.row.location)
            if entry.effect is not None and isinstance(entry.effect, (Send, Publish)):
                _check_storable(entry.effect.item.type, entry.effect.item.dedup)
        run = self._runs.get(turn.key)
        if run is None:
            return refusals.GONE
        # An item that is gone was taken before: by this turn if it comes again, else by another worker.
        needed = [*turn.consumed, *(item.id for item in turn.dead)]
        if run.accepts(turn) and all(item in run.inbox for item in needed):
            return self._accept(run, turn)
        repeated = self._recognise(run, turn)
        if repeated is not None:
            return repeated
        return refusals.rejected(turn, run.epoch, run.generation, run.next_seq, run.status)

    def _accept(self, run: _Run, turn: Turn) -> Committed:
        journal = run.journal[run.generation]
        run.next_seq += len(turn.entries)
        run.status, run.wake_at, run.updated_at, run.frontier = (
            turn.status,
            turn.wake_at,
            turn.at,
            turn.frontier,
        )
        run.reason = None
        if turn.entries:
            run.recoveries = 0  # a record is progress; a frontier alone is not
        if turn.custom_status is not None:
            run.custom_status = turn.custom_status
        if turn.state is not None:
            run.state = turn.state
        if turn.status.terminal:
            self._finish(run, turn.status, turn.at)
        for item_id in turn.consumed:
            self._book.taken(run.inbox[item_id])
            self._drop_item(run, run.inbox[item_id])
        effects: list[Row] = []
        deliveries: list[Delivery] = []
        spawned: dict[str, RunKey] = {}
        for entry in turn.entries:
            row = self._apply(run, entry, turn, deliveries, spawned)
            journal.append(row)
            if entry.effect is not None:
                effects.append(row)
        if turn.pruned:
            # Counted by what was there: a turn without records that comes again is not told from the first.
            gone, before = set(turn.pruned), len(journal)
            journal[:] = [row for row in journal if row.seq not in gone]
            run.pruned += before - len(journal)
        if turn.continued is not None:
            self._continue(run, turn.continued)
        buried = self._book.bury(run, turn.dead, turn.at)
        if turn.status.terminal:
            deliveries += self._book.end(run, journal[-1], turn.at, turn.pending_max)
        elif turn.waits is not None or turn.returned or buried:
            deliveries += self._book.settle(run, turn.waits, turn.returned, buried, turn.at, turn.pending_max)
        if turn.notice is not None:
            deliveries += self._tell_parent(run, turn.notice)
        if deliveries or spawned or run.finished_at is not None or turn.custom_status is not None:
            self._hint()
        made = [entry.effect for entry in turn.entries if entry.effect is not None]
        return Committed(
            effects=effects,
            deliveries=deliveries,
            spawned=spawned,
            more=any(isinstance(effect, Publish) for effect in made),  # perhaps; looking costs little
            replied=any(isinstance(effect, Reply) for effect in made),
        )

    def _apply(
        self,
        run: _Run,
        entry: Entry,
        turn: Turn,
        deliveries: list[Delivery],
        spawned: dict[str, RunKey],
    ) -> Row:
        """Carry out an entry's effect and choose the row that tells how it went."""
        match entry.effect:
            case None:
                return entry.row
            case Send(target=target, item=item, refused=refused):
                receiver = self._by_id.get(target)
                outcome = "not_found" if receiver is None else self._offer(receiver, item, turn.pending_max)
                if isinstance(outcome, Delivery):
                    deliveries.append(outcome)
                    return entry.row
                return refused[outcome] if outcome else entry.row
            case Spawn(new=new, refused=refused):
                # Whoever wrote the first turn of a run did not know its key yet, so it is filled in here.
                link = new.parent and ParentLink(
                    key=run.key, generation=new.parent.generation, location=new.parent.location
                )
                child = self._by_id.get(new.id)
                if child is None:
                    child = self._insert(new, link)
                    spawned[new.id] = child.key
                    return entry.row
                self._last_key += 1
                if link is None or (child.parent, child.input_digest, child.workflow) != (
                    link,
                    new.input_digest,
                    new.workflow,
                ):
                    return refused["conflict"]
                spawned[new.id] = child.key
                return entry.row
            case Publish(item=item):
                # Waits that this turn changes are settled at its end: until then nobody knows whether the run still
                # wants a single event (`check_a_turn_that_stops_waiting_does_not_get_what_it_publishes`).
                but = run.key if turn.waits is not None else 0
                deliveries += self._book.publish(item, turn.pending_max, but).deliveries
                return entry.row
            case Reply(request=request, data=data, at=at):
                self._book.replies.setdefault(request, (data, at))
                return entry.row
            case Watch(target=target, location=location, refused=refused):
                watched = self._by_id.get(target)
                if watched is None:
                    return refused["not_found"]
                last = watched.journal[watched.generation][-1] if watched.status.terminal else None
                deliveries += self._book.watch(run, watched, last, location, turn.at)
                return entry.row

    def _recognise(self, run: _Run, turn: Turn) -> Committed | None:
        """Answer a turn that an earlier call had already made durable ("raised but committed", law 6)."""
        generation = turn.generation + (turn.continued is not None)
        if not turn.entries or run.epoch != turn.epoch or run.generation != generation:
            return None
        start = turn.expected_seq
        rows = run.journal.get(turn.generation, ())
        stored = [row for row in rows if start <= row.seq < start + len(turn.entries)]
        if len(stored) != len(turn.entries):
            return None
        effects: list[Row] = []
        spawned: dict[str, RunKey] = {}
        for entry, row in zip(turn.entries, stored, strict=True):
            effect = entry.effect
            if row != entry.row and (effect is None or row not in effect.refused.values()):
                return None
            if effect is not None:
                effects.append(row)
            if isinstance(effect, Spawn) and row == entry.row and effect.new.id in self._by_id:
                spawned[effect.new.id] = self._by_id[effect.new.id].key
        return Committed(effects=effects, spawned=spawned, repeated=True)

    def _continue(self, run: _Run, following: NextGeneration) -> None:
        run.generation += 1
        run.journal[run.generation] = [following.started]
        run.next_seq = 2
        run.pruned = 0
        run.workflow, run.version = following.workflow, following.version
        run.cancel_requested = False  # asked of the generation that ended; this one can be asked anew

    # -- parts -------------------------------------------------------------------------------------------

    def _find(self, run_id: str) -> _Run:
        run = self._by_id.get(run_id)
        if run is None:
            raise refusals.not_found(run_id)
        return run

    def _insert(self, new: NewRun, parent: ParentLink | None) -> _Run:
        self._last_key += 1
        run = _Run(
            key=self._last_key,
            id=new.id,
            workflow=new.workflow,
            version=new.version,
            input_digest=new.input_digest,
            created_at=new.created_at,
            updated_at=new.created_at,
            ready_at=AT_ONCE,
            owner=new.owner,
            epoch=0 if new.owner is None else 1,
            status=Status.PENDING if new.owner is None else Status.RUNNING,
            parent=parent,
            journal={1: [new.started]},
        )
        self._runs[run.key] = self._by_id[run.id] = run
        if run.owner is None:
            self._unowned[run.key] = run
        if parent is not None:
            self._children.setdefault(parent.key, []).append(run)
        return run

    def _offer(self, run: _Run, item: NewItem, pending_max: int) -> Delivery | str:
        """Put an item into an inbox. A text is the reason why not; the empty one: had it before."""
        _check_storable(item.type, item.dedup)
        # Before anything else: the repeat of a call whose answer got lost must succeed, also if the run has
        # read the first one and ended since (testing/store/inbox.py).
        if item.dedup is not None and item.dedup in run.dedup:
            return ""
        if run.status.terminal:
            return "finished"
        if item.kind is ItemKind.CANCEL:
            if run.cancel_requested:
                return ""
            run.cancel_requested = True
        elif item.kind is ItemKind.EVENT and run.unread[item.type] >= pending_max:
            return "full"
        return self._put(run, item)

    def _put(self, run: Any, item: NewItem, publication: int = 0) -> Delivery:
        """Store an item. `publication`: the published event that it is a copy of."""
        if item.dedup is not None:
            run.dedup.add(item.dedup)
        if item.policy.expires is not None:
            self._book.some_expire = True
        self._last_item += 1
        stored = InboxItem(
            id=self._last_item,
            kind=item.kind,
            type=item.type,
            data=item.data,
            sent_at=item.sent_at,
            previous=run.last_item,
            policy=item.policy,
            expires_at=item.expires_at,
            publication=publication,
            request=item.request,
        )
        run.last_item = stored.id
        run.inbox[stored.id] = stored
        run.unread[item.type] += item.kind is ItemKind.EVENT
        self._arrivals[stored.id] = run.key
        if run.owner is None:
            run.ready_at = AT_ONCE
        return Delivery(run.key, run.owner, stored)

    def _drop_item(self, run: Any, item: InboxItem) -> None:
        del run.inbox[item.id]
        run.unread[item.type] -= item.kind is ItemKind.EVENT
        del self._arrivals[item.id]

    def _make_claimable(self, run: _Run) -> None:
        run.ready_at, run.recoveries, run.reason = AT_ONCE, 0, None
        for item in [item for item in run.inbox.values() if item.kind is ItemKind.PAUSE]:
            self._drop_item(run, item)
        self._unowned[run.key] = run
        self._hint()

    def _tell_parent(self, run: _Run, notice: NewItem) -> Iterator[Delivery]:
        parent = self._runs.get(run.parent.key) if run.parent is not None else None
        told = self._offer(parent, notice, 0) if parent is not None else ""
        if isinstance(told, Delivery):
            yield told

    def _finish(self, run: _Run, status: Status, at: int) -> None:
        run.status, run.finished_at, run.updated_at, run.owner, run.wake_at = status, at, at, None, None
        self._unowned.pop(run.key, None)

    def _forget_owner(self, run: _Run) -> None:
        run.owner = None
        self._ended.discard(run.key)

    def _disown(self, run: _Run, ready_at: int) -> None:
        run.owner = None
        if run.status is Status.RUNNING:
            run.status = Status.PENDING  # nobody runs it, and people should see that
        run.ready_at = ready_at
        self._unowned[run.key] = run

    def _free(self, owners: set[str]) -> int:
        """Take the runs of workers that are gone from them, and make them due."""
        lost = [run for run in self._runs.values() if run.owner in owners]
        for run in lost:
            if run.status not in CLAIMABLE:
                self._forget_owner(run)
            elif run.status is Status.WAITING and not run.inbox:
                self._disown(run, NEVER if run.wake_at is None else run.wake_at)
            else:
                self._disown(run, AT_ONCE)
        if lost:
            self._hint()
        return len(lost)

    # -- hints -------------------------------------------------------------------------------------------

    def _hint(self) -> None:
        """Schedule every watcher once, however many changes come before its loop gets to it."""
        for number, (loop, _) in list(self._watchers.items()):
            if number in self._hinted:
                continue
            self._hinted.add(number)
            try:
                loop.call_soon_threadsafe(self._call, number)
            except RuntimeError:  # its loop is closed: nobody is left to be told
                self._watchers.pop(number, None)

    def _call(self, number: int) -> None:
        self._hinted.discard(number)
        watcher = self._watchers.get(number)
        if watcher is not None:
            watcher[1]()


def _check_storable(*texts: str | None) -> None:
    """Refuse, with the error that encoding raises, what a store on a disk cannot hold: half a character."""
    for text in texts:
        if text is not None and not text.isascii():
            text.encode()


def _first(count: int, runs: Iterator[_Run]) -> list[_Run]:
    return heapq.nsmallest(count, runs, key=lambda run: (run.ready_at, run.key))


def _matches(run: _Run, where: RunFilter) -> bool:
    return (
        (not where.statuses or run.status in where.statuses)
        and (where.workflow is None or run.workflow == where.workflow)
        and (where.id_prefix is None or run.id.startswith(where.id_prefix))
        and (where.parent_key is None or (run.parent is not None and run.parent.key == where.parent_key))
        and (where.finished_before is None or (run.finished_at is not None and run.finished_at < where.finished_before))
    )
