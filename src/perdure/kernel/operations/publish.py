"""Publishing: an event on its way to all runs that are to have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from perdure.kernel.definitions import EventSpec
from perdure.kernel.effects import Entry, Publish
from perdure.kernel.eventloop.tasks import RunFuture
from perdure.kernel.items import ItemKind, NewItem
from perdure.kernel.journal import Body, Record, to_row
from perdure.kernel.operations.base import Asker, EffectOperation, ask_effect, settle

if TYPE_CHECKING:
    from perdure.kernel.run import Run


class Published(Body, frozen=True, gc=False):
    """An event was published, in the same commit as this record."""

    kind = "published"
    about = "publish"
    settles = True
    may_follow_end = True

    type: str
    value: Raw
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        settle(run, record, PublishOperation).take_future().set_result(None)


class PublishOperation(EffectOperation, eq=False):
    """An event on its way to all runs that are to have it."""

    kind = "publish"
    rank = 4
    answered_by = Published
    outlives_code = True

    data: bytes
    event: EventSpec

    def entry(self, seq: int, at: int, asker: Asker) -> Entry:
        event = self.event
        item = NewItem(ItemKind.EVENT, event.name, self.data, at, policy=event.policy)
        body = Published(event.name, Raw(self.data), self.site)
        return Entry(to_row(Record(seq, at, self.location, body)), Publish(item))

    def detail(self) -> str:
        return self.event.name


def ask(run: Run, event: EventSpec, data: bytes, name: str, site: str) -> RunFuture:
    if run.is_ending():
        return RunFuture(loop=run.loop)
    return ask_effect(run, PublishOperation(run.locate(name), run.count(), run.now, site, data, event))
