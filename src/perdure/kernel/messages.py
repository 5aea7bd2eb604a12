"""Verbs of workflow code about many: publishing, receiving several events, answering requests, other runs' ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from perdure import limits
from perdure.errors import BadArgument
from perdure.kernel.codec import codec_for
from perdure.kernel.definitions import EventTypes
from perdure.kernel.loop import MICROSECONDS, single_operation_codes
from perdure.kernel.sites import caller_site
from perdure.kernel.verbs import (
    Duration,
    check_match,
    check_operation_name,
    check_run_id,
    check_whole,
    current_run,
    event_spec,
    positive_seconds_of,
)

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_ANY = codec_for(Any)


async def publish(event: Any, *, name: str = "publish") -> None:
    """Publish an event, exactly once however often this code is replayed.

    Who gets it is said by its class: `@event(delivery=, consume=, expires=)`.
    """
    run = current_run("publish")
    spec = event_spec(type(event))
    data = spec.codec.encode(event, f"the event {spec.name!r}")
    await run.ask_publish(spec, data, check_operation_name(name), caller_site())


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
    operation, future = run.ask_receive(EventTypes({spec.name: spec for spec in specs}), name, caller_site())
    operation.wanted = wanted
    operation.match = match
    if seconds is None:
        return await future  # type: ignore[no-any-return]
    timer = run.ask_timer(
        "timeout", run.now + round(seconds * MICROSECONDS), lambda: run.pending.time_is_over(operation)
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
    request = run.take_request(event)
    if not request:
        return False
    try:
        await run.ask_reply(request, data, name, caller_site())
    except BaseException:
        # Cancelled before it left: whoever asked still waits, and the code may answer again. If it did leave, the
        # second answer is ignored.
        run.note_request(event, request)
        raise
    return True


@overload
async def wait_for_run(run_id: str, *, result: type[T], name: str = "wait_for_run") -> T: ...
@overload
async def wait_for_run(run_id: str, *, result: None = None, name: str = "wait_for_run") -> Any: ...
async def wait_for_run(run_id: str, *, result: Any = None, name: str = "wait_for_run") -> Any:
    """Wait for the end of a run that need not be a child, and return what it returned: plain data, or a `result`.

    Raises `RunNotFound`, `RunFailed` (its cause is the error) or `RunCancelled`. A cancelled wait leaves the run alone.
    """
    run = current_run("wait_for_run")
    target = check_run_id(run_id, allow_children=True)
    if target == run.id:
        raise BadArgument(f"run {target!r} would wait for its own end.")
    codec = _ANY if result is None else codec_for(result)
    value = await run.ask_watch(target, check_operation_name(name), caller_site())
    return codec.decode(value, f"the result of run {target!r}")


single_operation_codes |= {function.__code__ for function in (publish, receive_many, reply, wait_for_run)}
