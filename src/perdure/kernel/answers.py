"""What records about events and other runs do to the operations that wait for them. Called by `Run.deliver` alone."""

from __future__ import annotations

from asyncio import events
from collections.abc import Iterable
from typing import Any, TypeAlias

from perdure.errors import MatchFailed, RunCancelled, RunFailed, RunNotFound, describe
from perdure.kernel import journal
from perdure.kernel.definitions import EventSpec
from perdure.kernel.faults import decode_error
from perdure.kernel.loop import between_runs
from perdure.kernel.operation import Operation, ReceiveOperation, WatchOperation

Requests: TypeAlias = dict[int, tuple[Any, list[str]]]
"""Events that somebody waits for a reply to, by identity; held here, so that the identity stays theirs."""


def note_request(requests: Requests, event: Any, request: str) -> None:
    requests.setdefault(id(event), (event, []))[1].append(request)


def take_request(requests: Requests, event: Any) -> str:
    """The request that came with this event, once; empty if nobody waits for a reply."""
    held = requests.get(id(event))
    if held is None:
        return ""
    request = held[1].pop(0)
    if not held[1]:
        del requests[id(event)]
    return request


def events_of(receive: ReceiveOperation, body: journal.EventsReceived, requests: Requests) -> list[Any] | None:
    """What a `receive_many` gets. None if it does not take one of the types."""
    if not all(taken.type in receive.types.specs for taken in body.events):
        return None
    found: list[Any] = []
    for taken in body.events:
        value = decode_event(receive.types.specs[taken.type], taken.value)
        if taken.request:
            note_request(requests, value, taken.request)
        found.append(value)
    return found


def decode_event(spec: EventSpec, value: Any) -> Any:
    return spec.codec.decode(value, f"the recorded event {spec.name!r}")


def settle_watch(watch: WatchOperation, body: journal.RunEnded) -> None:
    """The run that was waited for has ended."""
    future = watch.take_future()
    if body.error is not None:
        error = body.error
        failure = RunFailed(f"run {body.run_id!r} failed: {error.type.partition(':')[2]}: {error.message}")
        failure.__cause__ = decode_error(error)
        future.set_exception(failure)
    elif body.value:
        future.set_result(body.value)
    else:
        reason = body.cancelled or "no reason given"
        future.set_exception(RunCancelled(f"run {body.run_id!r} was cancelled: {reason}"))


def watch_again(pending: Iterable[Operation]) -> None:
    """The store may not know which ends this run waits to hear of: it is told again."""
    for operation in pending:
        if isinstance(operation, WatchOperation):
            operation.is_watched = False


def refuse_watch(watch: WatchOperation) -> None:
    watch.take_future().set_exception(RunNotFound(f"no run has the id {watch.run_id!r}."))


def fits(receive: ReceiveOperation, event_id: int, spec: EventSpec, data: bytes) -> bool:
    """Whether a receive takes an event: asked once for each, live, and never on replay, where the record tells.

    Raises `NotDecodable` if the bytes do not fit the class, `MatchFailed` if the workflow's `match` raises.
    """
    if receive.judged is None:
        receive.judged = {}
    verdict = receive.judged.get(event_id)
    if verdict is None:
        event = spec.codec.decode(data, f"the event {spec.name!r}")
        verdict = receive.judged[event_id] = receive.match is None or _ask(receive, event)
    return verdict


def _ask(receive: ReceiveOperation, event: Any) -> bool:
    # With no run running: what the predicate might draw or ask for would not be drawn or asked for on replay.
    before = events._get_running_loop()
    events._set_running_loop(between_runs)
    try:
        return bool(receive.match and receive.match(event))
    except Exception as error:
        raise MatchFailed(
            f"the match of {receive.describe()} ({receive.site}) raised {describe(error)}. "
            "The event stays where it is. Mend the function, then resume the run."
        ) from error
    finally:
        events._set_running_loop(before)
