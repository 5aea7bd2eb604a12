"""A run in a worker's memory: its kernel object and everything that waits to be delivered to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from perdure.kernel.commands import Command
from perdure.kernel.journal import Body, Record
from perdure.kernel.operation import ReceiveOperation, StepOperation
from perdure.kernel.run import Run
from perdure.store.base import InboxItem, ItemKind, ParentLink, RunKey, Status, Turn

if TYPE_CHECKING:
    from perdure.engine.steps import Attempt


class Outcome(NamedTuple):
    """How an attempt of a step ended, on its way into the journal."""

    operation: StepOperation
    body: Body
    at: int


#: Ids remembered beyond the unread ones before those that can no longer come again are dropped.
_KNOWN_MAX = 256


class Inbox:
    """Unread items of a run, events by type, each in the order of their ids.

    One item may come by several ways (the answer of the call that stored it, the worker's news, a read of the
    store), in any order: a client's event can overtake a child's notice that was stored before it
    (tests/races/test_several_senders_at_once.py). So ids are remembered, not compared with the highest.
    """

    __slots__ = ("_known", "events", "floor", "others")

    def __init__(self, items: Iterable[InboxItem] = ()) -> None:
        self.events: dict[str, list[InboxItem]] = {}
        self.others: list[InboxItem] = []
        self._known: set[int] = set()
        #: Everything up to this id was in what the run was loaded with.
        self.floor = 0
        for item in items:
            self.add(item)
            self.floor = item.id

    def add(self, item: InboxItem, cursor: int = 0) -> bool:
        """False if it had come before. Items up to `cursor` will not be told again by the worker's news."""
        if item.id <= self.floor or item.id in self._known:
            return False
        if len(self._known) >= _KNOWN_MAX:
            self._known = {known for known in self._known if known > cursor} | self._unread_ids()
        self._known.add(item.id)
        queue = self.events.setdefault(item.type, []) if item.kind is ItemKind.EVENT else self.others
        queue.append(item)
        if len(queue) > 1 and queue[-2].id > item.id:
            queue.sort(key=_item_id)
        return True

    def _unread_ids(self) -> set[int]:
        ids = {item.id for item in self.others}
        return ids.union(*({item.id for item in queue} for queue in self.events.values()))

    def match(self, receives: Iterable[ReceiveOperation]) -> tuple[ReceiveOperation, InboxItem] | None:
        """The oldest receive that something here fits, and the oldest item that fits it."""
        if not self.events:
            return None
        for receive in receives:
            heads = [self.events[name][0] for name in receive.types.specs if name in self.events]
            if heads:
                return receive, min(heads, key=_item_id)
        return None

    def take(self, item: InboxItem) -> None:
        if item.kind is not ItemKind.EVENT:
            self.others.remove(item)
            return
        queue = self.events[item.type]
        del queue[0]
        if not queue:
            del self.events[item.type]


def _item_id(item: InboxItem) -> int:
    return item.id


class Resident:
    """Changed only by the coordinator, the turn builder and the step runner."""

    __slots__ = (
        "attempts", "commands", "epoch", "hooks", "in_flight", "inbox", "key", "next_seq", "outcomes", "parent",
        "queued", "run", "saved_frontier", "saved_run_status", "saved_state", "saved_status", "saved_wake", "written",
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
        #: Results of attempts, not yet recorded.
        self.outcomes: deque[Outcome] = deque()
        #: Records that are durable but that the code has not seen: answers to effects.
        self.written: deque[Record] = deque()
        #: Attempts running now, by location.
        self.attempts: dict[str, Attempt] = {}
        #: Asked for by the code, to be carried out when the turn in the making is durable.
        self.commands: list[Command] = []
        #: Failed attempts whose `on_retry` hook is to be called when they are durable.
        self.hooks: list[Outcome] = []
        #: The turn being committed. Until it is answered the run gets nothing new.
        self.in_flight: Turn | None = None
        self.queued = False
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
