"""Putting things into inboxes: the one way in, for clients, turns, parents and children alike."""

from __future__ import annotations

from typing import NamedTuple

from perdure.store import refusals, rules
from perdure.store.model import Appended, Delivery, InboxItem, ItemKind, NewItem, RunKey
from perdure.store.sql.rows import inbox_item, policy_text
from perdure.store.sql.session import Session


class Receiver(NamedTuple):
    """What must be known of a run before something is put into its inbox."""

    key: RunKey
    id: str
    status: str
    owner: str | None
    cancel_requested: int
    last_item: int


def find_receiver(session: Session, run_id: str) -> Receiver | None:
    found = session.row(session.sql["receiver_by_id"], (run_id,))
    return None if found is None else Receiver._make(found)


def find_receiver_by_key(session: Session, key: RunKey) -> Receiver | None:
    found = session.row(session.sql["receiver_by_key"], (key,))
    return None if found is None else Receiver._make(found)


def existing_receiver(session: Session, run_id: str) -> Receiver:
    receiver = find_receiver(session, run_id)
    if receiver is None:
        raise refusals.not_found(run_id)
    return receiver


def find_open_children(session: Session, key: RunKey) -> list[Receiver]:
    return [Receiver._make(found) for found in session.rows(session.sql["open_children"], (key,))]


def whole_inbox(session: Session, key: RunKey) -> list[InboxItem]:
    """Everything that a run has not read, in the order of arrival."""
    return [inbox_item(values) for values in sorted(session.rows(session.sql["whole_inbox"], (key,)))]  # ids come first


# -- clients ---------------------------------------------------------------------------------------------


def append(session: Session, run_id: str, item: NewItem, pending_max: int) -> Appended:
    receiver = existing_receiver(session, run_id)
    outcome = offer(session, receiver, item, pending_max)
    if isinstance(outcome, Delivery):
        return Appended(delivery=outcome)
    if outcome:
        raise refusals.refused(outcome, run_id, receiver.status, item.type, pending_max)
    return Appended(delivery=None)


def request_cancel(session: Session, run_id: str, item: NewItem) -> Delivery | None:
    outcome = offer(session, existing_receiver(session, run_id), item)
    return outcome if isinstance(outcome, Delivery) else None


# -- the way in ------------------------------------------------------------------------------------------


def offer(session: Session, receiver: Receiver, item: NewItem, pending_max: int = 0) -> Delivery | rules.Refusal:
    """Put an item into an inbox, or say why not. Writes nothing unless it returns a delivery."""
    key = receiver.key
    seen, full = _takes(session, key, item, pending_max)
    refused = rules.refusal(
        item,
        receiver.status,
        seen=seen,
        cancel_requested=bool(receiver.cancel_requested),
        is_full=lambda: full,
    )
    if refused is not None:
        return refused
    if item.kind is ItemKind.CANCEL:
        session.execute(session.sql["mark_cancel"], (key,))
    return put(session, receiver, item)


def _takes(session: Session, key: RunKey, item: NewItem, pending_max: int) -> tuple[bool, bool]:
    """Whether the inbox had this item before, and whether it is full of its type: one statement, since all that a store
    on another machine does for a sender is round trips."""
    if item.dedup is None and item.kind is not ItemKind.EVENT:
        return False, False
    found = session.row(session.sql["inbox_takes"], (key, item.dedup, item.type, max(pending_max - 1, 0)))
    seen, full = found or (0, 0)
    return bool(seen), bool(full) or pending_max <= 0


def put(session: Session, receiver: Receiver, item: NewItem, publication: int = 0) -> Delivery:
    """Store an item. `publication`: the published event that it is a copy of."""
    key, owner = receiver.key, receiver.owner
    if item.dedup is not None:
        session.execute(session.sql["add_dedup"], (key, item.dedup))
    previous = receiver.last_item
    policy = item.policy
    held = int(bool(publication) and policy.single)
    travels = (policy_text(policy), item.expires_at, publication, held, item.request)
    described = (key, item.kind, item.type, item.data, item.sent_at, previous)
    item_id = session.insert(session.sql["add_item"], (*described, *travels))
    if item_id is None:
        raise AssertionError(f"run {key} does not exist")
    session.execute(session.sql["note_item"], (item_id, key))
    if owner is None:
        # In the transaction that stores the item: a run released a moment ago would sleep on
        # (testing/store/release.py).
        session.execute(session.sql["wake_run"], (key,))
    stored = InboxItem(
        id=item_id,
        kind=item.kind,
        type=item.type,
        data=item.data,
        sent_at=item.sent_at,
        previous=previous,
        policy=policy,
        expires_at=item.expires_at,
        publication=publication,
        request=item.request,
    )
    return Delivery(key, owner, stored)
