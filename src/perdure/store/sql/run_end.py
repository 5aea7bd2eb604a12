"""What the end of a run does to others: `rules.end_run` decides, this carries it out. And who is told of it."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.journal import Row
from perdure.store import items, rules
from perdure.store.model import TERMINAL, Delivery, InboxItem, NewItem, RunKey, Status
from perdure.store.sql import dead_letters
from perdure.store.sql.events import publish, return_held
from perdure.store.sql.inbox import find_receiver, find_receiver_by_key, offer, put, whole_inbox
from perdure.store.sql.rows import records, run_row
from perdure.store.sql.session import Session
from perdure.store.turn import Watch


def end(session: Session, key: RunKey, last: Row, at: int, pending_max: int) -> list[Delivery]:
    """The run has ended, with this last record."""
    run = find_receiver_by_key(session, key)
    if run is None:
        raise AssertionError(f"run {key} ended but does not exist")
    return rules.end_run(_End(session, key, at, pending_max), run.id, Status(run.status), last, at)


class _End:
    """See `rules.RunEnd`."""

    def __init__(self, session: Session, key: RunKey, at: int, pending_max: int) -> None:
        self._session = session
        self._key = key
        self._at = at
        self._pending_max = pending_max

    def return_held(self) -> Sequence[Delivery]:
        return return_held(self._session, self._key, self._at)

    def end_waits(self, *, keep_positions: bool) -> None:
        self._session.execute(
            self._session.sql["end_waits"] if keep_positions else self._session.sql["forget_waits"], (self._key,)
        )
        self._session.execute(self._session.sql["forget_all_refusals"], (self._key,))

    def take_unread(self) -> Sequence[InboxItem]:
        left = whole_inbox(self._session, self._key)
        if left:
            self._session.execute(self._session.sql["empty_inbox"], (self._key,))
        return left

    def count_expired(self, item: InboxItem) -> None:
        self._session.execute(self._session.sql["count_expired"], (item.type,))

    def add_dead_letter(self, item: InboxItem, reason: str) -> None:
        dead_letters.add(self._session, self._key, item, reason, self._at)

    def publish(self, item: NewItem) -> Sequence[Delivery]:
        return publish(self._session, item, self._pending_max).deliveries

    def take_watchers(self) -> Sequence[tuple[RunKey, int, str]]:
        found = self._session.rows(self._session.sql["watchers"], (self._key,))
        if found:
            self._session.execute(self._session.sql["forget_watches"], (self._key,))
        return [(watcher, generation, location) for watcher, generation, location in found]

    def tell(self, watcher: RunKey, item: NewItem) -> Sequence[Delivery]:
        receiver = find_receiver_by_key(self._session, watcher)
        if receiver is None or receiver.status in TERMINAL:
            return ()
        return [put(self._session, receiver, item)]


def watch(session: Session, key: RunKey, generation: int, effect: Watch, at: int) -> list[Delivery] | None:
    """Tell a run about the end of another: later, or now. None if there is no such run."""
    receiver = find_receiver(session, effect.target)
    if receiver is None:
        return None
    if receiver.status not in TERMINAL:
        session.execute(session.sql["add_watch"], (receiver.key, key, generation, effect.location))
        session.execute(session.sql["mark_watched"], (receiver.key,))
        return []
    target = run_row(session.rows(session.sql["run_by_key"], (receiver.key,))[0])
    last = records(session.rows(session.sql["end_of_run"], (target.key, target.generation)))[0]
    watcher = find_receiver_by_key(session, key)
    if watcher is None:
        raise AssertionError(f"run {key} takes a turn but does not exist")
    return [put(session, watcher, items.end_item(last, target.id, generation, effect.location, at))]


def tell_parent(session: Session, parent_key: RunKey | None, notice: NewItem) -> list[Delivery]:
    """Put the end of a child into its parent's inbox, if there is a parent and it is still open."""
    parent = None if parent_key is None else find_receiver_by_key(session, parent_key)
    told = "" if parent is None else offer(session, parent, notice)
    return [told] if isinstance(told, Delivery) else []
