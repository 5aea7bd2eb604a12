"""A run in a worker's memory: its kernel object and everything that waits to be delivered to it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from perdure.kernel.codec import UNREAD
from perdure.kernel.commands import Command
from perdure.kernel.journal import Body, Record
from perdure.kernel.operation import ReceiveOperation, StepOperation
from perdure.kernel.run import Run
from perdure.store.base import DeadItem, InboxItem, ItemKind, ParentLink, RunKey, Status, Turn

if TYPE_CHECKING:
    from perdure.engine.steps import Attempt


Judge: TypeAlias = Callable[[ReceiveOperation, InboxItem], bool]
"""Says whether a receive with a `match` takes an event."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt of a step ended, on its way into the journal."""

    operation: StepOperation
    body: Body
    at: int
    #: What the code will see of a result, if that is known without decoding what will be stored.
    known: Any = UNREAD


class Added(Enum):
    """What came of an item on its way into an inbox."""

    NOW = auto()
    BEFORE = auto()  # it had come by another way
    GAP = auto()  # one before it has not come yet: it must not overtake that


class Inbox(msgspec.Struct, eq=False):
    """Unread items of a run, events by type, in the order of their arrival; published ones apart, because they come
    after those that were sent to the run.

    An item may come by several ways: with the answer of the call that stored it, with the worker's news, with a read
    of the store. Each names the one before it, so a repeat and a gap both show
    (tests/lifecycle/test_order_of_senders.py, tests/races/test_several_senders_at_once.py).
    """

    #: Everything up to this id has come.
    last: int = 0
    #: How many items there are.
    unread: int = 0
    #: How many events here can expire.
    expiring: int = 0
    # Each inbox gets its own of these from msgspec.
    events: dict[str, deque[InboxItem]] = {}
    published: dict[str, deque[InboxItem]] = {}
    others: list[InboxItem] = []  # seldom more than one; an empty deque takes 760 bytes

    @classmethod
    def of(cls, items: Iterable[InboxItem], last: int) -> Inbox:
        """The inbox of a run that was loaded, with what the store had for it."""
        inbox = cls()
        for item in items:
            inbox._put(item)
        inbox.last = max(inbox.last, last)
        return inbox

    def add(self, item: InboxItem) -> Added:
        if item.id <= self.last:
            return Added.BEFORE
        if item.previous > self.last:
            return Added.GAP
        self._put(item)
        return Added.NOW

    def add_all(self, items: Iterable[InboxItem]) -> bool:
        """The whole inbox as the store has it: what is not among it will not come. Whether something was new."""
        last = self.last
        for item in items:
            if item.id > self.last:
                self._put(item)
        return self.last > last

    def _put(self, item: InboxItem) -> None:
        self.last = item.id
        self.unread += 1
        if item.kind is ItemKind.EVENT:
            self._table(item).setdefault(item.type, deque()).append(item)
            self.expiring += item.expires_at is not None
        else:
            self.others.append(item)

    def _table(self, item: InboxItem) -> dict[str, deque[InboxItem]]:
        return self.published if item.publication else self.events

    def match(
        self, receives: Iterable[ReceiveOperation], judge: Judge
    ) -> tuple[ReceiveOperation, Sequence[InboxItem]] | None:
        """The oldest receive that something here fits, and the oldest items that fit it."""
        for receive in receives:
            found = list(islice(self._fitting(receive, judge), max(1, receive.wanted)))
            if len(found) >= max(1, receive.wanted) or receive.time_is_over:
                return receive, found
        return None

    def _fitting(self, receive: ReceiveOperation, judge: Judge) -> Iterator[InboxItem]:
        """What a receive takes, in the order in which it gets them."""
        for table in (self.events, self.published):
            queues = [table[name] for name in receive.types.specs if name in table]
            for item in queues[0] if len(queues) == 1 else heapq.merge(*queues, key=lambda item: item.id):
                if receive.match is None or judge(receive, item):
                    yield item

    def unwanted(self, receives: Sequence[ReceiveOperation], judge: Judge) -> list[InboxItem]:
        """Published events that are for one run only, which no receive here takes: other runs should have them."""
        return [
            item
            for name, queue in self.published.items()
            for item in queue
            if item.policy.single
            and not any(name in r.types.specs and (r.match is None or judge(r, item)) for r in receives)
        ]

    def drop_expired(self, now: int) -> None:
        """Forget events whose time is over; the store removes and counts them by itself."""
        for table in (self.events, self.published):
            for queue in list(table.values()):
                for item in [item for item in queue if item.expires_at is not None and item.expires_at <= now]:
                    self.take(item)

    def take(self, item: InboxItem) -> None:
        self.unread -= 1
        if item.kind is not ItemKind.EVENT:
            self.others.remove(item)
            return
        table = self._table(item)
        queue = table[item.type]
        if queue[0] is item:
            queue.popleft()
        else:
            queue.remove(item)
        self.expiring -= item.expires_at is not None
        if not queue:
            del table[item.type]


def as_judged(receive: ReceiveOperation, item: InboxItem) -> bool:
    """What the match of a receive said of an item, without asking it; one that it was not asked about may fit."""
    return receive.judged is None or receive.judged.get(item.id, True)


class Resident(msgspec.Struct, eq=False):
    """Changed by the coordinator, the turn builder, the step runner and the worker, on the thread of the host loop."""

    key: RunKey
    epoch: int
    run: Run
    next_seq: int
    parent: ParentLink | None
    inbox: Inbox
    #: Records that were deleted from the journal: iterations of loops that no replay needs.
    pruned: int = 0
    #: Results of attempts, not yet recorded.
    outcomes: list[Outcome] = []
    #: Records that are durable but that the code has not seen: answers to effects.
    written: Sequence[Record] = ()  # tuples where there is seldom anything: a thousand runs are many lists
    #: Attempts running now, by location.
    attempts: dict[str, Attempt] = {}
    #: Asked for by the code, to be carried out when the turn in the making is durable.
    commands: list[Command] = []
    #: The one step to start when the turn in flight is durable, if that is all there is to do then; it is not among the
    #: commands.
    following: StepOperation | None = None
    #: Events that this run cannot take, to become dead letters with the turn in the making.
    dead: Sequence[DeadItem] = ()
    #: Failed attempts, to be logged and told to `on_retry` hooks when they are durable.
    hooks: Sequence[Outcome] = ()
    #: The turn being committed. Until it is answered the run gets nothing new.
    in_flight: Turn | None = None
    queued: bool = False
    #: The record that ends the run, once the turn with it is built.
    last: Record | None = None
    #: Whether this object stands for its run in the worker's memory. Set by the coordinator alone.
    is_current: bool = False
    #: Whether it is among the idle ones. Set by the coordinator alone.
    is_waiting: bool = False
    saved_status: bytes | None = None
    saved_state: bytes | None = None
    #: The number and the digest of what it waits for, as stored; -1: nothing was.
    saved_count: int = -1
    saved_digest: int = -1
    saved_wake: int | None = None
    saved_run_status: Status | None = None
    #: Where the journal ended when the run was claimed, until it is known that it only waits; 0: begun here.
    claimed_seq: int = 0

    def __repr__(self) -> str:
        return f"<resident {self.id!r}>"  # what it holds is the user's, and logs show this

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def is_idle(self) -> bool:
        """Nothing is going on: it waits for time or for the outside."""
        return not (self.attempts or self.outcomes or self.written or self.in_flight or self.queued or self.commands)
