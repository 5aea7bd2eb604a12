"""Several things at once, and failure as data: `race`, `join`, `attempt`.

Branches are tasks of the run with paths of their own: `race/work/charge` is the step `charge` in the branch `work` of a
race. What decides is the order of records, so a replay decides the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import msgspec

from perdure.errors import (
    BadArgument,
    BranchCancelled,
    ChildCancelled,
    JoinFailed,
    NonRetryable,
    RaceFailed,
    Rollback,
    RunCancelled,
)
from perdure.given import class_name, shown, text_of
from perdure.kernel.eventloop.tasks import RunTask, single_operation_codes
from perdure.kernel.run import Run
from perdure.kernel.values.faults import attempts_of, summary
from perdure.kernel.verbs.current import current_run

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Winner(NamedTuple, Generic[T]):
    """Which branch of a race came first, and what it returned."""

    name: str
    value: T


ErrorKind = Literal["failed", "timeout", "critical", "rollback", "cancelled"]


class Ok(msgspec.Struct, Generic[T_co], frozen=True):
    """It worked."""

    value: T_co


class Err(msgspec.Struct, frozen=True):
    """It did not: what kind of failure, after how many attempts of the step that failed, and the error itself."""

    kind: ErrorKind
    attempts: int
    error: Exception


async def attempt(awaitable: Awaitable[T], /) -> Ok[T] | Err:
    """Failure as data: `Ok(value)`, or `Err(kind, attempts, error)` where it would have raised.

    A cancelled wait still raises `CancelledError`: that is about the caller, not about what was tried.

    >>> match await attempt(charge(order)):
    ...     case Ok(receipt): ...
    ...     case Err(kind="timeout"): ...
    """
    current_run("attempt")
    if not is_awaitable(awaitable):
        raise BadArgument(f"attempt() takes something to await, such as a call of a step, not {shown(awaitable)}.")
    try:
        return Ok(await awaitable)
    except Exception as error:
        return err_of(error)


def err_of(error: Exception) -> Err:
    """A failure as data."""
    match error:
        case TimeoutError():
            kind: ErrorKind = "timeout"
        case Rollback():
            kind = "rollback"
        case NonRetryable():
            kind = "critical"
        case ChildCancelled() | RunCancelled() | BranchCancelled():
            kind = "cancelled"
        case _:
            kind = "failed"
    return Err(kind, attempts_of(error), error)


async def race(
    name: str = "race", /, *, first: Literal["settled", "success"] = "settled", **branches: Awaitable[T]
) -> Winner[T]:
    """Run named branches at once; the first to settle wins: its value is returned, or its error raised.

    With `first="success"` a branch that fails only drops out; `RaceFailed` is raised when all have. If several come in
    at the same moment, the one given first wins. The others are cancelled, with their steps and children, and not
    waited for. A step that is being retried has not settled yet.

    >>> winner = await race(work=charge(order), timeout=sleep("5 minutes"))
    >>> if winner.name == "timeout": ...
    """
    run = current_run("race")
    if text_of(first) not in ("settled", "success"):
        _close({**branches, "first": first})
        raise BadArgument(f"first is 'settled' or 'success', not {shown(first)}; no branch can be called 'first'.")
    tasks = _begin(run, name, branches, "race")
    failed: dict[str, Exception] = {}
    try:
        while True:
            await asyncio.wait([tasks[one] for one in tasks if one not in failed], return_when=asyncio.FIRST_COMPLETED)
            for one, task in tasks.items():
                if one in failed or not task.done():
                    continue
                error = _error_of(one, task)
                if error is None:
                    return Winner(one, task.result())
                if first == "settled":
                    raise error
                failed[one] = error
            if len(failed) == len(tasks):
                raise RaceFailed(
                    f"none of the {len(tasks)} branches succeeded: {_list(failed)}.",
                    list(failed.values()),
                    list(failed),
                )
    except asyncio.CancelledError:
        await cancel_and_wait(tasks.values())
        raise
    finally:
        for one, task in tasks.items():
            if not task.done():
                if not task.cancelling():
                    task.cancel("another branch of the race came first")
                task.add_done_callback(_Loser(run, one))


@overload
async def join(name: str = "join", /, *, settle: Literal[False] = False, **branches: Awaitable[T]) -> dict[str, T]: ...
@overload
async def join(name: str = "join", /, *, settle: Literal[True], **branches: Awaitable[T]) -> dict[str, Ok[T] | Err]: ...
async def join(name: str = "join", /, *, settle: bool = False, **branches: Awaitable[Any]) -> Any:
    """Run named branches at once and wait for all of them: a dict of their results, in the order they were given.

    If any failed, raises one `JoinFailed` with all errors by name, after all have ended. With `settle=True` nothing is
    raised: each result is `Ok(value)` or `Err(kind, attempts, error)`.

    >>> found = await join(user=fetch_user(1), posts=fetch_posts(1))
    >>> found["user"]
    """
    run = current_run("join")
    if type(settle) is not bool:
        _close({**branches, "settle": settle})
        raise BadArgument(f"settle is True or False, not {shown(settle)}; no branch can be called 'settle'.")
    tasks = _begin(run, name, branches, "join")
    try:
        await asyncio.wait(tasks.values())
    except asyncio.CancelledError:
        await cancel_and_wait(tasks.values())
        raise
    errors = {one: error for one, task in tasks.items() if (error := _error_of(one, task)) is not None}
    if settle:
        return {one: err_of(errors[one]) if one in errors else Ok(task.result()) for one, task in tasks.items()}
    if errors:
        raise JoinFailed(
            f"{len(errors)} of {len(tasks)} branches failed: {_list(errors)}.", list(errors.values()), list(errors)
        )
    return {one: task.result() for one, task in tasks.items()}


# -- branches ----------------------------------------------------------------------------------------------


def _begin(run: Run, name: str, branches: Mapping[str, Awaitable[Any]], verb: str) -> dict[str, RunTask]:
    """A task for each branch, in the order given."""
    wrong = [one for one, value in branches.items() if not is_awaitable(value)]
    if not branches or wrong or not is_name(name) or not all(map(is_name, branches)):
        _close(branches)
        if not branches:
            raise BadArgument(f"{verb}() needs at least one branch: {verb}(work=some_step(...), ...).")
        if wrong:
            kind = class_name(type(branches[wrong[0]]))
            raise BadArgument(f"the branch {wrong[0]!r} of a {verb} is {kind}, which cannot be awaited.")
        raise BadArgument(f"the names of a {verb} and its branches are text without spaces, '/', '#' and '~'.")
    parent = run.loop.branch()
    path = parent.locate(name)
    return {one: run.loop.spawn(_coroutine(value), parent.below(f"{path}/{one}")) for one, value in branches.items()}


def is_awaitable(value: object) -> bool:
    """Whether this says that it can be awaited; an object that raises when it is looked at does not."""
    try:
        return isinstance(value, Awaitable)
    except Exception:
        return False


def is_name(name: object) -> bool:
    """Whether this can be part of a location."""
    return (
        type(name) is str
        and bool(name)
        and not any(char in "/#~" or char.isspace() or "\ud800" <= char <= "\udfff" for char in name)
    )


def _coroutine(value: Awaitable[Any]) -> Any:
    return value if asyncio.iscoroutine(value) else _wait_for(value)


async def _wait_for(value: Awaitable[Any]) -> Any:
    return await value


def _close(branches: Mapping[str, object]) -> None:
    """Coroutines that will not run after all must not complain that nobody awaited them."""
    for value in branches.values():
        if is_awaitable(value) and asyncio.iscoroutine(value):
            value.close()


async def cancel_and_wait(tasks: Any) -> None:
    """The waiter was cancelled: so are the branches, and their cleanup is waited for."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what counts


def _error_of(name: str, task: RunTask) -> Exception | None:
    """Why a branch that has ended failed, if it did."""
    if task.cancelled():
        return BranchCancelled(f"branch {name!r} ended by a CancelledError that did not come from outside.")
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error


class _Loser:
    """Called when a cancelled branch of a race has ended. Only an error on its way out is worth a word."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name

    def __call__(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._run.complain(
                f"the branch {self._name!r} of a race in run {self._run.id!r} lost, was cancelled and raised "
                f"{summary(error)}"
            )


def _list(errors: Mapping[str, Exception]) -> str:
    shown = [f"{name} ({class_name(type(error))})" for name, error in errors.items()]
    return ", ".join(shown if len(shown) <= 10 else [*shown[:10], f"{len(shown) - 10} more"])


def single_operations(*functions: Any) -> Sequence[Any]:
    """A task made of one of these lends it its path: `gather(race(...), race(...))` gives `race` and `race#2`."""
    for function in functions:
        single_operation_codes.add(function.__code__)
    return functions


single_operations(race, join)
