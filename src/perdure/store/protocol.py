"""The store protocol: everything durable that the engine asks for, and nothing about how it is kept.

Six protocols, by who calls: clients, events, people (`admin`), workers, movers of whole stores, and all who read;
`Store` is their union. Who implements it: `store.memory` (the reference), `store.sqlite`, `store.postgres`; anything
that passes the store suite. Nothing here assumes SQL: a sorted key-value store with atomic batches is enough.

What an implementation promises
- Each call is one atomic, durable change: when the awaitable resolves it survives a power cut; when it raises
  `StoreUnavailable` the outcome is unknown, and repeating the call is safe (laws 2, 3 and 6).
- A turn is accepted only from the current epoch, at the expected sequence number, on a run that has not
  ended (laws 6 and 7). A turn that was already accepted is recognised and answered like the first time.
- Times are integer microseconds since 1970, given by the caller: stores have no clock of their own, except
  for judging leases where several machines share a store.
- Batches may be grouped: implementations are free to put many calls into one transaction, as long as each
  call keeps its own outcome.

Life of a run, as a store sees it

    create ──> pending ──claim──> running <──commit──> waiting ──> completed | failed | cancelled
                  ^                  │                    │
                  │        park/pause│                    │release (evicted: unowned until ready_at)
                  ├──resume── parked ┤
                  ├─unpause── paused ┘
                  └──reopen── failed
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from perdure.kernel.journal import Row
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


class ClientStore(Protocol):
    """What callers do: start runs, send to them, end them."""

    async def create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        """Create a run and, with `turn`, commit its first turn with it.

        The caller cannot know the key yet: `turn.key`, and the key in the parent links of children spawned by
        the turn, are 0 and stand for the new run.

        With `new.owner` set the run belongs to that worker at epoch 1; otherwise it is pending.
        """
        ...

    def create_all(self, creations: Sequence[Creation]) -> Awaitable[Sequence[Created | Existing]]:
        """`create` for many runs at once, one result each, in order."""
        ...

    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        """Put an item into a run's inbox and make an unowned run claimable, in one change.

        Raises `RunNotFound`, `RunFinished`, or `InboxFull` when `pending_max` items of its type are unread.
        """
        ...

    async def request_cancel(self, run_id: str, item: NewItem) -> Delivery | None:
        """Like `append` for the first cancel request; None, changing nothing, if one was made or the run ended.

        Raises `RunNotFound`.
        """
        ...

    async def terminate(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        """End a run from outside, now: a last `Cancelled` record, a higher epoch, its parent told, its open
        (not detached) children asked to cancel. Reads no payload. None if it had already ended. Raises `RunNotFound`.
        """
        ...

    async def resume(self, run_id: str, at: int) -> bool:
        """Make a parked run claimable again. False if it is not parked. Raises `RunNotFound`."""
        ...


class EventStore(Protocol):
    """Published events, answers to requests, dead letters."""

    async def publish(self, item: NewItem, pending_max: int) -> Published:
        """Make an event known to every run that may have it, in one change with finding who waits for it.

        One of the runs that wait, or the first ones of them, have it when this returns; `spread` serves the rest. A
        run that begins to wait later finds it in the commit of that turn (`Turn.waits`).
        """
        ...

    async def spread(self, at: int, runs_max: int, pending_max: int) -> Spread:
        """Give what is being published to the next runs that wait. Any process may go on with it, in any order."""
        ...

    async def reply(self, request: str) -> bytes | None:
        """The answer to a request, once its run has given one. Not a moment old: as of the last commit."""
        ...

    async def replay_dead_letter(self, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
        """Send a dead letter to a run, or publish it; in the same change it is no dead letter any more.

        Raises `DeadLetterNotFound`, `RunNotFound`, `RunFinished`, `InboxFull`; then nothing was written.
        """
        ...

    async def remove_dead_letters(self, letter_ids: Sequence[int]) -> int:
        """Forget dead letters. Returns how many there were."""
        ...

    async def tidy_events(self, at: int, before: int, limit: int) -> int:
        """Remove up to `limit` of each: events that have expired at `at`; published events nobody holds, answers and
        keys from before `before`. Returns how many events went unread; they are counted by type."""
        ...


class AdminStore(Protocol):
    """What people do to runs."""

    async def pause(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        """Stop a run until `unpause`: status paused, epoch + 1, so that its owner's late turns are refused. The owner
        is told by an item. Its inbox goes on filling, but a published event that only one run gets goes on to another.
        None if it was not claimable. Raises `RunNotFound`."""
        ...

    async def unpause(self, run_id: str, at: int) -> bool:
        """Make a paused run claimable again. False if it is not paused. Raises `RunNotFound`."""
        ...

    async def reopen(self, reopen: Reopen) -> bool:
        """See `Reopen`. What it had not read when it failed is in its inbox again, unless somebody replayed or removed
        the dead letter. False, changing nothing, if the run or its parent have moved since: look again."""
        ...

    async def restore(self, snapshot: Snapshot) -> Created | Existing:
        """Create a run that has a past. Claimable at once if its status is open, unless that is parked or paused.

        It has what it brings; of published events only those are for it that are published from now on.
        """
        ...

    async def delete(self, keys: Sequence[RunKey]) -> int:
        """Remove ended runs that no worker holds any more, with all that belongs to them; returns how many. Others are
        left alone. A key is never used again, so late turns are refused, also when the id is (FAULTS C20, C21).

        Their answers belong to them: those under names that begin with `items.request_name(run_id, "")`."""
        ...


class WorkerStore(Protocol):
    """What a worker does with the runs that it holds."""

    async def register_worker(self, worker: WorkerInfo, terms: LeaseTerms = DEFAULT_TERMS) -> None:
        """The worker is there, and will `renew` at each interval. Repeating it is a renewal, and says anew which
        workflows it runs."""
        ...

    async def drain_worker(self, worker_id: str, at: int) -> None:
        """The worker has begun to leave: it takes no more runs, and gives back what it has. For others to see, and no
        share of what is due is kept for it. The first time counts."""
        ...

    async def unregister_worker(self, worker_id: str, at: int) -> None:
        """The worker leaves in order: whatever it still owns becomes claimable."""
        ...

    async def renew(self, worker_id: str, at: int) -> Renewed:
        """Say that the worker lives, and hear whether it still counts as alive; called at each interval of the sweep.

        `alive` is False, and nothing has changed, if the worker is not registered: it never was, it has left, or
        somebody has reaped it. One that nobody has reaped is alive, also if it looked dead for a while. A worker that
        hears that it is not goes on under a new id: what it has claimed and has in memory is no longer its own.

        `now` is the store's own time, for stores that judge leases by a clock: the clocks of its workers follow it. A
        store gives it always or never; one that sees the death of processes itself has none.
        """
        ...

    def trusted_until(self, worker_id: str) -> float | None:
        """Until when nobody else takes the runs of this worker of this process, by `time.monotonic`, as far as is known
        now; 0.0: somebody may have taken them. None: nobody does while the process lives, so there is nothing to judge.

        A worker judges itself by it, since it cannot be told by a store that it cannot reach (FAULTS C6).
        """
        ...

    async def reap(self, worker_id: str, at: int) -> int:
        """Free the runs of dead workers; those that were not waiting are due at once. Returns how many."""
        ...

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
        """Take up to `limit` claimable runs that are due, oldest first: owner set, epoch + 1, recoveries + 1.

        A run of one of the statuses in `CLAIMABLE` is due if nobody owns it and its `ready_at` has come. Suspects,
        of which more claims than `trusted` (0 or 1) in a row ended in the death of the worker (recoveries), do not
        count among them: of those up to `suspects_max` are taken besides, the ones with the most first. Runs of a
        workflow and version in `unknown` are left for other workers.

        A store with many workers may give this one fewer than are due, so that the others get their share. `again`:
        this call belongs to the same look as the one before, and shares what that one was given.
        """
        ...

    async def acquit(self, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
        """Lower the recoveries of runs that the worker owns under these epochs; others are left alone."""
        ...

    async def held(self, worker_id: str) -> Mapping[RunKey, int]:
        """The open runs of a worker and their epochs: what to compare with when the answer of a claim got lost."""
        ...

    async def load(self, keys: Sequence[RunKey]) -> Sequence[Loaded]:
        """Read runs for replay. Missing keys are left out."""
        ...

    def commit(self, turns: Sequence[Turn]) -> Awaitable[Sequence[CommitResult]]:
        """Make turns durable; one result each, in order. One turn's refusal does not touch the others."""
        ...

    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        """Give runs back (owner None, recoveries 0). Runs owned by somebody else are left alone."""
        ...

    async def park(self, key: RunKey, epoch: int, reason: str, at: int) -> bool:
        """Stop a run until `resume`: status parked, owner None, journal and inbox untouched. False if not the owner."""
        ...

    async def news(self, worker_id: str, cursor: int) -> News:
        """Items that arrived for this worker's runs after `cursor` (0 = from now on: only returns a cursor).

        Cursors grow, and news may be read again from an earlier one."""
        ...

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on the event loop when somebody else may have changed something. Only a hint.

        Returns the function that stops it.
        """
        ...


class MoveStore(Protocol):
    """All that a store has goes to another one: `store.move` has the order of the calls."""

    async def identity(self) -> str:
        """The same for everybody who looks at the same data, and for a copy of it; otherwise different."""
        ...

    async def departure(self) -> Departure | None:
        """Where the runs of this store are going or have gone; None: they live here. Not a moment old."""
        ...

    async def depart(self, target: str, target_id: str, at: int) -> Departure:
        """Everything that is open leaves: in one change, owners are forgotten, epochs raised (late turns are refused)
        and runs that could be claimed become MOVED; workers count as dead, so that they drop what they have in memory.

        From then on everything that would add or change a run, an event or a dead letter raises `StoreUnavailable`, and
        after `leave` `RunMoved`, in every process. Returns where it is going: somewhere else, if that was begun.
        """
        ...

    async def stay(self, at: int) -> bool:
        """Take `depart` back: what was MOVED is claimable again. False if nothing departs, or it is gone."""
        ...

    async def leave(self, at: int) -> bool:
        """What departs since `at` (`Departure.at`) is gone for good. False if that was taken back, whatever was begun
        since. Ended runs can still be read, and deleted."""
        ...

    async def pack(self, keys: Sequence[RunKey]) -> Sequence[Packed]:
        """Read whole runs, all of one state. Missing keys are left out."""
        ...

    async def remainder(self) -> Remainder:
        """Read all that belongs to no single run."""
        ...

    async def receive(self, source: str, runs: Sequence[Packed]) -> Receipt:
        """Create runs as they are, in this order. Open ones are ARRIVING: their inbox is open, but nobody can claim,
        resume or unpause them; ended ones cannot be reopened yet. A copy from the same source that is here on its way
        is replaced; any other run of that id is left alone (`Receipt.taken`).
        """
        ...

    async def confirm(self, source: str, marks: Mapping[str, str]) -> None:
        """These runs were compared with their originals, and are the same; by id, with what `received` says of them."""
        ...

    async def received(self, source: str, after: RunKey, limit: int) -> Sequence[Received]:
        """The runs that are here on their way from a source, by key. `after` pages on."""
        ...

    async def withdraw(self, source: str, run_ids: Sequence[str]) -> int:
        """Forget runs that are here on their way. Returns how many there were."""
        ...

    async def arrive(self, source: str, remainder: Remainder, at: int) -> bool:
        """Everything has come: in one change the runs from this source get their parents, children, waits and events,
        and what was open can be claimed, unless it is parked or paused. False, changing nothing, if that was done.

        Raises `MoveRefused`, changing nothing, if there are not as many of them as `remainder` says."""
        ...

    async def has_arrived(self, source: str) -> bool:
        """Whether `arrive` was called for this source."""
        ...


class ReadStore(Protocol):
    """What anybody may read. Never blocks writers, and may be a moment old."""

    async def get(self, run_id: str) -> RunRow | None: ...

    async def list_runs(self, where: RunFilter, limit: int, before: RunKey | None = None) -> Sequence[RunRow]:
        """Newest first. `before` pages on: the key of the last row of the page before."""
        ...

    async def count_runs(self) -> Mapping[Status, int]: ...

    async def journal(
        self, key: RunKey, generation: int, after_seq: int = 0, limit: int | None = None
    ) -> Sequence[Row]: ...

    async def inbox(self, key: RunKey, limit: int) -> Sequence[InboxItem]: ...

    async def workers(self) -> Sequence[WorkerInfo]: ...

    async def dead_workers(self) -> frozenset[str]:
        """Those of the registered workers that are dead, and that nobody has reaped yet. Writes nothing."""
        ...

    async def standings(self) -> Mapping[str, Standing]:
        """How the registered workers stand, by id: what each holds, whether it leaves, its lease. Writes nothing."""
        ...

    async def publications(self, type: str | None, limit: int, after: int = 0) -> Sequence[Publication]:  # noqa: A002
        """Published events, oldest first. `after` pages on: the id of the last one of the page before."""
        ...

    async def dead_letters(self, type: str | None, limit: int, after: int = 0) -> Sequence[DeadLetter]:  # noqa: A002
        """Dead letters, oldest first; pages like `publications`."""
        ...

    async def expired_events(self) -> Mapping[str, int]:
        """How many events of each type went away unread because their time was over."""
        ...


class Store(ClientStore, EventStore, AdminStore, WorkerStore, MoveStore, ReadStore, Protocol):
    """The whole store. See the module docstring for the promises; each method says what is particular to it."""

    async def open(self) -> None:
        """Make the store ready, migrating its schema if needed. Raises `StoreUnusable`, `SchemaTooNew`."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then free everything. May be called twice."""
        ...
