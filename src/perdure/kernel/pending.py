"""What a run waits for: its pending operations, in the order they were asked for, with their deadlines.

Count and digest are kept up to date with every change, so that a frontier costs the same whether one operation or ten
thousand are pending.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from zlib import crc32

import msgspec

from perdure.kernel.frontier import encode_frontier
from perdure.kernel.operations.base import Operation
from perdure.kernel.operations.receive import ReceiveOperation
from perdure.kernel.operations.step import StepOperation
from perdure.kernel.operations.timer import TimerOperation


class Pending(msgspec.Struct, eq=False):
    """The pending operations of one run, by location. Removing one marks it settled."""

    #: By location, in the order in which they were asked for; changed here, and for steps by `Run`.
    operations: dict[str, Operation] = {}
    receives: dict[str, ReceiveOperation] = {}
    #: Whether a receive came or went since the store was last told; whether there ever was one.
    receives_changed: bool = False
    received: bool = False
    #: Receives whose time is over: they take what is there.
    expired_receives: int = 0
    timers: dict[str, TimerOperation] = {}
    # Made when they are needed: most runs wait for one thing at a time, and a thousand runs are many lists.
    _timer_heap: list[tuple[int, int, TimerOperation]] | None = None
    backoffs: list[tuple[int, int, StepOperation]] | None = None
    #: Sum of the digests of the operations; with their number, tells one set of them from another.
    digest: int = 0

    def __len__(self) -> int:
        return len(self.operations)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations.values())

    def __contains__(self, location: str) -> bool:
        return location in self.operations

    def get(self, location: str) -> Operation | None:
        return self.operations.get(location)

    def add(self, operation: Operation) -> None:
        location = operation.location
        self.operations[location] = operation
        operation.digest = digest = crc32(location.encode(), operation.kind_digest)
        self.digest += digest
        if isinstance(operation, TimerOperation):
            self.timers[operation.location] = operation
            if self._timer_heap is None:
                self._timer_heap = []
            heapq.heappush(self._timer_heap, (operation.at, operation.number, operation))
        elif isinstance(operation, ReceiveOperation):
            self.receives[operation.location] = operation
            self.receives_changed = self.received = True

    def remove(self, operation: Operation) -> None:
        """Settled or withdrawn: nobody waits for it any more. Safe to repeat."""
        if operation.settled:
            return
        operation.settled = True
        location = operation.location
        del self.operations[location]
        self.digest -= operation.digest
        if type(operation) is StepOperation:
            return
        if isinstance(operation, TimerOperation):
            del self.timers[location]
        elif isinstance(operation, ReceiveOperation):
            del self.receives[location]
            self.receives_changed = True
            self.expired_receives -= operation.time_is_over

    def back_off(self, step: StepOperation) -> None:
        """The step's next attempt is to begin at `step.next_at`."""
        if self.backoffs is None:
            self.backoffs = []
        heapq.heappush(self.backoffs, (step.next_at, step.number, step))

    def retry_now(self, location: str, now: int) -> None:
        """The backoff of the step at this location, or of every step (""), is over now."""
        for operation in self.operations.values():
            if isinstance(operation, StepOperation) and operation.next_at and location in ("", operation.location):
                operation.next_at = now
                self.back_off(operation)

    def begin_again(self, now: int) -> None:
        """Pending steps start over: with their first attempt, and with all of their time."""
        for operation in self.operations.values():
            if isinstance(operation, StepOperation):
                operation.attempts = operation.next_at = 0
                operation.asked_at = now

    def clear(self) -> None:
        self.operations, self.receives, self.timers = {}, {}, {}
        self.receives_changed = self.received = False
        self.expired_receives = self.digest = 0
        self._timer_heap = self.backoffs = None

    # -- time --------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """The earliest moment at which time alone gives the run something to do."""
        if not self.backoffs and not self.timers:
            return None
        timer, backoff = self._first_timer(), self._first_backoff()
        if timer is None or backoff is None:
            return timer.at if timer is not None else backoff.next_at if backoff is not None else None
        return min(timer.at, backoff.next_at)

    def due_timer(self, now: int) -> TimerOperation | None:
        """The earliest timer that is due, if any. It stays due until its record is delivered."""
        timer = self._first_timer()
        return timer if timer is not None and timer.at <= now else None

    def due_steps(self, now: int) -> list[StepOperation]:
        """Steps whose backoff is over, each given out once."""
        due: list[StepOperation] = []
        while self.backoffs and (step := self._first_backoff()) is not None and step.next_at <= now:
            heapq.heappop(self.backoffs)
            step.next_at = 0  # from now on it is a step to be worked on, whatever the clock says next
            due.append(step)
        return due

    def _first_timer(self) -> TimerOperation | None:
        heap = self._timer_heap
        while heap and heap[0][2].settled:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def _first_backoff(self) -> StepOperation | None:
        backoffs = self.backoffs
        while backoffs and (backoffs[0][2].settled or backoffs[0][2].next_at != backoffs[0][0]):
            heapq.heappop(backoffs)
        return backoffs[0][2] if backoffs else None

    def time_is_over(self, receive: ReceiveOperation) -> None:
        """The receive waits no longer for more than is there."""
        if not receive.settled and not receive.time_is_over:
            receive.time_is_over = True
            self.expired_receives += 1

    def awaited_events(self) -> dict[str, int]:
        """The types of events that are waited for, and how many of each could be taken now."""
        wanted: dict[str, int] = {}
        for receive in self.receives.values():
            for name in receive.types.specs:
                wanted[name] = wanted.get(name, 0) + max(1, receive.wanted)
        return wanted

    # -- seen from outside ---------------------------------------------------------------------------------------

    def has_active_steps(self) -> bool:
        """Whether a step is to be worked on now, rather than after a backoff."""
        return any(type(o) is StepOperation and not o.next_at for o in self.operations.values())

    def frontier(self, seq: int) -> bytes:
        """What is stored with a turn: see `kernel.frontier`."""
        operations = self.operations
        return encode_frontier(seq, len(operations), self.digest, operations.values(), self.timers.values())
