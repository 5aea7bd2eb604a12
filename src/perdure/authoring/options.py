"""The options of a step: what may be written (`Options`), and what that comes to once it is checked (`StepOptions`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypedDict

import msgspec

from perdure.errors import BadDefinition
from perdure.given import an_instance, is_a, number_of, shown, text_of, whole_of
from perdure.kernel.retry import RetryOn, RetryPolicy
from perdure.kernel.verbs.durations import Duration, seconds_of

Isolation = Literal["none", "process"]


class FailedAttempt(msgspec.Struct, frozen=True):
    """What an `on_retry` hook gets to see. Called once for each failed attempt, after it is recorded."""

    run_id: str
    location: str
    attempt: int
    error: BaseException
    next_at: int | None  # microseconds since 1970; None when this was the last attempt


class CallOptions(TypedDict, total=False):
    """What steps and the recorded calls of auto mode take. None, where a default exists, means that default.

    See `perdure.step` for what each does.
    """

    max_attempts: int | None
    initial_delay: Duration | None
    factor: float | None
    max_delay: Duration | None
    jitter: float | None
    timeout: Duration | None
    queue_timeout: Duration | None
    total_timeout: Duration | None
    retry_on: type[BaseException] | RetryOn | None
    concurrency: int | None
    isolation: Isolation | None
    on_retry: Callable[[FailedAttempt], object] | None


class Options(CallOptions, total=False):
    """Everything `@step(...)` and `.options(...)` take."""

    name: str | None
    undo: Callable[[Any], Awaitable[object]] | None


class StepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one step, checked and complete."""

    policy: RetryPolicy = RetryPolicy()
    concurrency: int | None = None
    isolation: Isolation = "none"
    on_retry: Callable[[FailedAttempt], object] | None = None
    undo: Callable[[Any], Awaitable[object]] | None = None


def checked(base: StepOptions, given: Mapping[str, Any]) -> StepOptions:
    """`base` with what was given. Raises `BadDefinition` where options are written, not when the step first fails."""
    unknown = given.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"a step has no option {sorted(unknown)[0]!r}. Known: {', '.join(Options.__annotations__)}.")
    # For all but max_attempts None is the same as not given; there it means "until it works".
    present = {name: value for name, value in given.items() if value is not None}
    policy = _policy(present)
    if "max_attempts" in given:
        policy["max_attempts"] = _attempts(given["max_attempts"])
    changes: dict[str, Any] = {"policy": msgspec.structs.replace(base.policy, **policy)}
    checks = (("concurrency", _concurrency), ("isolation", _isolation), ("on_retry", _hook), ("undo", _undo))
    for name, check in checks:
        if name in present:
            changes[name] = check(present[name])
    return msgspec.structs.replace(base, **changes)


def _policy(present: Mapping[str, Any]) -> dict[str, Any]:
    policy: dict[str, Any] = {}
    for name in ("initial_delay", "max_delay", "timeout", "queue_timeout", "total_timeout"):
        if name in present:
            policy[name] = seconds_of(present[name], name)
    for name in ("factor", "jitter"):
        if name in present:
            policy[name] = _number(name, present[name])
    if "retry_on" in present:
        policy["retry_on"] = _retry_on(present["retry_on"])
    return policy


def _attempts(value: Any) -> int | None:
    exact = whole_of(value)
    if value is not None and exact is None:
        raise BadDefinition(f"max_attempts is a whole number or None, not {shown(value)}.")
    return exact


def _number(name: str, value: Any) -> float:
    number = float(value) if type(value) is bool else number_of(value)
    if number is None:
        raise BadDefinition(f"{name} is a number, not {shown(value)}.")
    return number


def _retry_on(value: Any) -> Any:
    types = (value,) if an_instance(value, type) else value
    is_tuple = an_instance(types, tuple)
    given = tuple(tuple.__iter__(types)) if is_tuple else ()
    if given and all(an_instance(t, type) and is_a(t, (BaseException,)) for t in given):
        return given
    if not is_tuple and callable(types):
        return types
    raise BadDefinition(
        f"retry_on is an exception class, a tuple of them, or a function of the exception, not {shown(value)}."
    )


def _concurrency(value: Any) -> int:
    exact = whole_of(value)
    if exact is None or exact < 1:
        raise BadDefinition(f"concurrency is a whole number of at least 1, not {shown(value)}.")
    return exact


def _isolation(value: Any) -> Any:
    chosen = text_of(value)
    if chosen not in ("none", "process"):
        raise BadDefinition(f"isolation is 'none' or 'process', not {shown(value)}.")
    return chosen


def _hook(value: Any) -> Any:
    if not callable(value):
        raise BadDefinition(f"on_retry is a function, async or not, that takes a FailedAttempt, not {shown(value)}.")
    return value


def _undo(value: Any) -> Any:
    if not callable(value):
        raise BadDefinition(f"undo is a step or another async function of this step's output, not {shown(value)}.")
    return value
