"""Receives: waits for events, one or several at once.

A receive is served from the inbox of its run; which events it takes is asked once for each, live, and never on replay,
where the record tells.
"""

from __future__ import annotations

from asyncio import events
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Raw

from perdure.errors import MatchFailed, describe
from perdure.kernel.definitions import EventSpec, EventTypes
from perdure.kernel.divergence import record_mismatch
from perdure.kernel.eventloop.loop import between_runs
from perdure.kernel.eventloop.tasks import RunFuture
from perdure.kernel.journal import Body, Record
from perdure.kernel.operations.base import Operation, never, settle, unexplained, wait_for

if TYPE_CHECKING:
    from perdure.kernel.frontier import Waiting
    from perdure.kernel.items import InboxItem
    from perdure.kernel.run import Run

Requests: TypeAlias = dict[int, tuple[Any, list[str]]]
"""Events whose senders wait for a reply, by identity; held here, so that the identity stays theirs."""


class EventReceived(Body, frozen=True, gc=False):
    """An event left the inbox and reached a `receive`."""

    kind = "event_received"
    about = "receive"
    settles = True

    event_id: int
    type: str
    value: Raw
    sent_at: int
    site: str = ""
    published: bool = False  # for any run that was to have it, rather than sent to this one
    request: str = ""  # the sender waits for the reply to this

    def apply(self, run: Run, record: Record) -> None:
        receive = settle(run, record, ReceiveOperation)
        event = receive.types.specs.get(self.type)
        if event is None or receive.wanted:
            raise record_mismatch(run.id, record, unexplained(run), accepted=receive)
        value = decode_event(event, self.value)
        if self.request:
            note_request(run.requests, value, self.request)
        receive.take_future().set_result(value)

    def edited(self, value: Raw) -> Body:
        return EventReceived(self.event_id, self.type, value, self.sent_at, self.site)


class Taken(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One event among those that a `receive_many` got."""

    event_id: int
    type: str
    value: Raw
    sent_at: int
    published: bool = False
    request: str = ""


class EventsReceived(Body, frozen=True, gc=False):
    """Events left the inbox together and reached a `receive_many`: all it waited for, or what was there in time."""

    kind = "events_received"
    about = "receive"
    settles = True

    events: tuple[Taken, ...] = ()
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        receive = settle(run, record, ReceiveOperation)
        if not receive.wanted or not all(taken.type in receive.types.specs for taken in self.events):
            raise record_mismatch(run.id, record, unexplained(run), accepted=receive)
        found: list[Any] = []
        for taken in self.events:
            value = decode_event(receive.types.specs[taken.type], taken.value)
            if taken.request:
                note_request(run.requests, value, taken.request)
            found.append(value)
        receive.take_future().set_result(found)


class ReceiveOperation(Operation, eq=False):
    """A wait for one event of some types; with `wanted` set, for so many."""

    kind = "receive"
    rank = 3

    types: EventTypes
    #: Which events it takes, if not all of its types; what it said of each, by event id.
    match: Callable[[Any], object] | None = None
    judged: dict[int, bool] | None = None
    #: How many events it takes at once; 0: one, handed over as itself.
    wanted: int = 0
    #: Whether it takes what is there, without waiting for more.
    time_is_over: bool = False

    def describe(self) -> str:
        return f"{self.kind} {self.location!r} of {self.types.names()}"

    def detail(self) -> str:
        return self.types.names()

    def still_fits(self, waiting: Waiting) -> bool:
        """Whether it takes every type that it took when it was asked for. Taking more is no harm."""
        return set(waiting.detail.split(" or ")) <= set(self.detail().split(" or "))

    @classmethod
    def edited(cls, waiting: Waiting, value: Raw) -> Body | None:
        if " or " in waiting.detail:
            return None
        return EventReceived(0, waiting.detail.strip("'"), value, waiting.since, waiting.site)

    def received(self, items: Sequence[InboxItem]) -> Body:
        """Its record, when it gets these."""
        if not self.wanted:
            (item,) = items
            published = bool(item.publication)
            return EventReceived(item.id, item.type, Raw(item.data), item.sent_at, self.site, published, item.request)
        taken = [
            Taken(item.id, item.type, Raw(item.data), item.sent_at, bool(item.publication), item.request)
            for item in items
        ]
        return EventsReceived(tuple(taken), self.site)

    def fits(self, event_id: int, spec: EventSpec, data: bytes) -> bool:
        """Whether it takes an event.

        Raises `NotDecodable` if the bytes do not fit the class, `MatchFailed` if the workflow's `match` raises.
        """
        if self.judged is None:
            self.judged = {}
        verdict = self.judged.get(event_id)
        if verdict is None:
            event = spec.codec.decode(data, f"the event {spec.name!r}")
            verdict = self.judged[event_id] = self.match is None or self._matches(event)
        return verdict

    def _matches(self, event: Any) -> bool:
        # With no run running: what the predicate might draw or ask for would not be drawn or asked for on replay.
        before = events._get_running_loop()
        events._set_running_loop(between_runs)
        try:
            return bool(self.match and self.match(event))
        except Exception as error:
            raise MatchFailed(
                f"the match of {self.describe()} ({self.site}) raised {describe(error)}. "
                "The event stays where it is. Fix the function, then resume the run."
            ) from error
        finally:
            events._set_running_loop(before)


def ask(run: Run, types: EventTypes, name: str, site: str) -> tuple[ReceiveOperation, RunFuture]:
    if run.is_ending():
        return never(ReceiveOperation(name, 0, 0, site, types)), RunFuture(loop=run.loop)
    receive = ReceiveOperation(run.locate(name), run.count(), run.now, site, types)
    return receive, wait_for(run, receive)


def decode_event(spec: EventSpec, value: Any) -> Any:
    return spec.codec.decode(value, f"the recorded event {spec.name!r}")


def events_in(body: Body) -> Iterator[EventReceived | Taken]:
    """The events that a run got by this record."""
    if isinstance(body, EventReceived):
        yield body
    elif isinstance(body, EventsReceived):
        yield from body.events


# -- requests --------------------------------------------------------------------------------------------------


def note_request(requests: Requests, event: Any, request: str) -> None:
    requests.setdefault(id(event), (event, []))[1].append(request)


def take_request(requests: Requests, event: Any) -> str:
    """The request that came with this event, once; empty if no sender waits for a reply."""
    held = requests.get(id(event))
    if held is None:
        return ""
    request = held[1].pop(0)
    if not held[1]:
        del requests[id(event)]
    return request
