"""`loop` and `traverse`: the verbs that repeat a function of the user's, and so have to know its types."""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import os
import sys
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import CodeType
from typing import Any, TypeVar, overload

from perdure.authoring.inspect import caller_locals, name_of
from perdure.authoring.options import StepOptions
from perdure.authoring.step import Step
from perdure.authoring.workflow import Workflow
from perdure.errors import BadArgument, Critical, UnstorableType
from perdure.given import an_instance, class_name, shown, whole_of
from perdure.kernel.eventloop.tasks import RunTask
from perdure.kernel.iterations import Break, run_loop
from perdure.kernel.run import Run
from perdure.kernel.values import ValueCodec, codec_for, why_not_storable
from perdure.kernel.verbs.compose import cancel_and_wait, is_name, single_operations
from perdure.kernel.verbs.current import current_run
from perdure.limits import LOOP_ITERATIONS_KEPT

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")
T = TypeVar("T")

_NO_STATE: Any = object()


@overload
def loop(
    body: Callable[[S], Awaitable[S | Break[T]]],
    state: S,
    *,
    keep: int = ...,
    commit_every: int = 1,
    name: str = "loop",
) -> Coroutine[Any, Any, T]: ...
@overload
def loop(
    body: Callable[[], Awaitable[Break[T] | None]], *, keep: int = ..., commit_every: int = 1, name: str = "loop"
) -> Coroutine[Any, Any, T]: ...
def loop(
    body: Callable[..., Awaitable[Any]],
    state: Any = _NO_STATE,
    *,
    keep: int = LOOP_ITERATIONS_KEPT,
    commit_every: int = 1,
    name: str = "loop",
) -> Any:
    """Repeat `body` with durable state: it gets the state, and returns the next one or `Break(result)`.

    The state is stored when an iteration ends (with `commit_every=n` every n-th time), and the records of the
    iterations before the last `keep` are deleted in the same commit: the journal stays small however long the loop
    runs, and a restart repeats no finished iteration. So an iteration hands on only what it returns, `state` and
    `status`; what it did to other variables is gone after a restart. Tasks and children that it leaves running are
    cancelled.

    >>> async def page(cursor: int) -> int | Break[str]:
    ...     following = await fetch(cursor)
    ...     return Break("done") if following is None else following
    >>> await loop(page, 0)
    """
    run = current_run("loop")
    if not callable(body):
        raise BadArgument(f"the body of a loop is an async function, not {class_name(type(body))}.")
    _check_count("keep", keep, 0)
    _check_count("commit_every", commit_every, 1)
    if not is_name(name):
        raise BadArgument(f"the name of a loop is text without spaces, '/', '#' and '~', not {shown(name)}.")
    _check_body(getattr(body, "__code__", None), name)
    first = () if state is _NO_STATE else (state,)
    return _loop(run, name, body, first, _codec(body) if first else codec_for(Any), keep, commit_every)


async def _loop(
    run: Run, name: str, body: Any, first: tuple[Any, ...], codec: ValueCodec[Any], keep: int, commit_every: int
) -> Any:
    return await run_loop(run, name, body, first, codec, keep, commit_every)


@functools.lru_cache(maxsize=1_000)
def _check_body(code: CodeType | None, name: str) -> None:
    """Refuse a body that hands something on by `nonlocal`: it works until the first restart."""
    if code is None or not code.co_freevars:
        return
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars:
            raise BadArgument(
                f"the body of loop {name!r} assigns to {instruction.argval!r} of the function around it "
                f"({os.path.basename(code.co_filename)}:{code.co_firstlineno}). A finished iteration is not repeated "
                "after a restart, so that would be lost: make it part of the state."
            )


def _check_count(what: str, value: int, minimum: int) -> None:
    exact = whole_of(value)
    if exact is None or exact < minimum:
        raise BadArgument(f"{what} is a whole number of at least {minimum}, not {shown(value)}.")


def _codec(body: Callable[..., Any]) -> ValueCodec[Any]:
    """How the state is stored: as the annotation of the body's first parameter says, if it has one."""
    annotation = _first_annotation(body)
    reason = why_not_storable(annotation)
    if reason is not None:
        raise UnstorableType(f"the state of the loop over {name_of(body)!r} cannot be stored: {reason}.")
    return codec_for(annotation)


def _first_annotation(body: Any) -> Any:
    function = body.function if isinstance(body, (Step, Workflow)) else body
    try:
        parameters = list(inspect.signature(function).parameters.values())
        annotation = parameters[0].annotation if parameters else inspect.Parameter.empty
        if annotation is inspect.Parameter.empty:
            return Any
        if not isinstance(annotation, str):
            return annotation
        # Written as text: looked up where the function is defined, which may be inside another one.
        module = sys.modules.get(function.__module__)
        names = {**(vars(module) if module else {}), **(caller_locals() or {})}
        return typing.get_type_hints(function, names, None).get(parameters[0].name, Any)
    except (TypeError, ValueError, NameError, AttributeError):
        return Any


# -- traverse ----------------------------------------------------------------------------------------------


@overload
async def traverse(
    items: Iterable[A], function: Callable[[A], Awaitable[B]], /, *, limit: int = 1, name: str = "traverse"
) -> list[B]: ...
@overload
async def traverse(
    items: Iterable[A], function: Callable[[A], B], /, *, limit: int = 1, name: str = "traverse"
) -> list[B]: ...
async def traverse(
    items: Iterable[Any], function: Callable[[Any], Any], /, *, limit: int = 1, name: str = "traverse"
) -> list[Any]:
    """Call `function` for each item and return the results in the order of the items; each call is recorded by itself.

    `function` is a step, a workflow, another async function, or a lambda that calls one. A plain function becomes a
    step, so that it is not called again once its result is stored. `limit` calls run at once; the first that fails
    cancels the others and its error is raised.

    >>> receipts = await traverse(orders, charge, limit=10)
    """
    run = current_run("traverse")
    _check_count("limit", limit, 1)
    if not callable(function):
        raise BadArgument(f"traverse needs a function of one item, not {class_name(type(function))}.")
    if not is_name(name):
        raise BadArgument(f"the name of a traverse is text without spaces, '/', '#' and '~', not {shown(name)}.")
    call = _recorded(function, name)
    parent = run.loop.branch()
    path = parent.locate(name)
    running: dict[RunTask, int] = {}
    results: dict[int, Any] = {}
    try:
        for number, item in enumerate(items, 1):
            if len(running) >= limit:
                await _collect(running, results)
            running[run.loop.spawn(_call(call, item), parent.below(f"{path}~{number}"))] = number
        while running:
            await _collect(running, results)
    except BaseException as error:
        if isinstance(error, (Exception, asyncio.CancelledError)):
            await cancel_and_wait(running)
        raise
    return [results[number] for number in sorted(results)]


async def _collect(running: dict[RunTask, int], results: dict[int, Any]) -> None:
    """Wait for one of the calls, and take what has ended, in the order of the items."""
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in [one for one in running if one.done()]:
        results[running.pop(task)] = task.result()


async def _call(function: Callable[[Any], Awaitable[Any]], item: Any) -> Any:
    return await function(item)


def _recorded(function: Any, name: str) -> Callable[[Any], Awaitable[Any]]:
    if an_instance(function, Step, Workflow) or _is_async(function):
        return function  # type: ignore[no-any-return]
    own = name_of(function)
    if own == "<lambda>":  # usually short for a call of a step: `lambda order: charge(order, 5)`
        return _lambda(function)
    return Step(_plain(function), own if is_name(own) else name, StepOptions())


def _lambda(function: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    async def call(item: Any) -> Any:
        asked = function(item)
        if not isinstance(asked, Awaitable):
            raise BadArgument(
                f"the lambda given to traverse returned {class_name(type(asked))}, which cannot be awaited, so nothing "
                "was recorded. Call a step in it, or give traverse a function made with `def`."
            )
        return await asked

    return call


def _plain(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function as the code of a step. One that makes a coroutine would lose it there."""

    @functools.wraps(function)
    def call(item: Any) -> Any:
        result = function(item)
        if isinstance(result, Awaitable):
            if isinstance(result, Coroutine):
                result.close()
            raise Critical(f"{name_of(function)!r} returned something to be awaited: write it with `async def`.")
        return result

    return call


def _is_async(function: Any) -> bool:
    inner: Any = getattr(function, "func", function)  # of a partial
    return (
        inspect.iscoroutinefunction(inner)
        or isinstance(inner, (Step, Workflow))
        or (
            inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004
        )
        or isinstance(getattr(inner, "__self__", None), (Step, Workflow))
    )


single_operations(_loop, traverse)
