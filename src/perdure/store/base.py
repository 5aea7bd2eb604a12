"""The store protocol: everything durable that the engine asks for, and nothing about how it is kept.

Who calls it: the engine (clients and worker) and `admin`. Who implements it: `store.memory` (the reference),
`store.sqlite`; anything that passes the store suite. Nothing here assumes SQL: a sorted key-value store with
atomic batches is enough.

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
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.journal import Row

RunKey: TypeAlias = int
"""A store's own number for a run. Never reused: a deleted and recreated id gets another key."""


class Status(StrEnum):
    """Where a run stands. The last three are terminal: nothing changes them any more."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PARKED = "parked"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    #: Whether a run with this status has ended. An attribute, because hashing an Enum is slow and every turn asks.
    terminal: bool


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
for _status in Status:
    _status.terminal = _status in TERMINAL
#: Statuses a worker may claim.
CLAIMABLE = frozenset({Status.PENDING, Status.RUNNING, Status.WAITING})


def restored_status(status: Status) -> Status:
    """Of a run that is created with a past: nobody works on it, so it is pending unless it is to stay as it is."""
    return Status.PENDING if status in CLAIMABLE else status


class Struct(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Frozen, slotted, compared by value; plain data, so the garbage collector need not look at it."""


class ParentLink(Struct, frozen=True, gc=False):
    """Who hears about the end of a child: absent for independent and detached runs."""

    key: RunKey
    generation: int
    location: str


class NewRun(Struct, frozen=True, gc=False):
    """A run to be created. `started` is its first record, with seq 1."""

    id: str
    workflow: str
    version: str
    input_digest: bytes
    started: Row
    created_at: int
    parent: ParentLink | None = None
    #: The worker that takes it at once (epoch 1, nothing else to claim), or None: anyone may claim it.
    owner: str | None = None


class RunRow(Struct, frozen=True, gc=False):
    """What a store knows about a run besides its journal."""

    key: RunKey
    id: str
    generation: int
    workflow: str
    version: str
    status: Status
    epoch: int
    owner: str | None
    next_seq: int
    #: Earliest deadline of the current wait, for people and for claims.
    wake_at: int | None
    created_at: int
    updated_at: int
    finished_at: int | None
    #: Claims since the last commit that ended with the death of the worker.
    recoveries: int
    input_digest: bytes
    parent: ParentLink | None
    cancel_requested: bool
    #: What the run waits for, as the kernel wrote it (`kernel.operation.Frontier`).
    frontier: bytes | None
    #: Why it is parked, or why nobody runs it ("no worker knows ...").
    reason: str | None
    custom_status: bytes | None
    state: bytes | None
    #: The newest item ever put into its inbox, read or not; 0: none yet.
    last_item: int = 0
    #: Records of this generation that were deleted from its journal (`Turn.pruned`); next_seq - 1 - this are left.
    pruned: int = 0


class ItemKind(StrEnum):
    """What can arrive in a run's inbox."""

    EVENT = "event"
    CANCEL = "cancel"
    CHILD = "child"
    #: Somebody wants the next attempt of a step now. Its data is the step's location, or nothing for all of them.
    HURRY = "hurry"
    #: Only for the worker that holds a run which was paused: it is to let go. No turn ever takes it.
    PAUSE = "pause"


class NewItem(Struct, frozen=True, gc=False):
    """Something on its way to a run's inbox. `dedup`: a second item with the same key is accepted and ignored."""

    kind: ItemKind
    type: str
    data: bytes
    sent_at: int
    dedup: str | None = None
    #: How an event travels: see `EventPolicy`.
    policy: EventPolicy = DEFAULT_POLICY
    #: Somebody waits for the reply stored under this name.
    request: str = ""

    @property
    def expires_at(self) -> int | None:
        return None if self.policy.expires is None else self.sent_at + self.policy.expires


class InboxItem(Struct, frozen=True, gc=False):
    """Something in a run's inbox. Ids grow in the order of arrival within a run.

    `previous` is the id of the item that arrived before it in the same inbox (0: none). Items may reach a worker by
    several ways; this is how it knows that one is missing, and does not let a later one overtake it.
    """

    id: int
    kind: ItemKind
    type: str
    data: bytes
    sent_at: int
    previous: int = 0
    policy: EventPolicy = DEFAULT_POLICY
    #: From this moment on nobody gets it.
    expires_at: int | None = None
    #: The published event that this is a copy of (or, with `policy.single`, that is held here); 0: sent to this run.
    publication: int = 0
    request: str = ""


# -- a turn ----------------------------------------------------------------------------------------------


class Send(Struct, frozen=True, gc=False):
    """Put an item into another run's inbox, found by its id.

    The entry's row is written if the target took it; otherwise the row under the reason is:
    `not_found`, `finished` or `full`.
    """

    target: str
    item: NewItem
    refused: Mapping[str, Row]


class Spawn(Struct, frozen=True, gc=False):
    """Create a child run. If its id is taken, the row under `conflict` is written instead."""

    new: NewRun
    refused: Mapping[str, Row]


class Publish(Struct, frozen=True, gc=False):
    """Publish an event; see `Store.publish`. Never refused."""

    item: NewItem
    refused: Mapping[str, Row] = {}


class Reply(Struct, frozen=True, gc=False):
    """Store the answer to a request, where whoever asked finds it. A second answer to one request is ignored."""

    request: str
    data: bytes
    at: int
    refused: Mapping[str, Row] = {}


class Watch(Struct, frozen=True, gc=False):
    """Tell this run, at this location, about the end of another: now, if it has ended. May be `not_found`."""

    target: str
    location: str
    refused: Mapping[str, Row]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record of a turn, with the effect that is part of it, if any."""

    row: Row
    effect: Send | Spawn | Publish | Reply | Watch | None = None


class DeadItem(NamedTuple):
    """An inbox item that its run cannot take, and why."""

    id: int
    reason: str


class NextGeneration(Struct, frozen=True, gc=False):
    """`continue_as`: the run goes on under the same id with a fresh journal. Its inbox stays."""

    workflow: str
    version: str
    started: Row


class Turn(Struct, frozen=True, gc=False):
    """Everything one turn of one run changes, all or nothing."""

    key: RunKey
    epoch: int
    generation: int
    #: Where the first entry goes. A store whose next_seq differs refuses (or recognises) the turn.
    expected_seq: int
    entries: Sequence[Entry]
    status: Status
    wake_at: int | None
    at: int
    frontier: bytes | None = None
    #: Inbox items taken by this turn. All must be there: an item can be taken once.
    consumed: Sequence[int] = ()
    #: None leaves what is stored.
    custom_status: bytes | None = None
    state: bytes | None = None
    #: For the end of a child: what goes to its parent's inbox (ignored if the parent has ended).
    notice: NewItem | None = None
    continued: NextGeneration | None = None
    #: Unread items of one type a target may hold before `Send` is refused with `full`.
    pending_max: int = 10_000
    #: Positions of records of earlier turns to delete: iterations of loops that no replay needs any more.
    pruned: Sequence[int] = ()
    #: The types of events the run now waits for, and how many of each it could take; None: as before. In the same
    #: change the store looks for published events that the run may have: neither can miss the other.
    waits: Mapping[str, int] | None = None
    #: Published events held in this inbox that the run does not take: they go on to others.
    returned: Sequence[int] = ()
    #: Events that become dead letters instead of reaching the run.
    dead: Sequence[DeadItem] = ()


class StepTurn(Turn, frozen=True, gc=False):
    """A turn that says nothing but this: a step of a first generation has succeeded (its one entry, without an effect),
    and the code has asked for the next one. So the run goes on running, and `frontier` says which step it is.

    Most turns are. A store may have a shorter way for them; to one that has none they are turns like all others.
    """


class Delivery(NamedTuple):
    """An item that a call put into an inbox: lets a worker in this process skip the read."""

    key: RunKey
    owner: str | None
    item: InboxItem


class Committed(Struct, frozen=True, gc=False):
    """The turn is durable.

    `effects` holds, for each entry with an effect and in their order, the row that was written.
    `spawned` maps the ids of children created by this turn to their keys.
    """

    effects: Sequence[Row] = ()
    deliveries: Sequence[Delivery] = ()
    spawned: Mapping[str, RunKey] = {}
    #: The turn had been accepted by an earlier call whose answer got lost.
    repeated: bool = False
    #: Not every run that waits has what the turn published yet; `spread` goes on.
    more: bool = False
    #: The turn answered a request.
    replied: bool = False


#: The answer to a turn without effects on others: what most turns get.
PLAIN = Committed()


class Rejected(Struct, frozen=True, gc=False):
    """The turn changed nothing, because the sender no longer owns the run or the run has ended."""

    reason: str


CommitResult: TypeAlias = Committed | Rejected


#: A run to be created and its first turn, if it was taken already.
Creation: TypeAlias = tuple[NewRun, Turn | None]


class Created(Struct, frozen=True, gc=False):
    key: RunKey
    epoch: int
    committed: Committed | None


class Existing(Struct, frozen=True, gc=False):
    """The id is taken; nothing was written."""

    row: RunRow


class Appended(Struct, frozen=True, gc=False):
    """The item is in the inbox. `delivery` is None if its `dedup` key had been seen before."""

    delivery: Delivery | None


# -- changes by people -----------------------------------------------------------------------------------


class Reopen(Struct, frozen=True, gc=False):
    """Take back the end of a failed run: one more record says so, and it becomes claimable.

    Fenced by what whoever decided had seen: the run's epoch and next_seq, and how far its parent was.
    """

    key: RunKey
    epoch: int
    #: The record that says what counts no longer; its seq is the run's next_seq.
    record: Row
    frontier: bytes
    #: `next_seq` of the parent, if there is an open one that has not been told yet: an unread notice is withdrawn.
    parent_seq: int | None = None


class Snapshot(Struct, frozen=True, gc=False):
    """A whole run, to be created as it is: a copy of one from elsewhere (import), or of another one (fork).

    Of `run` the key, epoch, owner, recoveries and last_item do not count. It must have no parent: nobody waits for it.
    """

    run: RunRow
    #: The journals of its generations, by number; the current one must be there.
    journals: Mapping[int, Sequence[Row]]
    inbox: Sequence[NewItem] = ()


class Published(Struct, frozen=True, gc=False):
    """The event is published. `more`: not every run that waits has it yet; `spread` goes on."""

    #: None if its `dedup` key had been seen before.
    id: int | None
    deliveries: Sequence[Delivery] = ()
    more: bool = False


class Spread(Struct, frozen=True, gc=False):
    """A part of the runs that wait got what was published."""

    deliveries: Sequence[Delivery] = ()
    more: bool = False


class Publication(Struct, frozen=True, gc=False):
    """A published event, as long as somebody may still get it."""

    id: int
    type: str
    data: bytes
    published_at: int
    policy: EventPolicy
    expires_at: int | None
    #: The run in whose inbox it is, if one run gets it and has not taken it yet.
    holder: str | None


class DeadLetter(Struct, frozen=True, gc=False):
    """An event that did not reach its run. Kept until somebody replays or removes it."""

    id: int
    type: str
    data: bytes
    policy: EventPolicy
    #: The run it was for, and how that run stood when the event died.
    target: str
    target_status: Status
    sent_at: int
    died_at: int
    reason: str


# -- claiming --------------------------------------------------------------------------------------------


class WorkerInfo(Struct, frozen=True, gc=False):
    """A worker process. `id` is random per start; `name` is only a label."""

    id: str
    name: str
    host: str
    pid: int
    started_at: int


class Loaded(Struct, frozen=True, gc=False):
    """A run with the journal of its current generation and its whole inbox, read in one snapshot."""

    run: RunRow
    rows: Sequence[Row]
    inbox: Sequence[InboxItem]


class Release(Struct, frozen=True, gc=False):
    """Give a run back. It becomes claimable at `ready_at`, or at once if an item newer than `seen_item` waits."""

    key: RunKey
    epoch: int
    seen_item: int
    ready_at: int
    #: Why nobody runs it, for people ("no worker knows ..."). None clears.
    reason: str | None = None


class Acquittal(Struct, frozen=True, gc=False):
    """A run did not kill its worker: no more than so many of its claims count as deaths from now on."""

    key: RunKey
    epoch: int
    recoveries: int


class News(Struct, frozen=True, gc=False):
    """What happened to a worker's runs since `cursor`."""

    cursor: int
    items: Sequence[Delivery] = ()
    #: Runs this worker still holds that somebody else ended. (Of paused ones an item of the kind PAUSE tells.)
    ended: Sequence[RunKey] = ()


# -- reading ---------------------------------------------------------------------------------------------


class RunFilter(Struct, frozen=True, gc=False):
    """Which runs to list. All conditions must hold; empty means any."""

    statuses: frozenset[Status] = frozenset()
    workflow: str | None = None
    id_prefix: str | None = None
    parent_key: RunKey | None = None
    #: Only runs that ended before this moment.
    finished_before: int | None = None


class Store(Protocol):
    """See the module docstring for the promises; each method says what is particular to it."""

    async def open(self) -> None:
        """Make the store ready, migrating its schema if needed. Raises `StoreUnusable`, `SchemaTooNew`."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then free everything. May be called twice."""
        ...

    # clients

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

    # people (admin)

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
        the letter. False, changing nothing, if the run or its parent have moved since: look again."""
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

    # events

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

    async def replay_letter(self, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
        """Send a dead letter to a run, or publish it; in the same change it is no dead letter any more.

        Raises `LetterNotFound`, `RunNotFound`, `RunFinished`, `InboxFull`; then nothing was written.
        """
        ...

    async def remove_letters(self, letter_ids: Sequence[int]) -> int:
        """Forget dead letters. Returns how many there were."""
        ...

    async def tidy_events(self, at: int, before: int, limit: int) -> int:
        """Remove up to `limit` of each: events that have expired at `at`; published events nobody holds, answers and
        keys from before `before`. Returns how many events went unread; they are counted by type."""
        ...

    # workers

    async def register_worker(self, worker: WorkerInfo) -> None: ...

    async def unregister_worker(self, worker_id: str, at: int) -> None:
        """The worker leaves in order: whatever it still owns becomes claimable."""
        ...

    async def renew(self, worker_id: str, at: int) -> None:
        """Say that the worker lives. Stores that see process death themselves may do nothing."""
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
    ) -> Sequence[RunRow]:
        """Take up to `limit` claimable runs that are due, oldest first: owner set, epoch + 1, recoveries + 1.

        A run of one of the statuses in `CLAIMABLE` is due if nobody owns it and its `ready_at` has come. Suspects,
        of which more claims than `trusted` (0 or 1) in a row ended in the death of the worker (recoveries), do not
        count among them: of those up to `suspects_max` are taken besides, the ones with the most first. Runs of a
        workflow and version in `unknown` are left for other workers.
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

    # reading (clients, admin): never blocks writers, may be a moment old

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

    async def publications(self, type: str | None, limit: int, after: int = 0) -> Sequence[Publication]:  # noqa: A002
        """Published events, oldest first. `after` pages on: the id of the last one of the page before."""
        ...

    async def letters(self, type: str | None, limit: int, after: int = 0) -> Sequence[DeadLetter]:  # noqa: A002
        """Dead letters, oldest first; pages like `publications`."""
        ...

    async def expired_events(self) -> Mapping[str, int]:
        """How many events of each type went away unread because their time was over."""
        ...
