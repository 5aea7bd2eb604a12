"""Requests of workflow code about events and other runs, as entries of the turn that carries them out."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw

from perdure.kernel import journal
from perdure.kernel.journal import Body, Record, Row, to_row
from perdure.kernel.operation import EffectOperation, PublishOperation, ReplyOperation, WatchOperation
from perdure.store.base import Entry, ItemKind, NewItem, Publish, Reply, Watch


def effect_entry(operation: EffectOperation, seq: int, at: int) -> Entry:
    """The record that says it was done, with what is to be done in the same commit."""

    def row(body: Body) -> Row:
        return to_row(Record(seq, at, operation.location, body))

    match operation:
        case PublishOperation():
            return _publish(operation, at, row)
        case ReplyOperation(request=request, data=data, site=site):
            return Entry(row(journal.Replied(request, Raw(data), site)), Reply(request=request, data=data, at=at))
        case WatchOperation(run_id=run_id, location=location, site=site):
            refused = {"not_found": row(journal.RunWatched(run_id, "not_found", site))}
            effect = Watch(target=run_id, location=location, refused=refused)
            return Entry(row(journal.RunWatched(run_id, "", site)), effect)
        case _:
            raise AssertionError(f"no effect for {type(operation).__name__}")


def _publish(operation: PublishOperation, at: int, row: Callable[[Body], Row]) -> Entry:
    event = operation.event
    item = NewItem(kind=ItemKind.EVENT, type=event.name, data=operation.data, sent_at=at, policy=event.policy)
    body = journal.Published(event.name, Raw(operation.data), operation.site)
    return Entry(row(body), Publish(item=item))
