"""Published events, dead letters, replies and watches of the memory store: the reference for what every store must do.

Every published event is in one of two logs of its type, in the order of publishing.

- *Shared* ones (`consume=False`) are copied into the inbox of each run that may have them. How far a run has got in
  the log is kept with its wait; it gets what is new when it begins to wait and whenever it is reached by the spreading.
- *Single* ones lie in the log until a run that waits has room for one (`wanted`); it then holds the event in its inbox,
  until it takes it (the event is gone), hands it back or ends (the next run gets it).

Both sides look for the other in their own change: who publishes for those who wait, who begins to wait for what was
published. So no order of the two loses an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.kernel.definitions import EventPolicy
from perdure.kernel.journal import Row
from perdure.limits import SPREAD_RUNS_MAX
from perdure.store import items, refusals
from perdure.store.base import (
    CLAIMABLE,
    DeadItem,
    DeadLetter,
    Delivery,
    InboxItem,
    ItemKind,
    NewItem,
    Publication,
    Published,
    RunKey,
    Spread,
    Status,
)

#: Stands for all types: the wait under this name says up to where nothing published is for a run that was restored.
EVERY = ""


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


class Receiver(Protocol):
    """What is needed of a run."""

    key: RunKey
    id: str
    status: Status
    generation: int
    inbox: dict[int, InboxItem]
    waits: dict[str, Wait]


@dataclass(slots=True)
class _Publication:
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

    def is_for(self, key: RunKey, since: int | None, at: int) -> bool:
        """Whether a run may have it; `since`: the newest publication when that run began to wait."""
        if self.expires_at is not None and self.expires_at <= at:
            return False
        match self.policy.delivery:
            case "after_create":
                return key <= self.last_run
            case "after_wait":
                return since is not None and since < self.id
            case _:
                return True


@dataclass
class Book:
    """Everything about events that belongs to no single run. `put` stores an item in an inbox, `drop` removes one."""

    runs: dict[RunKey, Any]
    put: Callable[[Any, NewItem, int], Delivery]
    drop: Callable[[Any, InboxItem], None]
    unread: Callable[[Any, str], int]
    publications: dict[int, _Publication] = field(default_factory=dict[int, _Publication])
    waiting: dict[str, dict[RunKey, Wait]] = field(default_factory=dict[str, dict[RunKey, Wait]])
    letters: dict[int, DeadLetter] = field(default_factory=dict[int, DeadLetter])
    replies: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    keys: dict[str, int] = field(default_factory=dict[str, int])
    watches: dict[RunKey, list[tuple[RunKey, int, str]]] = field(
        default_factory=dict[RunKey, list[tuple[RunKey, int, str]]]
    )
    expired: Counter[str] = field(default_factory=Counter[str])
    #: Whether an item that can expire was ever put into an inbox.
    some_expire: bool = False
    last_publication: int = 0
    last_letter: int = 0

    # -- publishing --------------------------------------------------------------------------------------

    def publish(self, item: NewItem, pending_max: int, but: RunKey = 0) -> Published:
        """`but`: a run that gets no single event by this, because its own waits are about to change."""
        if item.dedup is not None:
            if item.dedup in self.keys:
                return Published(id=None)
            self.keys[item.dedup] = item.sent_at
        self.last_publication += 1
        published = _Publication(
            id=self.last_publication,
            type=item.type,
            data=item.data,
            published_at=item.sent_at,
            policy=item.policy,
            expires_at=item.expires_at,
            last_run=next(reversed(self.runs), 0),
        )
        self.publications[published.id] = published
        if item.policy.single:
            return Published(id=published.id, deliveries=list(self._place(published, item.sent_at, but)))
        published.spread_after = 0
        deliveries = list(self._spread(published, item.sent_at, SPREAD_RUNS_MAX, pending_max))
        return Published(id=published.id, deliveries=deliveries, more=published.spread_after is not None)

    def spread(self, at: int, runs_max: int, pending_max: int) -> Spread:
        going = [one for one in self.publications.values() if one.spread_after is not None]
        if not going:
            return Spread()
        deliveries = list(self._spread(going[0], at, runs_max, pending_max))
        return Spread(deliveries=deliveries, more=len(going) > 1 or going[0].spread_after is not None)

    def _spread(self, published: _Publication, at: int, runs_max: int, pending_max: int) -> Iterator[Delivery]:
        after = published.spread_after or 0
        keys = sorted(key for key in self.waiting.get(published.type, ()) if key > after)
        for key in keys[:runs_max]:
            wait = self.waiting[published.type][key]
            yield from self._catch_up(self.runs[key], published.type, wait, wait.since, at, pending_max)
        published.spread_after = keys[runs_max - 1] if len(keys) > runs_max else None

    def _catch_up(
        self, run: Receiver, kind: str, wait: Wait, since: int | None, at: int, pending_max: int
    ) -> Iterator[Delivery]:
        """Copy shared events that the run has not had. All that are new, in order: a later one must not overtake."""
        for published in list(self.publications.values()):
            if published.type != kind or published.policy.single or published.id <= wait.shared:
                continue
            if published.is_for(run.key, since, at):
                if self.unread(run, kind) >= pending_max:
                    return  # the rest when it has read some
                yield self._copy(run, published)
            wait.shared = published.id

    def _place(self, published: _Publication, at: int, but: RunKey = 0) -> Iterator[Delivery]:
        """Let one of the runs that wait hold a single event, if one may and has room: the oldest run of them."""
        waiting = self.waiting.get(published.type, {})
        free = (
            key
            for key, wait in waiting.items()
            if key != but and self._may_hold(self.runs[key], published, wait, wait.since, at)
        )
        key = min(free, default=None)
        if key is not None:
            yield self._hold(self.runs[key], published)

    def _fetch(self, run: Receiver, kind: str, wait: Wait, since: int | None, at: int) -> Iterator[Delivery]:
        """Let a run hold single events that nobody else has, as many as it has room for."""
        for published in list(self.publications.values()):
            if self._held(run, kind) >= wait.wanted:
                return
            fits = published.type == kind and published.policy.single
            if fits and self._may_hold(run, published, wait, since, at):
                yield self._hold(run, published)

    def _may_hold(self, run: Receiver, published: _Publication, wait: Wait, since: int | None, at: int) -> bool:
        return (
            published.holder is None
            and run.status in CLAIMABLE
            and published.id not in wait.refused
            and published.is_for(run.key, since, at)
            and self._held(run, published.type) < wait.wanted
        )

    def _hold(self, run: Receiver, published: _Publication) -> Delivery:
        published.holder = run.key
        return self._copy(run, published)

    def _copy(self, run: Receiver, published: _Publication) -> Delivery:
        item = NewItem(
            kind=ItemKind.EVENT,
            type=published.type,
            data=published.data,
            sent_at=published.published_at,
            policy=published.policy,
        )
        return self.put(run, item, published.id)

    def _held(self, run: Receiver, kind: str) -> int:
        return sum(_is_held(item) and item.type == kind for item in run.inbox.values())

    # -- what a turn does --------------------------------------------------------------------------------

    def settle(
        self,
        run: Receiver,
        waits: Mapping[str, int] | None,
        returned: Sequence[int],
        buried: Set[str],
        at: int,
        pending_max: int,
    ) -> Iterator[Delivery]:
        """The run now waits for these types, and hands back events that it holds and does not take.

        `buried`: types of which it may have room for another, because one was no good.
        """
        freed = [published for item_id in returned if (published := self._let_go(run, item_id)) is not None]
        if waits is not None:
            yield from self._settle_waits(run, waits, freed, at, pending_max)
        else:
            for kind in sorted(buried | {published.type for published in freed}):
                wait = run.waits.get(kind, Wait())
                wait.refused |= {published.id for published in freed if published.type == kind}
                yield from self._fetch(run, kind, wait, wait.since, at)
        for published in freed:
            yield from self._place(published, at, but=run.key)

    def _settle_waits(
        self, run: Receiver, waits: Mapping[str, int], freed: Sequence[_Publication], at: int, pending_max: int
    ) -> Iterator[Delivery]:
        """Look for what the run may have, as it waited before and as it waits now."""
        for kind in sorted({*run.waits, *waits}):
            wait = run.waits.setdefault(kind, Wait(shared=run.waits[EVERY].shared if EVERY in run.waits else 0))
            wanted = waits.get(kind, 0)
            since = wait.since if wait.wanted else None
            if wanted and since is None:
                wait.since = self.last_publication
            # What it hands back in this very turn was judged by what it waits for now; anything older was not.
            wait.refused = {published.id for published in freed if published.type == kind}
            if wanted or wait.wanted:
                wait.wanted = wanted
                yield from self._catch_up(run, kind, wait, since, at, pending_max)
            if wanted:
                self.waiting.setdefault(kind, {})[run.key] = wait
                yield from self._fetch(run, kind, wait, since, at)
            elif since is not None:
                del self.waiting[kind][run.key]

    def _let_go(self, run: Receiver, item_id: int) -> _Publication | None:
        """Take an event that the run holds out of its inbox."""
        item = run.inbox.get(item_id)
        if item is None or not _is_held(item):
            return None
        self.drop(run, item)
        published = self.publications.get(item.publication)
        if published is not None:
            published.holder = None
        return published

    def look_again(self, run: Receiver, at: int) -> Iterator[Delivery]:
        """The run may be given single events again, or has room for another."""
        for kind, wait in sorted(run.waits.items(), key=lambda each: each[0]):
            if wait.wanted:
                yield from self._fetch(run, kind, wait, wait.since, at)

    def taken(self, item: InboxItem) -> None:
        """A turn takes the item out of an inbox: nobody else can get it any more."""
        if _is_held(item):
            self.publications.pop(item.publication, None)

    def bury(self, run: Receiver, dead: Sequence[DeadItem], at: int) -> set[str]:
        """Events that the run cannot take become dead letters. Returns their types."""
        kinds: set[str] = set()
        for item_id, reason in dead:
            item = run.inbox[item_id]
            self.taken(item)
            self.drop(run, item)
            self._add_letter(run, item, reason, at)
            kinds.add(item.type)
        return kinds

    def _add_letter(self, run: Receiver, item: InboxItem, reason: str, at: int) -> None:
        self.last_letter += 1
        self.letters[self.last_letter] = DeadLetter(
            id=self.last_letter,
            type=item.type,
            data=item.data,
            policy=item.policy,
            target=run.id,
            target_status=run.status,
            sent_at=item.sent_at,
            died_at=at,
            reason=reason,
        )

    def return_held(self, run: Receiver, at: int) -> Iterator[Delivery]:
        """A run that is stopped keeps no event from the others."""
        for item_id in list(run.inbox):
            if (published := self._let_go(run, item_id)) is not None:
                yield from self._place(published, at, but=run.key)

    def end(self, run: Receiver, last: Row, at: int, pending_max: int) -> Iterator[Delivery]:
        """The run has ended: its unread events go where their class says, and whoever watches it is told."""
        for kind, wait in run.waits.items():
            if wait.wanted:
                del self.waiting[kind][run.key]
        if run.status is Status.FAILED:  # it may be reopened, and must not get a second time what it has had
            run.waits = {kind: Wait(shared=wait.shared) for kind, wait in run.waits.items()}
        else:
            run.waits.clear()
        freed = [published for item_id in list(run.inbox) if (published := self._let_go(run, item_id)) is not None]
        for published in freed:
            yield from self._place(published, at)
        left = list(run.inbox.values())
        for item in left:
            self.drop(run, item)
        for item in left:
            if item.kind is ItemKind.EVENT:
                yield from self._undelivered(run, item, at, pending_max)
        for watcher, generation, location in self.watches.pop(run.key, ()):
            yield from self._tell(watcher, generation, location, run, last, at)

    def _undelivered(self, run: Receiver, item: InboxItem, at: int, pending_max: int) -> Iterator[Delivery]:
        if item.publication:
            return  # a copy: the others have theirs
        if _is_late(item, at):
            self._count_expired(item.type)
        elif item.policy.undelivered == "dead_letter":
            self._add_letter(run, item, items.UNREAD, at)
        elif item.policy.undelivered == "broadcast":
            yield from self.publish(items.event_again(item, at), pending_max).deliveries

    def begin_here(self, run: Receiver) -> None:
        """A run that is restored has in its journal and inbox what it has had: what was published is not for it."""
        run.waits[EVERY] = Wait(shared=self.last_publication)

    def give_back(self, run: Any, ended_at: int | None) -> None:
        """The end of a run is taken back: what it had not read then is in its inbox again."""
        for letter in list(self.letters.values()):
            if (letter.target, letter.died_at, letter.reason) == (run.id, ended_at, items.UNREAD):
                del self.letters[letter.id]
                self.put(run, items.unread_again(letter), 0)

    # -- other runs' ends --------------------------------------------------------------------------------

    def watch(self, run: Receiver, target: Receiver, last: Row | None, location: str, at: int) -> Iterator[Delivery]:
        """`last` is the last record of a run that has ended."""
        if last is None:
            watchers = self.watches.setdefault(target.key, [])
            if (own := (run.key, run.generation, location)) not in watchers:
                watchers.append(own)
        else:
            yield from self._tell(run.key, run.generation, location, target, last, at)

    def _tell(
        self, watcher: RunKey, generation: int, location: str, run: Receiver, last: Row, at: int
    ) -> Iterator[Delivery]:
        told = self.runs.get(watcher)
        if told is not None and not told.status.terminal:
            yield self.put(told, items.end_item(last, run.id, generation, location, at), 0)

    # -- dead letters ------------------------------------------------------------------------------------

    def take_letter(self, letter_id: int) -> DeadLetter:
        letter = self.letters.get(letter_id)
        if letter is None:
            raise refusals.letter_not_found(letter_id)
        return letter

    # -- answers -----------------------------------------------------------------------------------------

    def forget_replies(self, run_id: str) -> None:
        """The run is deleted: another one of the same id answers for itself."""
        names = items.request_name(run_id, "")
        for name in [name for name in self.replies if name.startswith(names)]:
            del self.replies[name]

    # -- tidying -----------------------------------------------------------------------------------------

    def tidy(self, at: int, before: int, limit: int) -> int:
        unread = 0
        for published in [one for one in self.publications.values() if self._is_over(one, at, before)][:limit]:
            del self.publications[published.id]
            unread += self._count_expired(published.type) if published.policy.single else 0
        runs = self.runs.values() if self.some_expire else ()
        late = [(run, item) for run in runs for item in run.inbox.values() if _is_late(item, at)]
        for run, item in late[:limit]:
            self.taken(item)
            self.drop(run, item)
            unread += self._count_expired(item.type)
            for _ in self.look_again(run, at):
                pass
        self.replies = {name: reply for name, reply in self.replies.items() if reply[1] >= before}
        self.keys = {key: seen for key, seen in self.keys.items() if seen >= before}
        return unread

    def _is_over(self, published: _Publication, at: int, before: int) -> bool:
        over = published.expires_at is not None and published.expires_at <= at
        return published.holder is None and (over or published.published_at < before)

    def _count_expired(self, kind: str) -> int:
        self.expired[kind] += 1
        return 1

    def shown(self, published: _Publication) -> Publication:
        holder = None if published.holder is None else self.runs[published.holder].id
        return Publication(
            id=published.id,
            type=published.type,
            data=published.data,
            published_at=published.published_at,
            policy=published.policy,
            expires_at=published.expires_at,
            holder=holder,
        )


def _is_held(item: InboxItem) -> bool:
    return bool(item.publication) and item.policy.single


def _is_late(item: InboxItem, at: int) -> bool:
    return item.expires_at is not None and item.expires_at <= at
