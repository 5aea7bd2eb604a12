"""Putting things into inboxes: the one way in, for clients, turns, parents and children alike."""

from __future__ import annotations

from perdure.limits import AT_ONCE
from perdure.store import refusals, rules
from perdure.store.memory.tables import Run, Tables, check_storable
from perdure.store.model import Appended, Delivery, InboxItem, ItemKind, NewItem


def existing(tables: Tables, run_id: str) -> Run:
    run = tables.by_id.get(run_id)
    if run is None:
        raise refusals.not_found(run_id)
    return run


# -- clients ---------------------------------------------------------------------------------------------


def append(tables: Tables, run_id: str, item: NewItem, pending_max: int) -> Appended:
    run = existing(tables, run_id)
    outcome = offer(tables, run, item, pending_max)
    if isinstance(outcome, Delivery):
        return Appended(delivery=outcome)
    if outcome:
        raise refusals.refused(outcome, run_id, run.status, item.type, pending_max)
    return Appended(delivery=None)


def request_cancel(tables: Tables, run_id: str, item: NewItem) -> Delivery | None:
    outcome = offer(tables, existing(tables, run_id), item)
    return outcome if isinstance(outcome, Delivery) else None


# -- the way in ------------------------------------------------------------------------------------------


def offer(tables: Tables, run: Run, item: NewItem, pending_max: int = 0) -> Delivery | rules.Refusal:
    """Put an item into an inbox, or say why not. Changes nothing unless it returns a delivery."""
    check_storable(item.type, item.dedup)
    refused = rules.refusal(
        item,
        run.status,
        seen=item.dedup is not None and item.dedup in run.dedup,
        cancel_requested=run.cancel_requested,
        is_full=lambda: run.unread[item.type] >= pending_max,
    )
    if refused is not None:
        return refused
    tables.check_here()
    if item.kind is ItemKind.CANCEL:
        run.cancel_requested = True
    return put(tables, run, item)


def put(tables: Tables, run: Run, item: NewItem, publication: int = 0) -> Delivery:
    """Store an item. `publication`: the published event that it is a copy of."""
    if item.dedup is not None:
        run.dedup.add(item.dedup)
    if item.policy.expires is not None:
        tables.events.some_expire = True
    tables.last_item += 1
    stored = InboxItem(
        id=tables.last_item,
        kind=item.kind,
        type=item.type,
        data=item.data,
        sent_at=item.sent_at,
        previous=run.last_item,
        policy=item.policy,
        expires_at=item.expires_at,
        publication=publication,
        request=item.request,
    )
    run.last_item = stored.id
    run.inbox[stored.id] = stored
    run.unread[item.type] += item.kind is ItemKind.EVENT
    tables.arrivals[stored.id] = run.key
    if run.owner is None:
        run.ready_at = AT_ONCE
    return Delivery(run.key, run.owner, stored)


def drop(tables: Tables, run: Run, item: InboxItem) -> None:
    """Take an item out of an inbox."""
    del run.inbox[item.id]
    run.unread[item.type] -= item.kind is ItemKind.EVENT
    del tables.arrivals[item.id]
