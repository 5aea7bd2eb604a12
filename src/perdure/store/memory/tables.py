"""What the memory store keeps: plain dicts, where SQLite has tables and indexes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from perdure.kernel.definitions import EventPolicy
from perdure.kernel.journal import Row
from perdure.store import refusals
from perdure.store.memory.watch import Watchers
from perdure.store.model import (
    CLAIMABLE,
    DeadLetter,
    InboxItem,
    ParentLink,
    RunKey,
    RunRow,
    Status,
    WorkerInfo,
)
from perdure.store.move import Departure, Relations
from perdure.store.turn import Turn


@dataclass(slots=True)
class Wait:
    """What a run has to do with one type of events. Kept when it stops waiting, because `shared` must not be lost."""

    #: How many it could take now; 0: it does not wait.
    wanted: int = 0
    #: The newest publication when it began to wait.
    since: int = 0
    #: Shared publications up to this one were given to it, or were not for it.
    shared: int = 0
    #: Single publications that it held and handed back, as long as it waits for the same.
    refused: set[int] = field(default_factory=set[int])


@dataclass(slots=True)
class Run:
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
        """The fence: whether a turn comes from the current owner, at the right place, on an open run."""
        return (
            self.epoch == turn.epoch
            and self.generation == turn.generation
            and self.next_seq == turn.expected_seq
            and self.status in CLAIMABLE
            and (self.owner is None or self.owner == turn.worker)
        )


@dataclass(slots=True)
class PublishedEvent:
    """A published event as the log has it."""

    id: int
    type: str
    data: bytes
    published_at: int
    policy: EventPolicy
    expires_at: int | None
    #: The newest run when it was published.
    last_run: RunKey
    holder: RunKey | None = None
    #: Runs that wait got it up to this key; None: all of them.
    spread_after: RunKey | None = None

    @property
    def delivery(self) -> str:
        return self.policy.delivery


@dataclass(slots=True)
class Coming:
    """A run from another store that is on its way here."""

    source: str
    old_key: RunKey
    #: How it will stand when everything has come.
    status: Status
    relations: Relations
    #: `mark_of` the original when it was brought.
    brought: str
    mark: str | None = None


@dataclass
class EventIndex:
    """Everything about published events that belongs to no single run."""

    publications: dict[int, PublishedEvent] = field(default_factory=dict[int, PublishedEvent])
    last_publication: int = 0
    #: `dedup` keys of publish, and when each was seen.
    keys: dict[str, int] = field(default_factory=dict[str, int])
    #: The runs that wait, by type.
    waiting: dict[str, dict[RunKey, Wait]] = field(default_factory=dict[str, dict[RunKey, Wait]])
    #: How many events of each type went away unread because their time was over.
    expired: Counter[str] = field(default_factory=Counter[str])
    #: Whether an item that can expire was ever put into an inbox.
    some_expire: bool = False


@dataclass
class Tables:
    """All that one memory store has. `testing` and the simulator look into it; only this package changes it."""

    runs: dict[RunKey, Run] = field(default_factory=dict[RunKey, Run])
    last_key: RunKey = 0
    by_id: dict[str, Run] = field(default_factory=dict[str, Run])
    #: Claimable runs that nobody owns.
    unowned: dict[RunKey, Run] = field(default_factory=dict[RunKey, Run])
    #: Runs that were terminated while a worker held them, until it lets go.
    ended_under_owner: set[RunKey] = field(default_factory=set[RunKey])
    children: dict[RunKey, list[Run]] = field(default_factory=dict[RunKey, list[Run]])
    workers: dict[str, WorkerInfo] = field(default_factory=dict[str, WorkerInfo])
    dead_workers: set[str] = field(default_factory=set[str])
    #: Since when workers have been leaving.
    draining: dict[str, int] = field(default_factory=dict[str, int])
    #: Unread items of all runs, oldest first: what `news` looks through from its end.
    arrivals: dict[int, RunKey] = field(default_factory=dict[int, RunKey])
    #: The first item gets 2, because 0 means "from now on" to `news` and a cursor must differ from it.
    last_item: int = 1
    events: EventIndex = field(default_factory=EventIndex)
    dead_letters: dict[int, DeadLetter] = field(default_factory=dict[int, DeadLetter])
    last_dead_letter: int = 0
    #: Answers to requests, and when each was given.
    replies: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    #: Which runs wait for the end of which: key, generation and location of each.
    watches: dict[RunKey, list[tuple[RunKey, int, str]]] = field(
        default_factory=dict[RunKey, list[tuple[RunKey, int, str]]]
    )
    watchers: Watchers = field(default_factory=Watchers)
    #: Which data this is, where it goes to, what comes, and from where everything has come.
    identity: str = ""
    departure: Departure | None = None
    coming: dict[RunKey, Coming] = field(default_factory=dict[RunKey, Coming])
    arrived: set[str] = field(default_factory=set[str])

    def new_key(self, run_id: str) -> RunKey:
        """The key of a run that is created. A store may choose them as it likes, as long as they grow."""
        self.last_key += 1
        return self.last_key

    def skip_key(self) -> None:
        """As SQLite does when an id is taken, so that lives on both can be compared number by number."""
        self.last_key += 1

    def check_here(self) -> None:
        """Refuse a change in a store that departs, or has gone."""
        if self.departure is not None:
            raise refusals.moved(self.departure.target, gone=self.departure.gone)

    def hint(self) -> None:
        """Something has changed that others may want to see."""
        self.watchers.hint()


def check_storable(*texts: str | None) -> None:
    """Refuse, with the error that encoding raises, what a store on a disk cannot hold: half a character."""
    for text in texts:
        if text is not None and not text.isascii():
            text.encode()
