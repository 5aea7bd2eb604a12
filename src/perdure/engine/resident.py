"""A run in a worker's memory: its kernel object and everything that waits to be delivered to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from perdure.kernel.commands import Command
from perdure.kernel.journal import Body, Record
from perdure.kernel.operation import ReceiveOperation, StepOperation
from perdure.kernel.run import Run
from perdure.store.base import InboxItem, ItemKind, ParentLink, RunKey, Status, Turn

if TYPE_CHECKING:
    from perdure.engine.steps import Attempt


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt of a step ended, on its way into the journal."""

    operation: StepOperation
    body: Body
    at: int


class Added(Enum):
    """What came of an item on its way into an inbox."""

    NOW = auto()
    BEFORE = auto()  # it had come by another way
    GAP = auto()  # one before it has not come yet: it must not overtake that


class Inbox:
    """Unread items of a run, events by type, in the order of their arrival.

    An item may come by several ways: with the answer of the call that stored it, with the worker's news, with a read
    of the store. Each names the one before it, so a repeat and a gap both show
    (tests/lifecycle/test_order_of_senders.py, tests/races/test_several_senders_at_once.py).
    """

    __slots__ = ("events", "last", "others")

    def __init__(self, items: Iterable[InboxItem] = (), last: int = 0) -> None:
        self.events: dict[str, deque[InboxItem]] = {}
        self.others: list[InboxItem] = []  # seldom more than one; an empty deque takes 760 bytes
        #: Everything up to this id has come.
        self.last = 0
        for item in items:
            self._put(item)
        self.last = max(self.last, last)

    def add(self, item: InboxItem) -> Added:
        if item.id <= self.last:
            return Added.BEFORE
        if item.previous > self.last:
            return Added.GAP
        self._put(item)
        return Added.NOW

    def _put(self, item: InboxItem) -> None:
        self.last = item.id
        if item.kind is ItemKind.EVENT:
            self.events.setdefault(item.type, deque()).append(item)
        else:
            self.others.append(item)

    def match(self, receives: Iterable[ReceiveOperation]) -> tuple[ReceiveOperation, InboxItem] | None:
        """The oldest receive that something here fits, and the oldest item that fits it."""
        if not self.events:
            return None
        for receive in receives:
            heads = [self.events[name][0] for name in receive.types.specs if name in self.events]
            if heads:
                return receive, min(heads, key=lambda item: item.id)
        return None

    def take(self, item: InboxItem) -> None:
        if item.kind is not ItemKind.EVENT:
            self.others.remove(item)
            return
        queue = self.events[item.type]
        queue.popleft()
        if not queue:
            del self.events[item.type]


class Resident:
    """Changed only by the coordinator, the turn builder and the step runner."""

    __slots__ = (
        "attempts", "commands", "epoch", "following", "hooks", "in_flight", "inbox", "is_current", "key", "last",
        "next_seq", "outcomes", "parent", "pruned", "queued", "run", "saved_frontier", "saved_run_status",
        "saved_state", "saved_status", "saved_wake", "written",
    )  # fmt: skip

    def __init__(
        self, key: RunKey, epoch: int, run: Run, next_seq: int, parent: ParentLink | None, inbox: Inbox
    ) -> None:
        self.key = key
        self.epoch = epoch
        self.run = run
        self.next_seq = next_seq
        self.parent = parent
        self.inbox = inbox
        #: Records that were deleted from the journal: iterations of loops that no replay needs.
        self.pruned = 0
        #: Results of attempts, not yet recorded.
        self.outcomes: list[Outcome] = []
        #: Records that are durable but that the code has not seen: answers to effects.
        self.written: list[Record] = []
        #: Attempts running now, by location.
        self.attempts: dict[str, Attempt] = {}
        #: Asked for by the code, to be carried out when the turn in the making is durable.
        self.commands: list[Command] = []
        #: The one step to start when the turn in flight is durable, if that is all there is to do then.
        self.following: StepOperation | None = None
        #: Failed attempts whose `on_retry` hook is to be called when they are durable.
        self.hooks: list[Outcome] = []
        #: The turn being committed. Until it is answered the run gets nothing new.
        self.in_flight: Turn | None = None
        self.queued = False
        #: The record that ends the run, once the turn with it is built.
        self.last: Record | None = None
        #: Whether this object stands for its run in the worker's memory. Set by the coordinator alone.
        self.is_current = False
        self.saved_status: bytes | None = None
        self.saved_state: bytes | None = None
        self.saved_frontier: tuple[int, int] | None = None
        self.saved_wake: int | None = None
        self.saved_run_status: Status | None = None

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def is_idle(self) -> bool:
        """Nothing is going on: it waits for time or for the outside."""
        return not (self.attempts or self.outcomes or self.written or self.in_flight or self.queued or self.commands)
