"""The one owner of which runs are in memory and what they are doing.

State changes only through the named operations below; each is one step on the event loop with no await inside,
so no check can go stale before the act that depends on it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from perdure.engine.resident import Resident
from perdure.kernel.arrivals import Added
from perdure.store.model import InboxItem, RunKey

#: Idle runs looked at to find one to evict that time does not soon give something to do.
_LOOKED_AT = 64


def _nothing() -> None:
    return None


class Residents:
    """Residents by key, the queue of those with something to do, and the order in which idle ones may leave."""

    def __init__(self, residents_max: int) -> None:
        self._residents_max = residents_max
        #: Called when there is a run to be given a turn. Set by the worker.
        self.wake: Callable[[], None] = _nothing
        self._residents: dict[RunKey, Resident] = {}
        self._ids: set[str] = set()
        self._ready: deque[Resident] = deque()
        self._idle: OrderedDict[RunKey, None] = OrderedDict()  # longest idle first

    def register(self, resident: Resident) -> None:
        """A run enters memory."""
        self._residents[resident.key] = resident
        resident.is_current = True
        self._ids.add(resident.id)

    def holds(self, run_id: str) -> bool:
        """Whether the run with this id is in memory here."""
        return run_id in self._ids

    def find(self, key: RunKey) -> Resident | None:
        return self._residents.get(key)

    def owns(self, key: RunKey, epoch: int) -> bool:
        """Whether the run is in memory here under this claim of it, or a later one."""
        resident = self._residents.get(key)
        return resident is not None and resident.epoch >= epoch

    def mark_ready(self, resident: Resident) -> None:
        """There is something to deliver. Safe to repeat; a run in the middle of a commit is looked at afterwards."""
        if resident.queued or resident.in_flight is not None or not resident.is_current:
            return
        resident.queued = True
        if resident.is_waiting:
            resident.is_waiting = False
            del self._idle[resident.key]
        self._ready.append(resident)
        self.wake()

    def mark_due(self, key: RunKey) -> None:
        """The deadline of a run has come."""
        resident = self._residents.get(key)
        if resident is not None:
            self.mark_ready(resident)

    def deliver(self, key: RunKey, item: InboxItem) -> bool:
        """An item arrived for a run. False if items before it have not come: somebody has to read the inbox.

        For a run that is not in memory there is nothing to do: the worker that loads it reads the item from the store.
        """
        resident = self._residents.get(key)
        if resident is None:
            return True
        added = resident.arrivals.add(item)
        if added is Added.NOW:
            self.mark_ready(resident)
        return added is not Added.GAP

    def reread(self, key: RunKey, items: Sequence[InboxItem]) -> None:
        """The whole inbox of a run was read from the store."""
        resident = self._residents.get(key)
        if resident is not None and resident.arrivals.add_all(items):
            self.mark_ready(resident)

    def take_ready(self, limit: int) -> list[Resident]:
        """Runs with something to do, in the order they became ready. One that has left memory since is among them."""
        ready = self._ready
        if len(ready) <= limit:
            taken = list(ready)
            ready.clear()
        else:
            taken = [ready.popleft() for _ in range(limit)]
        for resident in taken:
            resident.queued = False
        return taken

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def mark_waiting(self, resident: Resident) -> None:
        """The run is idle: it may leave memory if room is needed."""
        if resident.is_current and resident.is_idle:
            resident.is_waiting = True
            self._idle[resident.key] = None
            self._idle.move_to_end(resident.key)

    def forget(self, resident: Resident) -> None:
        """The run leaves memory, for whatever reason."""
        if resident.is_current:
            del self._residents[resident.key]
            resident.is_current = False
            self._ids.discard(resident.id)
            if resident.is_waiting:
                resident.is_waiting = False
                del self._idle[resident.key]

    def evict(self, horizon: int) -> list[Resident]:
        """Take the longest idle runs out of memory until the cap holds, as far as idle ones go. Those that time will
        give something to do before `horizon` stay if others can go."""
        evicted: list[Resident] = []
        while len(self._residents) > self._residents_max and self._idle:
            key = next((key for key in islice(self._idle, _LOOKED_AT) if not self._wakes_before(key, horizon)), None)
            if key is None:
                key = next(iter(self._idle))
            del self._idle[key]
            resident = self._residents.pop(key)
            resident.is_current = resident.is_waiting = False
            self._ids.discard(resident.id)
            evicted.append(resident)
        return evicted

    def _wakes_before(self, key: RunKey, horizon: int) -> bool:
        wake = self._residents[key].saved_wake
        return wake is not None and wake <= horizon

    @property
    def room(self) -> int:
        """How many runs may still be loaded. Idle ones make room."""
        return max(0, self._residents_max - len(self._residents) + len(self._idle))

    def room_before(self, horizon: int) -> int:
        """The same for runs that are not due before `horizon`: they do not take the place of others like them."""
        return max(0, self.room - sum(self._wakes_before(key, horizon) for key in self._idle))

    def __len__(self) -> int:
        return len(self._residents)

    def __iter__(self) -> Iterator[Resident]:
        return iter(list(self._residents.values()))
