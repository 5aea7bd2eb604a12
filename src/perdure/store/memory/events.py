"""Published events, and what a turn does to the waits of its run: the reference for what every store must do.

Every published event is in one of two logs of its type, in the order of publishing.

- *Shared* ones (`consume=False`) are copied into the inbox of each run that may have them. How far a run has got in
  the log is kept with its wait; it gets what is new when it begins to wait and whenever it is reached by the spreading.
- *Single* ones lie in the log until a run that waits has room for one (`wanted`); it then holds the event in its inbox,
  until it takes it (the event is gone), hands it back or ends (the next run gets it).

Both sides look for the other in their own change: who publishes for those who wait, who begins to wait for what was
published. So no order of the two loses an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from perdure.limits import SPREAD_RUNS_MAX
from perdure.store import rules
from perdure.store.memory import inbox
from perdure.store.memory.tables import PublishedEvent, Run, Tables, Wait, check_storable
from perdure.store.model import CLAIMABLE, Delivery, InboxItem, ItemKind, NewItem, Published, RunKey, Spread, Status

#: Stands for all types: the wait under this name says up to where nothing published is for a run that was restored.
EVERY = ""


# -- publishing ------------------------------------------------------------------------------------------


def publish(tables: Tables, item: NewItem, pending_max: int, but: RunKey = 0) -> Published:
    """`but`: a run that gets no single event by this, because its own waits are about to change."""
    check_storable(item.type, item.dedup)
    index = tables.events
    if item.dedup is not None:
        if item.dedup in index.keys:
            return Published(id=None)
        tables.check_here()
        index.keys[item.dedup] = item.sent_at
    tables.check_here()
    index.last_publication += 1
    published = PublishedEvent(
        id=index.last_publication,
        type=item.type,
        data=item.data,
        published_at=item.sent_at,
        policy=item.policy,
        expires_at=item.expires_at,
        last_run=next(reversed(tables.runs), 0),
    )
    index.publications[published.id] = published
    if item.policy.single:
        return Published(id=published.id, deliveries=place(tables, published, item.sent_at, but))
    published.spread_after = 0
    deliveries = _spread(tables, published, item.sent_at, SPREAD_RUNS_MAX, pending_max)
    return Published(id=published.id, deliveries=deliveries, more=published.spread_after is not None)


def spread(tables: Tables, at: int, runs_max: int, pending_max: int) -> Spread:
    going = [one for one in tables.events.publications.values() if one.spread_after is not None]
    if not going or tables.departure is not None:
        return Spread()
    deliveries = _spread(tables, going[0], at, runs_max, pending_max)
    return Spread(deliveries=deliveries, more=len(going) > 1 or going[0].spread_after is not None)


def _spread(tables: Tables, published: PublishedEvent, at: int, runs_max: int, pending_max: int) -> list[Delivery]:
    waiting, after = tables.events.waiting.get(published.type, {}), published.spread_after or 0
    keys = sorted(key for key in waiting if key > after)
    deliveries: list[Delivery] = []
    for key in keys[:runs_max]:
        wait = waiting[key]
        deliveries += _catch_up(tables, tables.runs[key], published.type, wait, wait.since, at, pending_max)
    published.spread_after = keys[runs_max - 1] if len(keys) > runs_max else None
    return deliveries


def _catch_up(
    tables: Tables, run: Run, kind: str, wait: Wait, since: int | None, at: int, pending_max: int
) -> list[Delivery]:
    """Copy shared events that the run has not had."""
    new = [
        one
        for one in tables.events.publications.values()
        if one.type == kind and not one.policy.single and one.id > wait.shared
    ]
    given, had = rules.copies(new, run.key, since, at, pending_max - run.unread[kind])
    if had:
        wait.shared = had
    return [_copy(tables, run, published) for published in given]


def place(tables: Tables, published: PublishedEvent, at: int, but: RunKey = 0) -> list[Delivery]:
    """Let one of the runs that wait hold a single event, if one may and has room: the oldest run of them."""
    free = (
        key
        for key, wait in tables.events.waiting.get(published.type, {}).items()
        if key != but and _may_hold(tables.runs[key], published, wait, wait.since, at)
    )
    key = min(free, default=None)
    return [] if key is None else [_hold(tables, tables.runs[key], published)]


def _fetch(tables: Tables, run: Run, kind: str, wait: Wait, since: int | None, at: int) -> list[Delivery]:
    """Let a run hold single events that nobody else has, as many as it has room for."""
    deliveries: list[Delivery] = []
    for published in list(tables.events.publications.values()):
        if _held(run, kind) >= wait.wanted:
            break
        fits = published.type == kind and published.policy.single
        if fits and _may_hold(run, published, wait, since, at):
            deliveries.append(_hold(tables, run, published))
    return deliveries


def _may_hold(run: Run, published: PublishedEvent, wait: Wait, since: int | None, at: int) -> bool:
    return (
        published.holder is None
        and run.status in CLAIMABLE
        and published.id not in wait.refused
        and rules.may_have(published, run.key, since, at)
        and _held(run, published.type) < wait.wanted
    )


def _hold(tables: Tables, run: Run, published: PublishedEvent) -> Delivery:
    published.holder = run.key
    return _copy(tables, run, published)


def _copy(tables: Tables, run: Run, published: PublishedEvent) -> Delivery:
    item = NewItem(
        kind=ItemKind.EVENT,
        type=published.type,
        data=published.data,
        sent_at=published.published_at,
        policy=published.policy,
    )
    return inbox.put(tables, run, item, published.id)


def _held(run: Run, kind: str) -> int:
    return sum(rules.is_held(item) and item.type == kind for item in run.inbox.values())


# -- what a turn does ------------------------------------------------------------------------------------


def settle(
    tables: Tables,
    run: Run,
    waits: Mapping[str, int] | None,
    returned: Sequence[int],
    dead: Set[str],
    at: int,
    pending_max: int,
) -> list[Delivery]:
    """The run now waits for these types, and hands back events that it holds and does not take.

    `dead`: types of which it may have room for another, because one was no good.
    """
    freed = _let_go(tables, run, returned)
    deliveries: list[Delivery] = []
    if waits is not None:
        deliveries += _settle_waits(tables, run, waits, freed, at, pending_max)
    else:
        for kind in sorted(dead | {published.type for published in freed}):
            wait = run.waits.get(kind, Wait())
            wait.refused |= {published.id for published in freed if published.type == kind}
            deliveries += _fetch(tables, run, kind, wait, wait.since, at)
    for published in freed:
        deliveries += place(tables, published, at, but=run.key)
    return deliveries


def _settle_waits(
    tables: Tables, run: Run, waits: Mapping[str, int], freed: Sequence[PublishedEvent], at: int, pending_max: int
) -> list[Delivery]:
    """Look for what the run may have, as it waited before and as it waits now."""
    index = tables.events
    deliveries: list[Delivery] = []
    for kind in sorted({*run.waits, *waits}):
        wait = run.waits.setdefault(kind, Wait(shared=run.waits[EVERY].shared if EVERY in run.waits else 0))
        wanted = waits.get(kind, 0)
        since = wait.since if wait.wanted else None
        wait.since = rules.waits_since(wanted, wait.wanted, wait.since, index.last_publication)
        # What it hands back in this very turn was judged by what it waits for now; anything older was not.
        wait.refused = {published.id for published in freed if published.type == kind}
        if wanted or wait.wanted:
            wait.wanted = wanted
            deliveries += _catch_up(tables, run, kind, wait, since, at, pending_max)
        if wanted:
            index.waiting.setdefault(kind, {})[run.key] = wait
            deliveries += _fetch(tables, run, kind, wait, since, at)
        elif since is not None:
            del index.waiting[kind][run.key]
    return deliveries


def _let_go(tables: Tables, run: Run, item_ids: Iterable[int]) -> list[PublishedEvent]:
    """Take events that the run holds out of its inbox."""
    freed: list[PublishedEvent] = []
    for item_id in item_ids:
        item = run.inbox.get(item_id)
        if item is None or not rules.is_held(item):
            continue
        inbox.drop(tables, run, item)
        published = tables.events.publications.get(item.publication)
        if published is not None:
            published.holder = None
            freed.append(published)
    return freed


def begin_here(tables: Tables, run: Run) -> None:
    """A run that is restored has in its journal and inbox what it has had: what was published is not for it."""
    run.waits[EVERY] = Wait(shared=tables.events.last_publication)


def return_held(tables: Tables, run: Run, at: int) -> list[Delivery]:
    """A run that is stopped, or has ended, keeps no event from the others."""
    freed = _let_go(tables, run, list(run.inbox))
    return [delivery for published in freed for delivery in place(tables, published, at, but=run.key)]


def look_again(tables: Tables, run: Run, at: int) -> None:
    """The run may be given single events again, or has room for another."""
    for kind, wait in sorted(run.waits.items(), key=lambda each: each[0]):
        if wait.wanted:
            _fetch(tables, run, kind, wait, wait.since, at)


def taken(tables: Tables, item: InboxItem) -> None:
    """A turn takes the item out of an inbox: nobody else can get it any more."""
    if rules.is_held(item):
        tables.events.publications.pop(item.publication, None)


# -- in time ---------------------------------------------------------------------------------------------


def tidy(tables: Tables, at: int, before: int, limit: int) -> int:
    index = tables.events
    if tables.departure is not None:
        return 0
    unread = 0
    over = [one for one in index.publications.values() if _is_over(one, at, before)]
    for published in over[:limit]:
        del index.publications[published.id]
        if published.policy.single:
            index.expired[published.type] += 1
            unread += 1
    runs = [run for run in tables.runs.values() if run.status is not Status.ARRIVING] if index.some_expire else ()
    late = [(run, item) for run in runs for item in run.inbox.values() if rules.is_over(item.expires_at, at)]
    for run, item in late[:limit]:
        taken(tables, item)
        inbox.drop(tables, run, item)
        index.expired[item.type] += 1
        unread += 1
        look_again(tables, run, at)
    tables.replies = {name: reply for name, reply in tables.replies.items() if reply[1] >= before}
    index.keys = {key: seen for key, seen in index.keys.items() if seen >= before}
    return unread


def _is_over(published: PublishedEvent, at: int, before: int) -> bool:
    over = rules.is_over(published.expires_at, at)
    return published.holder is None and (over or published.published_at < before)
