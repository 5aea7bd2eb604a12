"""Where events go that do not reach their run, who hears of the end of a run, and what is removed in time."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.journal import Row
from perdure.store import items, refusals
from perdure.store.base import (
    TERMINAL,
    DeadItem,
    Delivery,
    InboxItem,
    ItemKind,
    Published,
    RunKey,
    Status,
    Watch,
)
from perdure.store.sqlite.events import look_again, publish, return_held
from perdure.store.sqlite.inbox import Receiver, find_receiver, find_receiver_by_key, offer, put, whole_inbox
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.rows import dead_letter, inbox_item, policy_text, records, run_row
from perdure.store.sqlite.session import Session


def bury(session: Session, key: RunKey, dead: Sequence[DeadItem], at: int) -> set[str]:
    """Events that the run cannot take become dead letters. Returns their types."""
    kinds: set[str] = set()
    for item_id, reason in dead:
        item = inbox_item(session.rows(SQL["item"], (item_id, key))[0])
        if item.publication and item.policy.single:
            session.execute(SQL["remove_publication"], (item.publication,))
        session.execute(SQL["take_item"], (item_id, key))
        _add_letter(session, key, item, reason, at)
        kinds.add(item.type)
    return kinds


def _add_letter(session: Session, key: RunKey, item: InboxItem, reason: str, at: int) -> None:
    described = (item.type, item.data, policy_text(item.policy), item.sent_at, at, reason)
    session.execute(SQL["add_letter"], (*described, key))


def end(session: Session, key: RunKey, last: Row, at: int, pending_max: int) -> list[Delivery]:
    """The run has ended: its unread events go where their class says, and whoever watches it is told."""
    run = find_receiver_by_key(session, key)
    if run is None:
        raise AssertionError(f"run {key} ended but does not exist")
    left = whole_inbox(session, key)
    deliveries = return_held(session, key, at) if left else []
    session.execute(SQL["end_waits"] if run.status == Status.FAILED else SQL["forget_waits"], (key,))
    session.execute(SQL["forget_all_refusals"], (key,))
    if left:
        session.execute(SQL["empty_inbox"], (key,))
    for item in left:
        if item.kind is ItemKind.EVENT and not item.publication:
            deliveries += _undelivered(session, key, item, at, pending_max)
    watchers = session.rows(SQL["watchers"], (key,))
    for watcher, generation, location in watchers:
        told = find_receiver_by_key(session, watcher)
        if told is not None and told.status not in TERMINAL:
            deliveries.append(put(session, told, items.end_item(last, run.id, generation, location, at)))
    if watchers:
        session.execute(SQL["forget_watches"], (key,))
    return deliveries


def _undelivered(session: Session, key: RunKey, item: InboxItem, at: int, pending_max: int) -> Sequence[Delivery]:
    if item.expires_at is not None and item.expires_at <= at:
        session.execute(SQL["count_expired"], (item.type,))
    elif item.policy.undelivered == "dead_letter":
        _add_letter(session, key, item, items.UNREAD, at)
    elif item.policy.undelivered == "broadcast":
        return publish(session, items.event_again(item, at), pending_max).deliveries
    return ()


def watch(session: Session, key: RunKey, generation: int, effect: Watch, at: int) -> list[Delivery] | None:
    """Tell a run about the end of another: later, or now. None if there is no such run."""
    found = session.row(SQL["run_by_id"], (effect.target,))
    if found is None:
        return None
    target = run_row(found)
    if target.status not in TERMINAL:
        session.execute(SQL["add_watch"], (target.key, key, generation, effect.location))
        session.execute(SQL["mark_watched"], (target.key,))
        return []
    last = records(session.rows(SQL["end_of_run"], (target.key, target.generation)))[0]
    watcher = find_receiver_by_key(session, key)
    if watcher is None:
        raise AssertionError(f"run {key} takes a turn but does not exist")
    return [put(session, watcher, items.end_item(last, target.id, generation, effect.location, at))]


def give_back(session: Session, key: RunKey, ended_at: int | None) -> None:
    """The end of a run is taken back: what it had not read then is in its inbox again."""
    for letter in map(dead_letter, session.rows(SQL["letters_of_end"], (key, ended_at, items.UNREAD))):
        session.execute(SQL["remove_letter"], (letter.id,))
        receiver = find_receiver_by_key(session, key)
        if receiver is not None:
            put(session, receiver, items.unread_again(letter))


# -- dead letters ----------------------------------------------------------------------------------------


def replay_letter(session: Session, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
    found = session.row(SQL["letter"], (letter_id,))
    if found is None:
        raise refusals.letter_not_found(letter_id)
    item = items.event_again(dead_letter(found), at)
    if run_id is None:
        session.execute(SQL["remove_letter"], (letter_id,))
        return publish(session, item, pending_max)
    receiver = _existing(session, run_id)
    outcome = offer(session, receiver, item, pending_max)
    if isinstance(outcome, str):
        raise (
            refusals.finished(run_id, receiver.status)
            if outcome == "finished"
            else refusals.inbox_full(run_id, item.type, pending_max)
        )
    session.execute(SQL["remove_letter"], (letter_id,))
    return Published(id=None, deliveries=[outcome])


def _existing(session: Session, run_id: str) -> Receiver:
    receiver = find_receiver(session, run_id)
    if receiver is None:
        raise refusals.not_found(run_id)
    return receiver


def remove_letters(session: Session, letter_ids: Sequence[int]) -> int:
    removed = 0
    for letter_id in letter_ids:
        session.execute(SQL["remove_letter"], (letter_id,))
        removed += session.changes()
    return removed


# -- in time ---------------------------------------------------------------------------------------------


def tidy(session: Session, at: int, before: int, limit: int) -> int:
    unread = 0
    over = session.rows(SQL["late_publications"], (at, limit)) + session.rows(SQL["old_publications"], (before, limit))
    for publication, kind, single in dict.fromkeys(over):
        session.execute(SQL["remove_publication"], (publication,))
        if single:
            session.execute(SQL["count_expired"], (kind,))
            unread += 1
    for values in session.rows(SQL["late_items"], (at, limit)):
        key, item = values[1], inbox_item(values)
        session.execute(SQL["take_item"], (item.id, key))
        session.execute(SQL["count_expired"], (item.type,))
        if item.publication and item.policy.single:
            session.execute(SQL["remove_publication"], (item.publication,))
            look_again(session, key, at)
        unread += 1
    session.execute(SQL["remove_old_replies"], (before, limit))
    session.execute(SQL["remove_old_publication_keys"], (before, limit))
    return unread
