"""Replies: the answer to a request, on its way to the caller that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from perdure.kernel.effects import Entry, Reply
from perdure.kernel.eventloop.tasks import RunFuture
from perdure.kernel.journal import Body, Record, to_row
from perdure.kernel.operations.base import Asker, EffectOperation, ask_effect, settle

if TYPE_CHECKING:
    from perdure.kernel.run import Run


class Replied(Body, frozen=True, gc=False):
    """The answer to a request left, in the same commit as this record."""

    kind = "replied"
    about = "reply"
    settles = True
    may_follow_end = True

    request: str
    value: Raw
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        settle(run, record, ReplyOperation).take_future().set_result(None)


class ReplyOperation(EffectOperation, eq=False):
    """The answer to a request, on its way to the caller."""

    kind = "reply"
    rank = 4
    answered_by = Replied
    outlives_code = True

    data: bytes
    request_id: str

    def entry(self, seq: int, at: int, asker: Asker) -> Entry:
        body = Replied(self.request_id, Raw(self.data), self.site)
        return Entry(to_row(Record(seq, at, self.location, body)), Reply(self.request_id, self.data, at))


def ask(run: Run, request: str, data: bytes, name: str, site: str) -> RunFuture:
    if run.is_ending():
        return RunFuture(loop=run.loop)
    return ask_effect(run, ReplyOperation(run.locate(name), run.count(), run.now, site, data, request))
