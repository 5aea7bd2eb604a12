"""What the end of a run does to others: `rules.end_run` decides, this carries it out. And who is told of it."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.journal import Row
from perdure.store import items, rules
from perdure.store.memory import dead_letters, events, inbox
from perdure.store.memory.tables import Run, Tables, Wait
from perdure.store.model import Delivery, InboxItem, NewItem, RunKey
from perdure.store.turn import Watch


def end(tables: Tables, run: Run, last: Row, at: int, pending_max: int) -> list[Delivery]:
    """The run has ended, with this last record."""
    return rules.end_run(_End(tables, run, at, pending_max), run.id, run.status, last, at)


class _End:
    """See `rules.RunEnd`."""

    def __init__(self, tables: Tables, run: Run, at: int, pending_max: int) -> None:
        self._tables = tables
        self._run = run
        self._at = at
        self._pending_max = pending_max

    def return_held(self) -> Sequence[Delivery]:
        return events.return_held(self._tables, self._run, self._at)

    def end_waits(self, *, keep_positions: bool) -> None:
        run = self._run
        for kind, wait in run.waits.items():
            if wait.wanted:
                del self._tables.events.waiting[kind][run.key]
        run.waits = {kind: Wait(shared=wait.shared) for kind, wait in run.waits.items()} if keep_positions else {}

    def take_unread(self) -> Sequence[InboxItem]:
        left = list(self._run.inbox.values())
        for item in left:
            inbox.drop(self._tables, self._run, item)
        return left

    def count_expired(self, item: InboxItem) -> None:
        self._tables.events.expired[item.type] += 1

    def add_dead_letter(self, item: InboxItem, reason: str) -> None:
        dead_letters.add(self._tables, self._run, item, reason, self._at)

    def publish(self, item: NewItem) -> Sequence[Delivery]:
        return events.publish(self._tables, item, self._pending_max).deliveries

    def take_watchers(self) -> Sequence[tuple[RunKey, int, str]]:
        return self._tables.watches.pop(self._run.key, ())

    def tell(self, watcher: RunKey, item: NewItem) -> Sequence[Delivery]:
        return _tell(self._tables, watcher, item)


def _tell(tables: Tables, watcher: RunKey, item: NewItem) -> list[Delivery]:
    run = tables.runs.get(watcher)
    return [] if run is None or run.status.terminal else [inbox.put(tables, run, item)]


def watch(tables: Tables, run: Run, effect: Watch, at: int) -> list[Delivery] | None:
    """Tell a run about the end of another: later, or now. None if there is no such run."""
    target = tables.by_id.get(effect.target)
    if target is None:
        return None
    if not target.status.terminal:
        watchers = tables.watches.setdefault(target.key, [])
        if (own := (run.key, run.generation, effect.location)) not in watchers:
            watchers.append(own)
        return []
    last = target.journal[target.generation][-1]
    return _tell(tables, run.key, items.end_item(last, target.id, run.generation, effect.location, at))


def tell_parent(tables: Tables, run: Run, notice: NewItem) -> list[Delivery]:
    """Put the end of a child into its parent's inbox, if there is a parent and it is still open."""
    parent = tables.runs.get(run.parent.key) if run.parent is not None else None
    told = inbox.offer(tables, parent, notice) if parent is not None else ""
    return [told] if isinstance(told, Delivery) else []
