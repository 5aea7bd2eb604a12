"""Which events a run receives next, which it cannot take, and which it leaves to others. Called by the turn builder."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from perdure.engine.resident import Resident
from perdure.errors import NotDecodable
from perdure.kernel import journal
from perdure.kernel.answers import fits
from perdure.kernel.journal import Body
from perdure.kernel.operation import ReceiveOperation
from perdure.store.base import DeadItem, InboxItem


class _Undecodable(Exception):
    """An event whose bytes do not fit its class."""

    def __init__(self, item: InboxItem, error: NotDecodable) -> None:
        self.item = item
        self.reason = error.message


def next_events(resident: Resident, now: int) -> tuple[str, Body, Sequence[InboxItem], int] | None:
    """What the oldest receive that can be served gets, and when the last of it was sent.

    An event whose bytes do not fit its class would park the run at every try. It becomes a dead letter instead, and
    the run goes on waiting for a good one. Raises `MatchFailed`.
    """
    inbox = resident.inbox
    if inbox.expiring:
        inbox.drop_expired(now)
    while True:
        try:
            matched = inbox.match(resident.run.pending.receives.values(), _judge)
            if matched is None:
                return None
            receive, items = matched
            if receive.match is None:
                for item in items:
                    _check(receive, item)
        except _Undecodable as bad:
            inbox.take(bad.item)
            resident.dead = (*resident.dead, DeadItem(bad.item.id, bad.reason))
            continue
        return receive.location, _body(receive, items), items, max((item.sent_at for item in items), default=0)


def unwanted_events(resident: Resident) -> list[int]:
    """Published events in this inbox that only one run gets, and that this one does not want."""
    inbox = resident.inbox
    left = inbox.unwanted(list(resident.run.pending.receives.values()), _may_want)
    for item in left:
        inbox.take(item)
    return [item.id for item in left]


def _body(receive: ReceiveOperation, items: Sequence[InboxItem]) -> Body:
    if not receive.wanted:
        (item,) = items
        published = bool(item.publication)
        return journal.EventReceived(
            item.id, item.type, Raw(item.data), item.sent_at, receive.site, published, item.request
        )
    taken = [
        journal.Taken(item.id, item.type, Raw(item.data), item.sent_at, bool(item.publication), item.request)
        for item in items
    ]
    return journal.EventsReceived(tuple(taken), receive.site)


def _judge(receive: ReceiveOperation, item: InboxItem) -> bool:
    try:
        return fits(receive, item.id, receive.types.specs[item.type], item.data)
    except NotDecodable as error:
        raise _Undecodable(item, error) from None


def _may_want(receive: ReceiveOperation, item: InboxItem) -> bool:
    try:
        return _judge(receive, item)
    except _Undecodable:
        return True  # it becomes a dead letter when its turn comes


def _check(receive: ReceiveOperation, item: InboxItem) -> None:
    spec = receive.types.specs[item.type]
    try:
        spec.codec.decode(item.data, f"the event {item.type!r}")
    except NotDecodable as error:
        raise _Undecodable(item, error) from None
