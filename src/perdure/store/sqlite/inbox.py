"""Putting things into inboxes: the one way in, for clients, turns, parents and children alike."""

from __future__ import annotations

from typing import NamedTuple

from perdure.store import refusals, rules
from perdure.store.model import Appended, Delivery, InboxItem, ItemKind, NewItem, RunKey
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.rows import inbox_item, policy_text
from perdure.store.sqlite.session import Session

_BY_ID, _BY_KEY, _CHILDREN = SQL["receiver_by_id"], SQL["receiver_by_key"], SQL["open_children"]
_HAS_DEDUP, _ADD_DEDUP, _IS_FULL = SQL["has_dedup"], SQL["add_dedup"], SQL["is_full"]
_ADD_ITEM, _WAKE, _MARK_CANCEL = SQL["add_item"], SQL["wake_run"], SQL["mark_cancel"]
_NOTE_ITEM = SQL["note_item"]


class Receiver(NamedTuple):
    """What must be known of a run before something is put into its inbox."""

    key: RunKey
    id: str
    status: str
    owner: str | None
    cancel_requested: int
    last_item: int


def find_receiver(session: Session, run_id: str) -> Receiver | None:
    found = session.row(_BY_ID, (run_id,))
    return None if found is None else Receiver._make(found)


def find_receiver_by_key(session: Session, key: RunKey) -> Receiver | None:
    found = session.row(_BY_KEY, (key,))
    return None if found is None else Receiver._make(found)


def existing_receiver(session: Session, run_id: str) -> Receiver:
    receiver = find_receiver(session, run_id)
    if receiver is None:
        raise refusals.not_found(run_id)
    return receiver


def find_open_children(session: Session, key: RunKey) -> list[Receiver]:
    return [Receiver._make(found) for found in session.rows(_CHILDREN, (key,))]


def whole_inbox(session: Session, key: RunKey) -> list[InboxItem]:
    """Everything that a run has not read, in the order of arrival."""
    return [inbox_item(values) for values in sorted(session.rows(SQL["whole_inbox"], (key,)))]  # ids come first


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
    refused = rules.refusal(
        item,
        receiver.status,
        seen=item.dedup is not None and session.row(_HAS_DEDUP, (key, item.dedup)) is not None,
        cancel_requested=bool(receiver.cancel_requested),
        is_full=lambda: _is_full(session, key, item.type, pending_max),
    )
    if refused is not None:
        return refused
    if item.kind is ItemKind.CANCEL:
        session.execute(_MARK_CANCEL, (key,))
    return put(session, receiver, item)


def _is_full(session: Session, key: RunKey, kind: str, pending_max: int) -> bool:
    return pending_max <= 0 or session.row(_IS_FULL, (key, kind, pending_max - 1)) is not None


def put(session: Session, receiver: Receiver, item: NewItem, publication: int = 0) -> Delivery:
    """Store an item. `publication`: the published event that it is a copy of."""
    key, owner = receiver.key, receiver.owner
    if item.dedup is not None:
        session.execute(_ADD_DEDUP, (key, item.dedup))
    previous = receiver.last_item
    policy = item.policy
    held = int(bool(publication) and policy.single)
    travels = (policy_text(policy), item.expires_at, publication, held, item.request)
    session.execute(_ADD_ITEM, (key, item.kind, item.type, item.data, item.sent_at, previous, *travels))
    item_id = session.connection.last_insert_rowid()
    session.execute(_NOTE_ITEM, (item_id, key))
    if owner is None:
        # In the transaction that stores the item: a run released a moment ago would sleep on
        # (testing/store/release.py).
        session.execute(_WAKE, (key,))
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
