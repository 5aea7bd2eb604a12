"""Verbs about events: `receive`, `receive_many`, `send`, `publish`, `reply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from perdure import limits
from perdure.errors import BadArgument
from perdure.given import shown
from perdure.kernel import operations
from perdure.kernel.definitions import EventTypes
from perdure.kernel.eventloop.loop import MICROSECONDS
from perdure.kernel.eventloop.tasks import single_operation_codes
from perdure.kernel.operations.receive import note_request, take_request
from perdure.kernel.sites import caller_site
from perdure.kernel.values import codec_for
from perdure.kernel.verbs.checks import (
    check_key,
    check_match,
    check_operation_name,
    check_run_id,
    check_whole,
    event_spec,
)
from perdure.kernel.verbs.current import current_run
from perdure.kernel.verbs.durations import Duration, positive_seconds_of

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


_ANY = codec_for(Any)


@overload
async def receive(
    a: type[A], /, *, timeout: Duration | None = None, match: Callable[[A], object] | None = None,
    name: str = "receive",
) -> A: ...  # fmt: skip
@overload
async def receive(
    a: type[A], b: type[B], /, *, timeout: Duration | None = None,
    match: Callable[[A | B], object] | None = None, name: str = "receive",
) -> A | B: ...  # fmt: skip
@overload
async def receive(
    a: type[A], b: type[B], c: type[C], /, *, timeout: Duration | None = None,
    match: Callable[[A | B | C], object] | None = None, name: str = "receive",
) -> A | B | C: ...  # fmt: skip
@overload
async def receive(
    a: type[A], b: type[B], c: type[C], d: type[D], /, *rest: type[Any],
    timeout: Duration | None = None, match: Callable[[Any], object] | None = None, name: str = "receive",
) -> A | B | C | D | Any: ...  # fmt: skip
async def receive(
    *types: type[Any],
    timeout: Duration | None = None,
    match: Callable[[Any], object] | None = None,
    name: str = "receive",
) -> Any:
    """Wait for the next event of any of these types: those sent to this run first, then published ones, oldest first.

    Events sent before the wait are kept and come at once. With `timeout`, raises `TimeoutError` when it is over;
    zero looks only at what has already arrived. A cancelled wait consumes nothing.

    With `match`, only an event for which it answers true is taken; others stay, a published one for other runs. It is
    asked once about each event, never on replay, and may use no verbs. If it raises, the run is parked.

    >>> approval = await receive(Approved, timeout="7 days", match=lambda event: event.order == order)
    """
    run = current_run("receive")
    if not types:
        raise BadArgument("receive() needs at least one event type.")
    specs = [event_spec(type_) for type_ in types]
    check_match(match)
    name = check_operation_name(name)
    seconds = None if timeout is None else positive_seconds_of(timeout, "the timeout of a receive")
    operation, future = operations.receive.ask(
        run, EventTypes({spec.name: spec for spec in specs}), name, caller_site()
    )
    operation.match = match
    if seconds is None:
        return await future

    def give_up() -> None:
        if not future.done():
            run.withdraw(operation)
            operation.take_future()
            future.set_exception(TimeoutError(f"no {operation.types.names()} came within {shown(timeout)}"))

    timer = operations.timer.ask(run, "timeout", run.now + round(seconds * MICROSECONDS), give_up)
    try:
        return await future
    finally:
        run.withdraw(timer)


async def send(run_id: str, event: Any, *, key: str | None = None, name: str = "send") -> None:
    """Send an event to another run, exactly once however often this code is replayed.

    Raises `RunNotFound`, `RunFinished` or `InboxFull`. A second event with the same `key` is ignored.
    """
    run = current_run("send")
    spec = event_spec(type(event))
    data = spec.codec.encode(event, f"the event {spec.name!r}")
    target, name = check_run_id(run_id, allow_children=True), check_operation_name(name)
    await operations.send.ask(run, target, spec.name, data, check_key(key), False, name, caller_site(), spec.policy)


async def publish(event: Any, *, name: str = "publish") -> None:
    """Publish an event, exactly once however often this code is replayed.

    Who gets it is said by its class: `@event(delivery=, consume=, expires=)`.
    """
    run = current_run("publish")
    spec = event_spec(type(event))
    data = spec.codec.encode(event, f"the event {spec.name!r}")
    await operations.publish.ask(run, spec, data, check_operation_name(name), caller_site())


@overload
async def receive_many(
    a: type[A], /, *, max: int, timeout: Duration | None = None,
    match: Callable[[A], object] | None = None, name: str = "receive",
) -> list[A]: ...  # fmt: skip
@overload
async def receive_many(
    a: type[A], b: type[B], /, *, max: int, timeout: Duration | None = None,
    match: Callable[[A | B], object] | None = None, name: str = "receive",
) -> list[A | B]: ...  # fmt: skip
@overload
async def receive_many(
    a: type[Any], b: type[Any], c: type[Any], /, *rest: type[Any], max: int,
    timeout: Duration | None = None, match: Callable[[Any], object] | None = None, name: str = "receive",
) -> list[Any]: ...  # fmt: skip
async def receive_many(
    *types: type[Any],
    max: int,  # noqa: A002
    timeout: Duration | None = None,
    match: Callable[[Any], object] | None = None,
    name: str = "receive",
) -> list[Any]:
    """Wait for `max` events of these types; with `timeout`, for as many of them as come within it, perhaps none.

    They are taken together: a wait that is cancelled on the way has taken nothing.

    >>> votes = await receive_many(Vote, max=3, timeout="1 day")
    """
    run = current_run("receive_many")
    if not types:
        raise BadArgument("receive_many() needs at least one event type.")
    wanted = check_whole(max, "max", 1, limits.RECEIVE_MANY_MAX)
    specs = [event_spec(type_) for type_ in types]
    check_match(match)
    seconds = None if timeout is None else positive_seconds_of(timeout, "the timeout of a receive")
    name = check_operation_name(name)
    operation, future = operations.receive.ask(
        run, EventTypes({spec.name: spec for spec in specs}), name, caller_site()
    )
    operation.wanted = wanted
    operation.match = match
    if seconds is None:
        return await future  # type: ignore[no-any-return]
    timer = operations.timer.ask(
        run, "timeout", run.now + round(seconds * MICROSECONDS), lambda: run.pending.time_is_over(operation)
    )
    try:
        return await future  # type: ignore[no-any-return]
    finally:
        run.withdraw(timer)


async def reply(event: Any, value: Any, *, name: str = "reply") -> bool:
    """Answer an event that came by `engine.request`, once however often this code is replayed.

    False if nobody waits for an answer: it was sent or published, or has been answered before.
    """
    run = current_run("reply")
    spec = event_spec(type(event))
    name = check_operation_name(name)
    data = _ANY.encode(value, f"the reply to {spec.name}")
    request = take_request(run.requests, event)
    if not request:
        return False
    try:
        await operations.reply.ask(run, request, data, name, caller_site())
    except BaseException:
        # Cancelled before it left: the caller still waits, and the code may answer again. If it did leave, the
        # second answer is ignored.
        note_request(run.requests, event, request)
        raise
    return True


single_operation_codes |= {function.__code__ for function in (receive, send, publish, receive_many, reply)}
