"""Sends: an event, or a request to cancel, on its way to the inbox of another run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure.errors import InboxFull, PerdureError, RunFinished, RunNotFound
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.effects import Entry, Send
from perdure.kernel.eventloop.tasks import RunFuture
from perdure.kernel.items import ItemKind, NewItem
from perdure.kernel.journal import Body, Record, Row, to_row
from perdure.kernel.operations.base import Asker, EffectOperation, ask_effect, settle

if TYPE_CHECKING:
    from perdure.kernel.run import Run

#: Why a run did not take an item.
_REFUSALS = ("not_found", "finished", "full")


class Sent(Body, frozen=True, gc=False):
    """An event (or a cancel request) left for another run, in the same commit as this record."""

    kind = "sent"
    about = "send"
    settles = True
    may_follow_end = True
    is_beside = True

    target: str
    type: str  # the event's name, or "cancel"
    refused: str = ""  # "not_found", "finished", "full": nothing left
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        send = settle(run, record, SendOperation)
        future = send.take_future()
        if future.done():
            return
        if not self.refused or send.is_cancel:
            future.set_result(not self.refused)
        else:
            future.set_exception(self._error())

    def _error(self) -> PerdureError:
        match self.refused:
            case "not_found":
                return RunNotFound(f"no run has the id {self.target!r}.")
            case "full":
                return InboxFull(f"run {self.target!r} has too many unread events of type {self.type!r}.")
            case _:
                return RunFinished(f"run {self.target!r} has ended and takes no more events.")


class SendOperation(EffectOperation, eq=False):
    """An event or a cancel request on its way to another run."""

    kind = "send"
    rank = 4
    answered_by = Sent
    outlives_code = True

    target: str
    type: str
    data: bytes
    dedup: str | None
    is_cancel: bool
    policy: EventPolicy = DEFAULT_POLICY
    #: Whether the code waits for it to have left.
    awaited: bool = True

    def awaits_answer(self) -> bool:
        return self.awaited

    def entry(self, seq: int, at: int, asker: Asker) -> Entry:
        def row(refused: str) -> Row:
            return to_row(Record(seq, at, self.location, Sent(self.target, self.type, refused, self.site)))

        kind = ItemKind.CANCEL if self.is_cancel else ItemKind.EVENT
        item = NewItem(kind, self.type, self.data, at, self.dedup, self.policy)
        return Entry(row(""), Send(self.target, item, {reason: row(reason) for reason in _REFUSALS}))

    async def let_go(self, run: Run) -> bool:
        if self.future is not None:
            await asyncio.wait([self.future])
        return False

    def detail(self) -> str:
        return self.target


def ask(
    run: Run,
    target: str,
    type: str,  # noqa: A002
    data: bytes,
    dedup: str | None,
    is_cancel: bool,
    name: str,
    site: str,
    policy: EventPolicy = DEFAULT_POLICY,
) -> RunFuture:
    if run.is_ending():
        return RunFuture(loop=run.loop)
    location = run.locate(name)
    return ask_effect(
        run, SendOperation(location, run.count(), run.now, site, target, type, data, dedup, is_cancel, policy)
    )


def cancels_child(body: Body, location: str) -> bool:
    """Whether a record says that a child was asked to cancel, because nothing waits for it any more."""
    return isinstance(body, Sent) and body.type == "cancel" and location.endswith("/cancel")
