"""What has arrived for a run and was not delivered to it yet: outcomes of steps, inbox items, answers of the store.

Events are kept by type, in the order of their arrival; published ones apart, because they come after those that were
sent to the run. `advance` decides what of all this comes first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import islice
from typing import TypeAlias

import msgspec

from perdure.kernel.commands import Command
from perdure.kernel.items import InboxItem, ItemKind
from perdure.kernel.journal import Body, Record
from perdure.kernel.operations.receive import ReceiveOperation
from perdure.kernel.operations.step import StepOperation

Judge: TypeAlias = Callable[[ReceiveOperation, InboxItem], bool]
"""Says whether a receive with a `match` takes an event."""


class StepOutcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt of a step ended, on its way into the journal."""

    operation: StepOperation
    body: Body
    at: int


class Added(Enum):
    """What came of an item on its way into an inbox."""

    NOW = auto()
    BEFORE = auto()  # it had come by another way
    GAP = auto()  # one before it has not come yet: it must not overtake that


class Arrivals(msgspec.Struct, eq=False):
    """See the module docstring. Changed by the engine, which adds, and by `advance`, which takes.

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
    # Each run gets its own of these from msgspec.
    events: dict[str, deque[InboxItem]] = {}
    published: dict[str, deque[InboxItem]] = {}
    others: list[InboxItem] = []  # seldom more than one; an empty deque takes 760 bytes
    #: How attempts of steps ended.
    outcomes: list[StepOutcome] = []
    #: Records that are durable but that the code has not seen: answers to effects.
    written: Sequence[Record] = ()  # tuples where there is seldom anything: a thousand runs are many lists
    #: What a replay left to be carried out.
    commands: Sequence[Command] = ()

    @classmethod
    def of(cls, items: Iterable[InboxItem], last: int) -> Arrivals:
        """For a run that was loaded, with what the store had for it."""
        arrivals = cls()
        for item in items:
            arrivals._put(item)
        arrivals.last = max(arrivals.last, last)
        return arrivals

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
