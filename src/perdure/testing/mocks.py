"""Mocks: what a test puts in the place of a step's code. The rest of the step stays: encoding, retries, timeouts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeAlias

from perdure.authoring.step import Step
from perdure.engine.attempts import Attempt
from perdure.errors import BadArgument, NonRetryable, StepTimeout
from perdure.kernel.verbs.durations import Duration, seconds_of


class _Unset:
    def __repr__(self) -> str:
        return "<not given>"


UNSET = _Unset()


class Call(NamedTuple):
    """One attempt that a mock answered."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    run_id: str
    location: str
    attempt: int


class Mock:
    """Answers attempts of one step; `calls` lists them, in order."""

    def __init__(self, name: str, answer: Callable[..., Coroutine[Any, Any, Any]], delay: float) -> None:
        self.name = name
        self.calls: list[Call] = []
        self._answer = answer
        self._delay = delay

    async def run(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = attempt.context
        self.calls.append(Call(args, kwargs, context.run_id, context.location, context.attempt))
        if self._delay:
            await asyncio.sleep(self._delay)
        return await self._answer(attempt, args, kwargs)

    def __repr__(self) -> str:
        return f"<mock of {self.name!r}, called {len(self.calls)} times>"


#: A step, its name, or the location of one call (`"charge#2"`, `"user/get"`).
Target: TypeAlias = Step[..., Any] | str


def make_mock(
    target: Target,
    result: Any,
    error: BaseException | type[BaseException] | None,
    sequence: Sequence[Any] | None,
    call: Callable[..., Any] | None,
    timeout: bool,
    delay: Duration,
) -> Mock:
    given = [result is not UNSET, error is not None, sequence is not None, call is not None, timeout]
    name = name_of(target)
    if sum(given) > 1:
        raise BadArgument(f"the mock of {name!r} takes one of result, error, sequence, call and timeout.")
    if sequence is not None:
        answer = _in_turn(name, list(sequence))
    elif call is not None:
        answer = _calling(call)
    elif timeout:
        answer = _answering(TIMEOUT)
    elif error is not None:
        answer = _answering(error)
    else:
        answer = _answering(None if isinstance(result, _Unset) else result)
    return Mock(name, answer, seconds_of(delay))


def name_of(target: Target) -> str:
    if isinstance(target, str):
        return target
    if not isinstance(target, Step):
        raise BadArgument(f"mock needs a step, its name or a location, not {type(target).__name__}.")
    return target.name


class _Timeout:
    """In a mock's `sequence`: this attempt takes longer than it may."""

    def __repr__(self) -> str:
        return "TIMEOUT"


TIMEOUT = _Timeout()


def _settle(value: Any, attempt: Attempt) -> Any:
    if isinstance(value, _Timeout):
        raise StepTimeout(
            f"attempt {attempt.number} of step {attempt.operation.location!r} took too long (the test said so)."
        )
    if isinstance(value, BaseException) or (inspect.isclass(value) and issubclass(value, BaseException)):
        raise value
    return value


def _answering(value: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def answer(attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _settle(value, attempt)

    return answer


def _in_turn(name: str, values: list[Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    # An attempt that runs again after a crash gets the same answer: the outside world did not die.
    taken: dict[tuple[str, str, int], int] = {}

    async def answer(attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number = taken.setdefault((attempt.context.run_id, attempt.context.location, attempt.number), len(taken))
        if number < len(values):
            return _settle(values[number], attempt)
        raise NonRetryable(f"the mock of {name!r} has a sequence of {len(values)}, and was called once more.")

    return answer


def _calling(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def answer(attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = function(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    return answer


class Mocks:
    """All mocks of one engine: the most particular one answers (a location before a step before a name)."""

    def __init__(self) -> None:
        self._by_text: dict[str, Mock] = {}
        self._by_function: dict[Any, Mock] = {}
        #: Whether a test's `setup` has been called for these.
        self.is_set_up = False

    def add(self, target: Target, mock: Mock) -> None:
        if isinstance(target, str):
            self._by_text[target] = mock
        else:
            self._by_function[target.function] = mock

    def find(self, attempt: Attempt) -> Mock | None:
        operation = attempt.operation
        return (
            self._by_text.get(operation.location)
            or self._by_function.get(operation.spec.function)
            or self._by_text.get(operation.spec.name)
        )
