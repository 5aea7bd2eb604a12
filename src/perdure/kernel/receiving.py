"""Which events a run receives next, which it cannot take, and which it leaves to others. Called by `advance` alone."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import NotDecodable
from perdure.kernel.arrivals import Arrivals
from perdure.kernel.items import DeadItem, InboxItem
from perdure.kernel.journal import Body
from perdure.kernel.operations.receive import ReceiveOperation
from perdure.kernel.pending import Pending


class _Undecodable(Exception):
    """An event whose bytes do not fit its class."""

    def __init__(self, item: InboxItem, error: NotDecodable) -> None:
        self.item = item
        self.reason = error.message


def next_events(
    pending: Pending, arrivals: Arrivals, now: int, dead: list[DeadItem]
) -> tuple[str, Body, Sequence[InboxItem], int] | None:
    """What the oldest receive that can be served gets, and when the last of it was sent.

    An event whose bytes do not fit its class would park the run at every try. It becomes a dead letter instead, and
    the run goes on waiting for a good one. Raises `MatchFailed`.
    """
    if arrivals.expiring:
        arrivals.drop_expired(now)
    while True:
        try:
            matched = arrivals.match(pending.receives.values(), _judge)
            if matched is None:
                return None
            receive, items = matched
            if receive.match is None:
                for item in items:
                    _check(receive, item)
        except _Undecodable as bad:
            arrivals.take(bad.item)
            dead.append(DeadItem(bad.item.id, bad.reason))
            continue
        return receive.location, receive.received(items), items, max((item.sent_at for item in items), default=0)


def unwanted_events(pending: Pending, arrivals: Arrivals) -> list[int]:
    """Published events in this inbox that only one run gets, and that this one does not want."""
    left = arrivals.unwanted(list(pending.receives.values()), _may_want)
    for item in left:
        arrivals.take(item)
    return [item.id for item in left]


def _judge(receive: ReceiveOperation, item: InboxItem) -> bool:
    try:
        return receive.fits(item.id, receive.types.specs[item.type], item.data)
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
