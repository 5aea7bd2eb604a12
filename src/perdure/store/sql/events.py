"""Published events, and what a turn does to the waits of its run. `store.memory.events` says what must hold and why;
this is the same in SQL. Each function runs inside a transaction of its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from perdure.limits import SPREAD_RUNS_MAX
from perdure.store import rules
from perdure.store.model import CLAIMABLE, Delivery, ItemKind, NewItem, Published, RunKey, Spread
from perdure.store.sql.inbox import find_receiver_by_key, put
from perdure.store.sql.rows import Values, inbox_item, policy_text, read_policy, stored_item
from perdure.store.sql.session import Session

#: Stands for all types: see `store.memory.events`.
EVERY = ""

#: Rows of a log read at once.
_PAGE = 100


class Publication(NamedTuple):
    """A published event as the log has it."""

    id: int
    type: str
    data: bytes
    published_at: int
    policy: str
    delivery: str
    expires_at: int | None
    last_run: RunKey
    spread_after: RunKey | None


class Wait(NamedTuple):
    """A row of `waits`, without its run."""

    type: str
    wanted: int = 0
    held: int = 0
    since: int = 0
    shared: int = 0
    refused: int = 0


# -- publishing ------------------------------------------------------------------------------------------


def publish(session: Session, item: NewItem, pending_max: int, but: RunKey = 0) -> Published:
    """`but`: a run that gets no single event by this, because its own waits are about to change."""
    session.lock_type(item.type)
    if item.dedup is not None:
        if session.row(session.sql["has_publication_key"], (item.dedup,)) is not None:
            return Published(id=None)
        session.execute(session.sql["add_publication_key"], (item.dedup, item.sent_at))
    policy = item.policy
    described = (item.type, int(policy.single), item.data, item.sent_at, policy_text(policy), policy.delivery)
    added = session.row(session.sql["add_publication"], (*described, item.expires_at, None if policy.single else 0))
    if added is None:
        raise AssertionError("an insert returned nothing")
    published = Publication._make(added)
    if policy.single:
        return Published(id=published.id, deliveries=place(session, published, item.sent_at, but))
    spread = _spread(session, published, item.sent_at, SPREAD_RUNS_MAX, pending_max)
    return Published(id=published.id, deliveries=spread.deliveries, more=spread.more)


def spread(session: Session, at: int, runs_max: int, pending_max: int) -> Spread:
    found = session.row(session.sql["next_spreading"])
    if found is None or session.row(session.sql["departure"]) is not None:
        return Spread()
    session.lock_type(Publication._make(found).type)
    found = session.row(session.sql["next_spreading"])  # somebody else may have gone on with it meanwhile
    if found is None:
        return Spread()
    done = _spread(session, Publication._make(found), at, runs_max, pending_max)
    return Spread(deliveries=done.deliveries, more=done.more or session.row(session.sql["next_spreading"]) is not None)


def _spread(session: Session, published: Publication, at: int, runs_max: int, pending_max: int) -> Spread:
    kind = published.type
    waiters = session.rows(session.sql["waiters"], (kind, published.spread_after or 0, runs_max + 1))
    more = len(waiters) > runs_max
    del waiters[runs_max:]
    session.lock_runs([key for key, _, _ in waiters])
    deliveries: list[Delivery] = []
    # Read once for all: they differ only in where each run stands in the log.
    log = _log(session, kind, min((shared for _, _, shared in waiters), default=published.id))
    for key, since, shared in waiters:
        new = [one for one in log if one.id > shared]
        deliveries += _catch_up(session, key, kind, new, since, at, pending_max)
    session.execute(session.sql["move_spreading"], (waiters[-1][0] if more else None, published.id))
    return Spread(deliveries=deliveries, more=more)


def _log(session: Session, kind: str, after: int) -> list[Publication]:
    return [
        Publication._make(values) for values in session.rows(session.sql["free_publications"], (kind, 0, after, -1))
    ]


def _catch_up(
    session: Session,
    key: RunKey,
    kind: str,
    new: Sequence[Publication],
    since: int | None,
    at: int,
    pending_max: int,
) -> list[Delivery]:
    """Copy shared events that the run has not had."""
    if not new:
        return []
    room = pending_max - session.value(session.sql["count_unread"], (key, kind))
    given, had = rules.copies(new, key, since, at, room)
    deliveries = [_copy(session, key, published) for published in given]
    if had:
        session.execute(session.sql["note_shared"], (had, key, kind))
    return deliveries


def place(session: Session, published: Publication, at: int, but: RunKey = 0) -> list[Delivery]:
    """Let one of the runs that wait hold a single event, if one may and has room: the oldest run of them."""
    if rules.is_over(published.expires_at, at):
        return []
    session.lock_type(published.type)
    described = (published.type, published.id, published.delivery, published.last_run, but)
    key = session.value(session.sql["run_with_room"], described)
    return [] if key is None else [_hold(session, key, published)]


def _fetch(session: Session, key: RunKey, wait: Wait, since: int | None, at: int) -> list[Delivery]:
    """Let a run hold single events that nobody else has, as many as it has room for."""
    receiver = find_receiver_by_key(session, key)
    if receiver is None or receiver.status not in CLAIMABLE:
        return []
    deliveries: list[Delivery] = []
    room = wait.wanted - session.value(session.sql["count_held"], (key, wait.type))
    after = 0
    while room > len(deliveries):
        wanted = (wait.type, after, key, _PAGE)
        found = session.rows(session.sql["acceptable_publications"], wanted)
        if found and not after:
            session.lock_type(wait.type)
            found = session.rows(session.sql["acceptable_publications"], wanted)  # as they are with the lock
        page = [Publication._make(values) for values in found]
        for published in page:
            after = published.id
            if rules.may_have(published, key, since, at):
                deliveries.append(_hold(session, key, published))
                if room <= len(deliveries):
                    break
        if len(page) < _PAGE:
            break
    return deliveries


def _hold(session: Session, key: RunKey, published: Publication) -> Delivery:
    session.execute(session.sql["hold_publication"], (key, published.id))
    delivery = _copy(session, key, published)
    session.execute(session.sql["count_again"], (key, published.type))
    return delivery


def _copy(session: Session, key: RunKey, published: Publication) -> Delivery:
    receiver = find_receiver_by_key(session, key)
    if receiver is None:
        raise AssertionError(f"run {key} waits but does not exist")
    item = NewItem(
        kind=ItemKind.EVENT,
        type=published.type,
        data=published.data,
        sent_at=published.published_at,
        policy=read_policy(published.policy),
    )
    return put(session, receiver, item, published.id)


# -- what a turn does ------------------------------------------------------------------------------------


def settle(
    session: Session,
    key: RunKey,
    waits: Mapping[str, int] | None,
    returned: Sequence[int],
    dead: Set[str],
    at: int,
    pending_max: int,
) -> list[Delivery]:
    """The run now waits for these types, and hands back events that it holds and does not take.

    `dead`: types of which it may have room for another, because one was no good.
    """
    freed = [
        one for item_id in returned for one in _let_go(session, key, session.rows(session.sql["item"], (item_id, key)))
    ]
    before = {wait.type: wait for wait in map(Wait._make, session.rows(session.sql["waits_of_run"], (key,)))}
    deliveries: list[Delivery] = []
    if waits is not None:
        deliveries += _settle_waits(session, key, waits, before, freed, at, pending_max)
    else:
        for kind in sorted((dead | {published.type for published in freed}) & before.keys()):
            session.execute(session.sql["count_again"], (key, kind))
            if _refuse(session, key, kind, freed):
                session.execute(session.sql["note_refusal"], (key, kind))
            deliveries += _fetch(session, key, before[kind], before[kind].since, at)
    for published in freed:
        deliveries += place(session, published, at, but=key)
    return deliveries


def _refuse(session: Session, key: RunKey, kind: str, freed: Sequence[Publication]) -> bool:
    """Remember what the run handed back. Whether there was anything of this type."""
    refused = [(key, kind, published.id) for published in freed if published.type == kind]
    session.executemany(session.sql["add_refusal"], refused)
    return bool(refused)


def _settle_waits(
    session: Session,
    key: RunKey,
    waits: Mapping[str, int],
    before: Mapping[str, Wait],
    freed: Sequence[Publication],
    at: int,
    pending_max: int,
) -> list[Delivery]:
    """Look for what the run may have, as it waited before and as it waits now."""
    deliveries: list[Delivery] = []
    for kind in sorted(waits):
        session.lock_type_to_wait(kind)
    last: int = session.value(session.sql["last_publication"])
    floor = before[EVERY].shared if EVERY in before else 0
    for kind in sorted({*before, *waits}):
        wanted = waits.get(kind, 0)
        wait = before.get(kind, Wait(kind, shared=floor))
        since = wait.since if wait.wanted else None
        held = session.value(session.sql["count_held"], (key, kind)) if last else 0
        # What it hands back in this very turn was judged by what it waits for now; anything older was not.
        if wait.refused:
            session.execute(session.sql["forget_refusals"], (key, kind))
        refused = int(_refuse(session, key, kind, freed)) if freed and wanted else 0
        begun = rules.waits_since(wanted, wait.wanted, wait.since, last)
        now = Wait(kind, wanted, held, begun, wait.shared, refused)
        if now != wait or (kind not in before and floor):
            session.execute(session.sql["set_wait"], (key, *now))
        if not last or not (wanted or wait.wanted):
            continue
        # After the wait is stored, in the same transaction: the other order loses an event that commits in between
        # (tests/events/test_published.py).
        deliveries += _catch_up(session, key, kind, _log(session, kind, wait.shared), since, at, pending_max)
        if wanted:
            deliveries += _fetch(session, key, now, since, at)
    return deliveries


def _let_go(session: Session, key: RunKey, items: Iterable[Values]) -> list[Publication]:
    """Take events that the run holds out of its inbox."""
    freed: list[Publication] = []
    for item in map(inbox_item, items):
        if rules.is_held(item):
            session.lock_type(item.type)
            session.execute(session.sql["take_item"], (item.id, key))
            session.execute(session.sql["hold_publication"], (None, item.publication))
            found = session.row(session.sql["publication"], (item.publication,))
            freed += [] if found is None else [Publication._make(found)]
    return freed


def begin_here(session: Session, key: RunKey) -> None:
    """A run that is restored has in its journal and inbox what it has had: what was published is not for it."""
    last = session.value(session.sql["last_publication"])
    if last:
        session.execute(session.sql["set_wait"], (key, *Wait(EVERY, shared=last)))


def return_held(session: Session, key: RunKey, at: int) -> list[Delivery]:
    """A run that is stopped, or has ended, keeps no event from the others."""
    freed = _let_go(session, key, session.rows(session.sql["held_items"], (key,)))
    for kind in {published.type for published in freed}:
        session.execute(session.sql["count_again"], (key, kind))
    return [delivery for published in freed for delivery in place(session, published, at, but=key)]


def look_again(session: Session, key: RunKey, at: int) -> None:
    """The run may be given single events again, or has room for another."""
    for wait in map(Wait._make, session.rows(session.sql["waits_of_run"], (key,))):
        if wait.wanted:
            session.execute(session.sql["count_again"], (key, wait.type))
            _fetch(session, key, wait, wait.since, at)


# -- in time ---------------------------------------------------------------------------------------------


def tidy(session: Session, at: int, before: int, limit: int) -> int:
    if session.row(session.sql["departure"]) is not None:
        return 0
    unread = 0
    over = session.rows(session.sql["late_publications"], (at, limit)) + session.rows(
        session.sql["old_publications"], (before, limit)
    )
    for publication, kind, single in dict.fromkeys(over):
        session.lock_type(kind)
        if session.change(session.sql["remove_free_publication"], (publication,)) and single:
            session.execute(session.sql["count_expired"], (kind,))
            unread += 1
    for stored in map(stored_item, session.rows(session.sql["late_items"], (at, limit))):
        if rules.is_held(stored.shown()):
            session.lock_type(stored.type)
        session.lock_runs([stored.run_key])
        if not session.change(session.sql["take_item"], (stored.id, stored.run_key)):
            continue  # the run took it meanwhile
        session.execute(session.sql["count_expired"], (stored.type,))
        if rules.is_held(stored.shown()):
            session.execute(session.sql["remove_publication"], (stored.publication,))
            look_again(session, stored.run_key, at)
        unread += 1
    session.execute(session.sql["remove_old_replies"], (before, limit))
    session.execute(session.sql["remove_old_publication_keys"], (before, limit))
    return unread
