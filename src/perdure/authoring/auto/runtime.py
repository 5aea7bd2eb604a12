"""Answers the questions of a rewritten workflow while it runs.

A function that does something becomes an ordinary step, made from the function and kept with it: so its record, its
retries, its cancellation, its divergence and everything that people see of it are those of any step. It runs off the
workflow's loop, with copies of its arguments.

Over 450 lines, and still one thing: one method for each question that a rewritten function can ask.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any, Never, Self

from perdure.authoring.auto.kinds import Kind, is_async, kind_of, makes_a_generator
from perdure.authoring.auto.transform import RUNTIME
from perdure.authoring.choices import Chosen
from perdure.authoring.inspect import name_of
from perdure.authoring.options import StepOptions
from perdure.authoring.registry import check_name
from perdure.authoring.repeat import traverse
from perdure.authoring.step import Step
from perdure.authoring.workflow import Workflow
from perdure.errors import BadDefinition, Critical, LostChange, NotRewritable, NotStorable
from perdure.kernel.marks import noted
from perdure.kernel.shims import REAL, WATCHED
from perdure.kernel.sites import caller_site
from perdure.kernel.values.codec import codec_for, why_not_storable
from perdure.kernel.verbs import clock
from perdure.kernel.verbs.current import running_run

_ANY = codec_for(Any)
_SCALARS = frozenset({int, float, str, bool, bytes, type(None)})
#: Iterables whose order a process chooses.
_UNORDERED = (set, frozenset)


class _InPlace:
    """A call that belongs to the workflow, whatever is called."""

    def __init__(self, function: Any) -> None:
        self.function = function


class AutoRuntime:
    """One per auto workflow; knows no run, only where the workflow is written and how its calls are retried."""

    def __init__(self, workflow: str, file: str, lines: tuple[int, int], settings: StepOptions, *, plain: bool) -> None:
        self._workflow = workflow
        self._file = file
        self._lines = lines
        self._settings = settings
        self._plain = plain
        #: Made once for each function of a module; one that is made again and again is not kept.
        self._steps: dict[FunctionType, Step[..., Any]] = {}

    # -- what rewritten code asks --------------------------------------------------------------------------------

    async def value(self, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a call, recorded if it does anything. What is async is returned to be awaited."""
        in_place = isinstance(callee, _InPlace)
        if in_place:
            callee = callee.function
        function = _meant(callee)
        own = isinstance(function, (Step, Workflow))
        kind = Kind.INLINE if in_place else self._kind(function)
        if self._plain and (own or kind is not Kind.DURABLE):  # what gather, race and continue_as get is not awaited
            args = tuple([await _settle(argument) for argument in args])
            kwargs = {name: await _settle(argument) for name, argument in kwargs.items()}
        if kind is Kind.DURABLE:
            if function is traverse:
                args = (self.order(args[0]), *args[1:])
            return callee(*args, **kwargs)
        if _is_sleep(function):
            return await clock.sleep(*args, **kwargs)
        if kind is Kind.INLINE:
            given = None if in_place else self._given(function, args, kwargs)
            if given is None:
                return callee(*args, **kwargs)
            return await self._block_step(lambda: callee(*args, **kwargs), _step_name(given), Any)
        real = getattr(function, REAL, function)
        if kind is Kind.READ:
            return self._read(name_of(real), lambda: real(*args, **kwargs))
        asked = self._step(real, callee.settings if isinstance(callee, Chosen) else None)(*args, **kwargs)
        return asked if is_async(real) else await asked

    async def settled(self, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of a call, awaited if that is what it takes."""
        return await _settle(await self.value(callee, *args, **kwargs))

    async def defining(self, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What a call gives that is a decorator of a nested function or class, or a base of a class. That cannot be
        stored, and calling again what may do something would do it again."""
        function = _meant(callee)
        if isinstance(function, (Step, Workflow)) or self._kind(function) in (Kind.RECORDED, Kind.READ):
            self._refuse(
                f"calls {name_of(function)!r} to make a decorator or a base of something nested, which cannot be "
                "stored, so that each replay would call it again",
                "Define what is nested outside of the workflow. Only the arguments of such a call can be recorded.",
            )
        return await self.settled(callee, *args, **kwargs)

    def named(self, kind: str, callee: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
        """One of these questions, under the name of what it is about: Python names what is called when it cannot be
        called with what comes after `*` and `**`."""
        ask = getattr(self, kind)

        async def asked(*args: Any, **kwargs: Any) -> Any:
            return await ask(callee, *args, **kwargs)

        function = _meant(callee.function if isinstance(callee, _InPlace) else callee)
        asked.__qualname__ = getattr(function, "__qualname__", None) or name_of(function)
        asked.__module__ = getattr(function, "__module__", None) or "builtins"
        return asked

    def later(self, callee: Any) -> Any:
        """What to call instead, inside an expression that makes several things to be awaited."""
        function = _meant(callee)
        if isinstance(function, (Step, Workflow)) or self._kind(function) in (Kind.INLINE, Kind.DURABLE):
            return callee
        if not is_async(function):
            self._refuse(
                f"calls {name_of(function)!r} in an expression that also makes coroutines",
                "Write a `for` loop, in which each call is recorded by itself.",
            )
        return self._step(function, callee.settings if isinstance(callee, Chosen) else None)

    async def block(
        self,
        whole: Callable[..., Any],
        called: Callable[[], tuple[Any, ...]],
        later: Callable[..., Any],
        unknown: bool,
        lazy: bool,
        kind: str,
        *given: Any,
    ) -> Any:
        """An expression that calls functions again and again: one record for all of it, if they do anything."""
        functions = [_meant(one) for one in called()]
        kinds = [self._kind(one) for one in functions]
        doing = [one for one, kind in zip(functions, kinds, strict=True) if kind in (Kind.RECORDED, Kind.READ)]
        if Kind.DURABLE in kinds or any(is_async(one) for one in functions):
            for one in doing:
                self.later(one)  # refuses what cannot be awaited, before anything is made that would have to be
            made = later(*given)
            return await _settle_each(made) if self._plain else made
        if not doing and not unknown:
            return whole(*given)
        name = name_of(getattr(doing[0], REAL, doing[0])) if doing else "call"
        if lazy:
            self._refuse(
                f"makes a generator that calls {name!r} while it is read",
                "Write a list, which is recorded whole, or a `for` loop, in which each call is.",
            )
        return await self._block_step(whole, name, _result_of(kind, doing[0]) if kind and doing else Any, *given)

    def makes_coroutines(self, called: Callable[[], tuple[Any, ...]]) -> bool:
        """Whether an expression makes things to be awaited rather than values."""
        functions = [_meant(one) for one in called()]
        return any(is_async(one) or self._kind(one) is Kind.DURABLE for one in functions)

    def order(self, iterable: Any) -> Any:
        """What is read from first to last. The order of a set differs from process to process, so it is recorded."""
        if not isinstance(iterable, _UNORDERED) or len(iterable) < 2:
            return iterable
        if all(isinstance(one, asyncio.Future) for one in iterable):
            return iterable  # those of a run hash to the same number in every process
        own = _by_stored_value(iterable)  # what is read back is equal, but the code may change the ones it has
        return [own.get(value, value) for value in self._read("order", lambda: list(own))]

    def popped(self, owner: Any) -> Any:
        """`owner.pop()`, which takes any element of a set."""
        if type(owner) is not set or len(owner) < 2:
            return owner.pop()
        chosen = next(iter(self.order(owner)))
        owner.remove(chosen)
        return chosen

    def visible(self, seen: Any) -> Any:
        """What `locals()` and its like show: without the runtime itself."""
        return (
            {name: value for name, value in seen.items() if name != RUNTIME}
            if isinstance(seen, dict)
            else [name for name in seen if name != RUNTIME]
        )

    def held(self, callee: Any) -> Any:
        """What a variable of the workflow holds. A method of another variable's value is called in place, as it is
        when it is called as one: a replay that skipped it would miss what it did to the value."""
        method = callee
        while isinstance(method, functools.partial):
            method = method.func
        if not isinstance(method, MethodType) or isinstance(method.__self__, type):
            return callee
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == self._file:  # a comprehension may have its own
            if any(one is method.__self__ for one in frame.f_locals.values()):
                return _InPlace(callee)
            frame = frame.f_back
        return callee

    # -- steps -----------------------------------------------------------------------------------------------------

    def _kind(self, function: Any) -> Kind:
        return Kind.DURABLE if isinstance(function, (Step, Workflow)) else kind_of(function, self._file, self._lines)

    def _given(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function that does something, given to a library's function which will call it: `reduce(merge, pages)`."""
        if isinstance(function, type) or self._is_own(function):
            return None
        for one in (*args, *kwargs.values()):
            if type(one) not in _SCALARS and callable(one) and not isinstance(one, type):
                kind = self._kind(one)
                if kind is Kind.RECORDED:
                    return one
        return None

    def _is_own(self, function: Any) -> bool:
        code = getattr(function, "__code__", None)
        return code is not None and code.co_filename == self._file

    def _step(self, function: Any, settings: StepOptions | None) -> Step[..., Any]:
        if settings is None and isinstance(function, FunctionType) and "<" not in function.__qualname__:
            step = self._steps.get(function)
            if step is None:
                step = self._steps[function] = self._made(function, self._settings)
            return step
        return self._made(function, settings or self._settings)

    def _made(self, function: Any, settings: StepOptions) -> Step[..., Any]:
        if makes_a_generator(function):
            self._refuse(
                f"calls {name_of(function)!r}, which makes a generator: nothing that could be stored",
                "Return a list from it, or do what it is for inside a function of its own.",
            )
        name = _step_name(function)
        if settings.isolation == "process":
            return Step(function, name, settings)
        try:
            inspect.signature(function)
        except (TypeError, ValueError):
            function = _with_signature(function)
        watched = _watched_async(function) if is_async(function) else _watched(function)
        watched.__annotations__ = dict(getattr(function, "__annotations__", {}))
        owner = getattr(function, "__self__", None)
        if isinstance(owner, type) and watched.__annotations__.get("return") in (Self, "Self"):
            watched.__annotations__["return"] = owner
        step: Step[..., Any] = Step(watched, name, settings)
        watched.__dict__["__perdure_encode__"] = lambda args, kwargs: step.spec.arguments.encode(args, kwargs)
        return step

    async def _block_step(self, whole: Any, name: str, result: Any, *given: Any) -> Any:
        read = _Iterators(whole, given)

        def expression() -> Any:
            arguments = read.from_their_beginning()
            before = _captured(whole, arguments)
            made = whole(*arguments)
            if _captured(whole, arguments) != before:
                raise LostChange(
                    f"an expression of auto workflow {self._workflow!r} that is recorded whole, as it calls {name!r}, "
                    "also changes a variable of the workflow. A replay does not execute it, and would miss the change: "
                    "write a `for` loop, in which each call is recorded by itself."
                )
            return made

        expression.__annotations__["return"] = result
        try:
            return await Step(expression, check_name(f"[{name}]", "a step"), self._settings)()
        finally:
            read.close(self._workflow, name)

    def _read(self, name: str, read: Callable[[], Any]) -> Any:
        """A value of this process. It causes nothing, so it needs no commit before the code goes on."""
        run = running_run()
        what = f"what {name!r} gave in auto workflow {self._workflow!r}"
        if run is None:
            return read()
        return _ANY.decode(noted(run, name, lambda: _ANY.encode(read(), what)), what)

    def _refuse(self, what: str, instead: str) -> Never:
        place = caller_site(2) or os.path.basename(self._file)
        raise NotRewritable(f"auto workflow {self._workflow!r} {what} ({place}). {instead}")


def _meant(callee: Any) -> Any:
    """What is called in the end: without the options around it, and without a watch that tests put there."""
    function = callee.function if isinstance(callee, Chosen) else callee
    return function.__dict__.get(WATCHED, function) if isinstance(function, FunctionType) else function


def _by_stored_value(elements: Any) -> dict[Any, Any]:
    """The elements of a set, each under something that can be stored and tells it from the others."""
    try:
        _ANY.encode(list(elements), "the order of a set")
        return {one: one for one in elements}
    except NotStorable:
        if any(why_not_storable(type(one)) is not None for one in elements):
            raise
    return {codec_for(type(one)).encode(one, "the order of a set").decode(): one for one in elements}


def _is_sleep(function: Any) -> bool:
    return getattr(function, REAL, function) is time.sleep


def _step_name(function: Any) -> str:
    name = name_of(function)
    return "lambda" if name == "<lambda>" else name


async def _settle(value: Any) -> Any:
    """Await what waits to be; a task is under way by itself."""
    if isinstance(value, Awaitable) and not isinstance(value, asyncio.Task):
        return await value
    return value


async def _settle_each(made: Any) -> Any:
    match made:
        case list() | set() | tuple():
            return type(made)([await _settle(one) for one in made])
        case dict():
            return {key: await _settle(value) for key, value in made.items()}
        case _:
            return await _settle(made)


class _Iterators:
    """Iterators that an expression recorded whole goes through: variables of the workflow, or made for it.

    Each attempt reads them from where they were. Afterwards a variable can be read no more: a replay, which does not
    execute the expression, would find it where it was.
    """

    def __init__(self, whole: Any, given: tuple[Any, ...]) -> None:
        self._given = [CellType(one) for one in given]
        cells = [*self._given, *(whole.__closure__ or ())]
        self._cells = [cell for cell in cells if _holds_an_iterator(cell)]
        self._kept: list[Any] = [cell.cell_contents for cell in self._cells]

    def from_their_beginning(self) -> tuple[Any, ...]:
        for number, cell in enumerate(self._cells):
            cell.cell_contents, self._kept[number] = itertools.tee(self._kept[number])
        return tuple(cell.cell_contents for cell in self._given)

    def close(self, workflow: str, name: str) -> None:
        for cell in self._cells:
            cell.cell_contents = _spent(workflow, name)


def _holds_an_iterator(cell: CellType) -> bool:
    try:
        value = cell.cell_contents
    except ValueError:
        return False
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


def _spent(workflow: str, name: str) -> Iterator[Any]:
    raise LostChange(
        f"auto workflow {workflow!r} reads an iterator that an expression recorded whole, as it calls {name!r}, has "
        "read before. A replay does not execute that expression: make a list of it, and read that twice."
    )
    yield


# -- watching what recorded functions do to their arguments ----------------------------------------------------------


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the code of a step: a change of an argument, which would reach a copy only, is an error."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = _encoded(call, args, kwargs)
        result = function(*args, **kwargs)
        if before is not None and _encoded(call, args, kwargs) != before:
            raise _changed(function)
        if isinstance(result, Awaitable):
            if isinstance(result, Coroutine):
                result.close()
            raise Critical(f"{name_of(function)!r} returned something to be awaited: write it with `async def`.")
        return result

    return call


def _watched_async(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        before = _encoded(call, args, kwargs)
        result = await function(*args, **kwargs)
        if before is not None and _encoded(call, args, kwargs) != before:
            raise _changed(function)
        return result

    return call


def _encoded(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    if not kwargs and all(type(argument) in _SCALARS for argument in args):
        return None
    encoded: bytes = call.__dict__["__perdure_encode__"](args, kwargs)
    return encoded


def _changed(function: Any) -> LostChange:
    return LostChange(
        f"{name_of(function)!r} changed one of its arguments. Auto mode records what a function returns and gives it "
        "copies, so that the change would be lost: return the new value, and assign it in the workflow."
    )


def _captured(expression: Any, given: tuple[Any, ...]) -> list[bytes]:
    """The variables of the workflow that an expression sees, as far as they can be stored."""
    found: list[bytes] = []
    for cell in (*(expression.__closure__ or ()), *map(CellType, given)):
        try:
            value = cell.cell_contents
            if type(value) not in _SCALARS and not callable(value):
                found.append(_ANY.encode(value, "a variable"))
        except (ValueError, NotStorable):
            continue
    return found


def _with_signature(function: Any) -> Callable[..., Any]:
    """A function of C code may not say what it takes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name_of(function)
    call.__annotations__ = {}
    return call


def _result_of(kind: str, function: Any) -> Any:
    """The type of a list or set of what a function returns, if it says so."""
    try:
        returned = inspect.signature(function, eval_str=True).return_annotation
    except (TypeError, ValueError, NameError, BadDefinition):
        return Any
    if returned is inspect.Signature.empty or why_not_storable(returned) is not None:
        return Any
    container: Any = set if kind == "set" else list
    return container[returned]
