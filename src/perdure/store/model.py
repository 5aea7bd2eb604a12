"""The vocabulary of a store: runs and their statuses, inbox items, events, workers, and what is read of them.

What runs ask for and what arrives for them is the vocabulary of the kernel (`kernel.effects`, `kernel.items`), and is
named here as well. Plain frozen data. Times are integer microseconds since 1970. What a turn changes is in `turn`, what
a store can be asked in `protocol`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from perdure.kernel.definitions import EventPolicy
from perdure.kernel.effects import NewRun as NewRun
from perdure.kernel.effects import ParentLink as ParentLink
from perdure.kernel.effects import RunKey as RunKey
from perdure.kernel.items import InboxItem as InboxItem
from perdure.kernel.items import ItemKind as ItemKind
from perdure.kernel.items import NewItem as NewItem
from perdure.kernel.journal import Row
from perdure.limits import HEARTBEAT_SECONDS_DEFAULT, LEASE_SECONDS_DEFAULT


class Status(StrEnum):
    """Where a run stands. The last three are terminal: nothing changes them any more."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PARKED = "parked"
    PAUSED = "paused"
    #: Its store is being moved, or was: it goes on in another one (`store.move`).
    MOVED = "moved"
    #: It comes from another store, and goes on here when everything has come.
    ARRIVING = "arriving"
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


# -- runs -----------------------------------------------------------------------------------------------------


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
    #: What the run waits for, as the kernel wrote it (`kernel.frontier.Frontier`).
    frontier: bytes | None
    #: Why it is parked, or why nobody runs it ("no worker knows ...").
    reason: str | None
    custom_status: bytes | None
    state: bytes | None
    #: The newest item ever put into its inbox, read or not; 0: none yet.
    last_item: int = 0
    #: Records of this generation that were deleted from its journal (`Turn.pruned`); next_seq - 1 - this are left.
    pruned: int = 0


# -- inbox items ----------------------------------------------------------------------------------------------


class Delivery(NamedTuple):
    """An item that a call put into an inbox: lets a worker in this process skip the read."""

    key: RunKey
    owner: str | None
    item: InboxItem


class Appended(Struct, frozen=True, gc=False):
    """The item is in the inbox. `delivery` is None if its `dedup` key had been seen before."""

    delivery: Delivery | None


# -- events ---------------------------------------------------------------------------------------------------


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


# -- changes by people ----------------------------------------------------------------------------------------


class Reopen(Struct, frozen=True, gc=False):
    """Take back the end of a failed run: one more record says so, and it becomes claimable.

    Fenced by what the decision was based on: the run's epoch and next_seq, and how far its parent was.
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


# -- workers --------------------------------------------------------------------------------------------------


class WorkerInfo(Struct, frozen=True, gc=False):
    """What a worker says of itself. `id` is random per start; `name` is only a label."""

    id: str
    name: str
    host: str
    pid: int
    started_at: int
    #: Of perdure; "" if it did not say.
    release: str = ""
    #: The workflows and versions that it runs.
    definitions: tuple[tuple[str, str], ...] = ()


class LeaseStanding(Struct, frozen=True, gc=False):
    """How the lease of a worker stands, all by the clock of the store."""

    now: int
    renewed_at: int
    #: When somebody who renews as often as this worker said it would counts as silent.
    silent_at: int
    #: From when on others take its runs if it says nothing until then: the end of the lease, or before that if its
    #: process is known to be gone.
    take_over_at: int
    ends_at: int


class Standing(Struct, frozen=True, gc=False):
    """What a store knows of a registered worker besides what that says of itself. Whether it is dead is asked
    elsewhere (`dead_workers`)."""

    #: Open runs that are its own now.
    held: int = 0
    #: When it began to leave; None: it has not.
    draining_since: int | None = None
    #: None: in this store workers have no leases.
    lease: LeaseStanding | None = None


class LeaseTerms(Struct, frozen=True, gc=False):
    """For how long a worker that says nothing keeps its runs, and how often it says something, in seconds. Stores that
    see the death of a process themselves have no use for it."""

    seconds: float = LEASE_SECONDS_DEFAULT
    heartbeat: float = HEARTBEAT_SECONDS_DEFAULT


DEFAULT_TERMS = LeaseTerms()


class Renewed(Struct, frozen=True, gc=False):
    """What a worker that said that it lives is told."""

    #: False: it is not registered any more. Somebody found it dead, and its runs are others', or anybody's to claim.
    alive: bool
    #: Why not, if everything in the store goes to another one: where to.
    moved_to: str | None = None
    #: The store's own time. None: it has none, and the clocks of those who call it count.
    now: int | None = None


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


# -- reading --------------------------------------------------------------------------------------------------


class RunFilter(Struct, frozen=True, gc=False):
    """Which runs to list. All conditions must hold; empty means any."""

    statuses: frozenset[Status] = frozenset()
    workflow: str | None = None
    id_prefix: str | None = None
    parent_key: RunKey | None = None
    #: Only runs that ended before this moment.
    finished_before: int | None = None
