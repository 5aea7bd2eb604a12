"""What workflow code calls: sleep, receive, send, children, continue_as, and what it may know about itself.

Each verb finds its run through the running loop, so it works in helpers and nested tasks without a context
argument. Outside a workflow it raises `NotInWorkflow`.
"""

from __future__ import annotations

import math
import re
from asyncio import events
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, NoReturn, TypeVar, get_args, overload
from uuid import UUID

import msgspec

from perdure import limits
from perdure.errors import BadArgument, NotInWorkflow, written_out
from perdure.given import an_instance, class_name, number_of, qualified_name, shown, text_of, whole_of
from perdure.kernel.definitions import EventSpec, EventTypes, WorkflowSpec
from perdure.kernel.loop import MICROSECONDS, RunFuture, RunLoop, single_operation_codes
from perdure.kernel.operation import ChildOperation
from perdure.kernel.run import Run
from perdure.kernel.sites import caller_site
from perdure.kernel.versions import Version

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
R = TypeVar("R")

_get_running_loop = events._get_running_loop

Duration = float | int | timedelta | str


def running_run() -> Run | None:
    """The run whose code is running now, or None outside workflow code."""
    loop = _get_running_loop()
    return loop.owner if type(loop) is RunLoop else None  # type: ignore[return-value]


def current_run(verb: str) -> Run:
    run = running_run()
    if run is None:
        raise NotInWorkflow(
            f"{verb}() only works in workflow code. Outside, use the engine: engine.start, engine.send, ..."
        )
    return run


# -- time --------------------------------------------------------------------------------------------------

_UNITS = {
    "us": 1e-6, "microsecond": 1e-6, "ms": 1e-3, "millisecond": 1e-3,
    "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hour": 3600, "d": 86400, "day": 86400, "w": 604800, "week": 604800,
}  # fmt: skip
_PART = r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*(?:,|and)?\s*"


def seconds_of(duration: Duration, what: str = "a duration") -> float:
    """Seconds of a number, a `timedelta` or a text such as "5 minutes" or "1h 30m"."""
    text = text_of(duration)
    number = number_of(duration)
    if text is not None:
        seconds = _seconds_of_text(text, what)
    elif number is not None:
        seconds = number
    elif an_instance(duration, timedelta):
        seconds = timedelta.total_seconds(duration)  # type: ignore[arg-type]
    else:
        raise BadArgument(
            f"{what} is a number of seconds, a timedelta or a text such as '5 minutes', not {shown(duration)}."
        )
    if math.isnan(seconds) or seconds > limits.DURATION_SECONDS_MAX:
        raise BadArgument(f"{what} must be at most a century, not {shown(duration)}.")
    return seconds


def positive_seconds_of(duration: Duration, what: str) -> float:
    """Like `seconds_of`, but refuses what is below zero."""
    seconds = seconds_of(duration, what)
    if seconds < 0:
        raise BadArgument(f"{what} must not be negative, and {shown(duration)} is.")
    return seconds


def _seconds_of_text(text: str, what: str) -> float:
    pattern = re.compile(_PART, re.IGNORECASE)  # here: most imports of perdure can do without
    position, seconds = 0, 0.0
    while position < len(text):
        part = pattern.match(text, position)
        unit = part and part[2].lower()
        factor = unit and (_UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")))
        if not part or not factor:
            raise BadArgument(
                f"{what} {shown(text)} was not understood. Write for example '90 seconds', '5 minutes' or '1h 30m'."
            )
        seconds += float(part[1]) * factor
        position = part.end()
    if not text.strip():
        raise BadArgument(f"{what} is empty.")
    return seconds


async def sleep(duration: Duration, *, name: str = "sleep") -> None:
    """Wait, over any number of restarts. Zero returns at once; negative is refused.

    >>> await sleep("30 days")
    """
    run = current_run("sleep")
    seconds = positive_seconds_of(duration, "the duration of a sleep")
    await _sleep_to(run, run.now + round(seconds * MICROSECONDS), check_operation_name(name))


async def sleep_until(when: datetime, *, name: str = "sleep") -> None:
    """Wait for a moment, given with a time zone. A moment in the past returns at once."""
    run = current_run("sleep_until")
    moment = _moment_of(when)
    if moment is None:
        raise BadArgument(
            f"sleep_until needs a datetime with a time zone, not {shown(when)}: without one it means another moment on "
            "another machine. Write for example datetime(2030, 1, 1, tzinfo=timezone.utc)."
        )
    await _sleep_to(run, min(moment, limits.NEVER), check_operation_name(name))


async def _sleep_to(run: Run, at: int, name: str) -> None:
    if at <= run.now:
        return
    future = RunFuture(loop=run.loop)

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    future.operation = run.ask_timer(name, at, wake, 3)
    await future


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment_of(when: Any) -> int | None:
    """Microseconds since 1970 of a datetime; None without a zone, also with one that does not know its offset."""
    try:
        offset = datetime.utcoffset(when) if an_instance(when, datetime) else None
        if offset is None:
            return None
        naive: datetime = datetime.replace(when, tzinfo=None)
        return (naive - _EPOCH.replace(tzinfo=None) - offset) // timedelta(microseconds=1)
    except Exception:  # the zone is code of the user
        return None


def now() -> datetime:
    """The run's own time, in UTC: the same on every replay. It moves when something is recorded."""
    return _EPOCH + timedelta(microseconds=current_run("now").now)


# -- chance ------------------------------------------------------------------------------------------------


def random() -> float:
    """A number in [0, 1), the same on every replay."""
    return current_run("random").draws.random()


def uuid4() -> UUID:
    """A random UUID, the same on every replay."""
    return current_run("uuid4").draws.uuid4()


# -- events ------------------------------------------------------------------------------------------------


#: What a class has itself, whatever its metaclass says.
_OWN_NAMES: Any = type.__dict__["__dict__"].__get__


def event_spec(type_: type) -> EventSpec:
    """The registration of an event class."""
    spec = _OWN_NAMES(type_).get("__perdure_event__") if an_instance(type_, type) else None
    if spec is None:
        name = qualified_name(type_) if an_instance(type_, type) else shown(type_)
        raise BadArgument(f"{name} is not an event. Decorate its class with @event.")
    return spec  # type: ignore[no-any-return]


def check_match(match: object) -> None:
    if match is not None and not callable(match):
        raise BadArgument(f"match is a function that takes an event and says whether to take it, not {shown(match)}.")


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
    operation, future = run.ask_receive(EventTypes({spec.name: spec for spec in specs}), name, caller_site())
    operation.match = match
    if seconds is None:
        return await future

    def give_up() -> None:
        if not future.done():
            run.withdraw(operation)
            operation.take_future()
            future.set_exception(TimeoutError(f"no {operation.types.names()} came within {shown(timeout)}"))

    timer = run.ask_timer("timeout", run.now + round(seconds * MICROSECONDS), give_up)
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
    await run.ask_send(target, spec.name, data, check_key(key), False, name, caller_site(), spec.policy)


async def cancel(run_id: str, reason: str = "", *, name: str = "cancel") -> bool:
    """Ask another run to cancel. False if there was nothing to cancel (unknown, or already ended)."""
    run = current_run("cancel")
    target = check_run_id(run_id, allow_children=True)
    data = check_reason(reason).encode()
    name = check_operation_name(name)
    return bool(await run.ask_send(target, "cancel", data, None, True, name, caller_site()))


_CONTROL = r"[\x00-\x1f\x7f]"


def check_run_id(run_id: str, *, allow_children: bool = False) -> str:
    """Refuse ids that could not be stored, shown or told apart."""
    rule = f"A run id is 1 to {limits.RUN_ID_BYTES_MAX} bytes of text without control characters or outer spaces"
    if type(run_id) is not str:
        given, run_id = run_id, text_of(run_id) or ""
        if not an_instance(given, str):
            raise BadArgument(f"a run id is text, not {class_name(type(given))}. {rule}.")
    if not run_id or run_id != run_id.strip() or run_id in {".", ".."}:
        raise BadArgument(f"{run_id!r} cannot be a run id. {rule}.")
    if re.search(_CONTROL, run_id):
        raise BadArgument(f"{run_id!r} holds a control character. {rule}.")
    try:
        size = len(run_id.encode())
    except UnicodeEncodeError:
        raise BadArgument(f"{run_id!r} holds half a character (a lone surrogate). {rule}.") from None
    if size > limits.RUN_ID_BYTES_MAX:
        raise BadArgument(f"this run id is {size} bytes long ({run_id[:40]!r}...). {rule}.")
    if "/" in run_id and not allow_children:
        raise BadArgument(f"{run_id!r} cannot be a run id: '/' marks the children of a run. {rule}.")
    return run_id


def check_key(key: str | None) -> str | None:
    """The key by which an event is told from its repeats."""
    if key is None:
        return None
    text = text_of(key)
    if text is None or not 0 < len(text) <= limits.RUN_ID_BYTES_MAX or "\0" in text:
        raise BadArgument(f"key is 1 to {limits.RUN_ID_BYTES_MAX} characters of text without NUL, not {shown(key)}.")
    return check_text(text, "key")


N = TypeVar("N", str, "str | None")


def check_text(text: N, what: str) -> N:
    """Refuse what no store can hold: the half of a character, which UTF-8 cannot carry. None passes."""
    if text is None:
        return text
    exact: Any = text_of(text)
    if exact is None:
        raise BadArgument(f"{what} is text, not {class_name(type(text))}.")
    try:
        exact.encode()
    except UnicodeEncodeError:
        raise BadArgument(f"{what} holds half a character (a lone surrogate): {shown(exact)}.") from None
    return exact  # type: ignore[no-any-return]


def check_operation_name(name: str) -> str:
    """The `name=` of a verb: it becomes part of a location, so it is text that can be stored."""
    return name if type(name) is str and name.isascii() else check_text(name, "the name of an operation")


def check_flag(value: bool, what: str) -> bool:
    """True or False, and nothing that only looks like it: it goes into records."""
    if type(value) is not bool:
        raise BadArgument(f"{what} is True or False, not {shown(value)}.")
    return value


def check_whole(value: int, what: str, minimum: int, maximum: int) -> int:
    """A whole number within bounds, exactly."""
    exact = whole_of(value)
    if exact is None or not minimum <= exact <= maximum:
        raise BadArgument(f"{what} is a whole number between {minimum} and {maximum}, not {shown(value)}.")
    return exact


def check_reason(reason: str) -> str:
    """Why somebody ends or pauses a run: a line for people, in a form that can be stored."""
    text = text_of(reason)
    if text is None or len(text) > limits.ERROR_MESSAGE_CHARS_MAX:
        raise BadArgument(
            f"a reason is text of at most {limits.ERROR_MESSAGE_CHARS_MAX} characters, not {shown(reason)}."
        )
    return written_out(text)


# -- children ----------------------------------------------------------------------------------------------


class ChildHandle(Generic[R], Awaitable[R]):
    """A child that was started. Await it, or `result()`, for its end; `cancel()` to end it early."""

    __slots__ = ("_operation", "_run")

    def __init__(self, run: Run, operation: ChildOperation) -> None:
        self._run = run
        self._operation = operation

    @property
    def id(self) -> str:
        return self._operation.child_id

    def __await__(self) -> Generator[Any, None, R]:
        return self.result().__await__()

    async def result(self) -> R:
        """Wait for the child's end. Raises `ChildFailed` or `ChildCancelled`.

        A wait that is cancelled cancels the child too, as awaiting a task does; use `asyncio.shield` to prevent it.
        """
        if self._operation.detached:
            raise BadArgument(f"child {self.id!r} was detached, so its parent does not hear of its end.")
        return await self._operation.future  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Ask the child to cancel; its end still arrives here."""
        self._run.cancel_child(self._operation, caller_site(), wanted=True)


async def run_child(spec: WorkflowSpec, data: bytes, site: str) -> Any:
    """`await other_workflow(...)`."""
    operation = current_run(spec.name).ask_child(spec, data, None, False, site)
    return await operation.future


async def start_child_run(
    spec: WorkflowSpec, data: bytes, child_id: str | None, detach: bool, site: str
) -> ChildHandle[Any]:
    """`await start_child(other_workflow(...))`."""
    run = current_run("start_child")
    if child_id is not None:
        child_id = check_run_id(child_id)
    operation = run.ask_child(spec, data, child_id, detach, site)
    operation.awaits_start = True
    await operation.started
    return ChildHandle(run, operation)


async def continue_run_as(spec: WorkflowSpec | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    """`await continue_as(...)`: the code stops here. Nothing after it runs; `finally` blocks do, as when a run leaves
    memory, and what they ask for is refused."""
    run = current_run("continue_as")
    target = spec if spec is not None else run.latest(run.spec.name)
    await continue_run_with(target, target.arguments.encode(args, kwargs))


async def continue_run_with(spec: WorkflowSpec, data: bytes) -> NoReturn:
    run = current_run("continue_as")
    run.continue_as(spec, data)
    await RunFuture(loop=run.loop)
    raise AssertionError("a run went on after continue_as")


# -- change of code ------------------------------------------------------------------------------------------


def patched(patch_id: str) -> bool:
    """Guard a change: True for runs that get here for the first time, False for those that were already past it.

    >>> if patched("reserve-first"):
    ...     await reserve_stock(order)
    """
    name = text_of(patch_id)
    if not name or "/" in name:
        raise BadArgument(f"patched() needs a short name without '/', not {shown(patch_id)}.")
    return current_run("patched").patched(check_text(name, "the name of a patch"))


OperationKind = Literal["step", "timer", "receive", "child", "send"]


def removed(name: str, kind: OperationKind = "step") -> None:
    """Say that an operation which stood here is gone. Runs that have it in their journal pass over it.

    It takes the place of the call, name and count included, so that what follows keeps its location. A pending step,
    sleep or receive is given up; a child that was started runs on by itself.

    >>> removed("notify")  # was: await notify(order)
    """
    exact = text_of(name)
    if not exact or "/" in exact or "#" in exact:
        raise BadArgument(
            "removed() takes the name of the operation as its call had it, such as 'charge' or 'sleep', not "
            f"{shown(name)}. "
            "Put it where the call stood; paths and numbers follow from that."
        )
    known: Any = text_of(kind)
    if known not in get_args(OperationKind):
        raise BadArgument(f"the kind of a removed operation is one of {get_args(OperationKind)}, not {shown(kind)}.")
    current_run("removed").removed(check_text(exact, "the name of an operation"), known)


def version() -> Version:
    """The version of the workflow that this run is pinned to; another one only after `continue_as`.

    A text that is compared as a version: `if version() >= "2.10":` is false for 2.9.
    """
    return Version(current_run("version").spec.version)


# -- what a run knows and shows --------------------------------------------------------------------------------


class Info(msgspec.Struct, frozen=True):
    """Facts about the run whose code is running."""

    id: str
    generation: int
    workflow: str
    version: Version
    parent: str | None
    is_replaying: bool
    cancel_requested: bool


def info() -> Info:
    """Facts about the current run. `is_replaying` is for metrics and prints, never for decisions."""
    run = current_run("info")
    return Info(
        run.id,
        run.generation,
        run.spec.name,
        Version(run.spec.version),
        run.parent_id,
        run.replaying,
        run.cancel_requested,
    )


def status(value: Any) -> None:
    """Show something about the run's progress to clients. Stored with the next commit."""
    current_run("status").set_status(value)


class State(MutableMapping[str, Any]):
    """A small durable dict per run, readable by clients and kept over `continue_as`. Stored with the next commit."""

    @staticmethod
    def _data() -> dict[str, Any]:
        run = current_run("state")
        run.is_plain = False
        return run.state

    def __getitem__(self, key: str) -> Any:
        exact = text_of(key)
        if exact is None:  # no other key was ever put in
            raise KeyError(shown(key))
        return self._data()[exact]

    def __setitem__(self, key: str, value: Any) -> None:
        exact = text_of(key)
        if exact is None:
            raise BadArgument(f"the keys of `state` are text, not {class_name(type(key))}.")
        key = exact
        current_run("state").check_state(key, value)
        self._data()[key] = value

    def __delitem__(self, key: str) -> None:
        del self._data()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data())

    def __len__(self) -> int:
        return len(self._data())

    def __repr__(self) -> str:
        run = running_run()
        return f"<state of {run.id!r}: {run.state!r}>" if run is not None else "<state: only in workflow code>"


state = State()


# The standard levels, by number: the kernel writes no logs itself.
DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


class RunLog:
    """A logger for workflow code: each line is written once, after the turn it belongs to is durable."""

    def debug(self, message: str, *args: Any) -> None:
        current_run("log").log(DEBUG, message, args)

    def info(self, message: str, *args: Any) -> None:
        current_run("log").log(INFO, message, args)

    def warning(self, message: str, *args: Any) -> None:
        current_run("log").log(WARNING, message, args)

    def error(self, message: str, *args: Any) -> None:
        current_run("log").log(ERROR, message, args)


log = RunLog()

single_operation_codes |= {
    function.__code__ for function in (sleep, sleep_until, receive, send, cancel, run_child, start_child_run)
}
