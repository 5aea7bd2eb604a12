"""`@step`: a unit of outside work whose outcome is recorded once; and what its code may know (`current_step`)."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from perdure.authoring.inspect import Signature, defined, name_of
from perdure.authoring.options import Options, StepOptions, checked
from perdure.authoring.registry import check_name
from perdure.errors import BadDefinition, NotInStep
from perdure.given import class_name
from perdure.kernel.definitions import StepSpec
from perdure.kernel.eventloop.loop import RunLoop
from perdure.kernel.values.digests import blake
from perdure.kernel.verbs.steps import StepCall

P = ParamSpec("P")
R = TypeVar("R")

_get_running_loop = asyncio.events._get_running_loop


class Step(Generic[P, R]):
    """A decorated step. Awaited in a workflow it is recorded; called outside one it just runs."""

    __slots__ = ("__dict__", "__weakref__", "_call")

    def __init__(self, function: Callable[..., Any], name: str | None, options: StepOptions) -> None:
        self.function = function
        self.name = check_name(name or name_of(function), "a step")
        self.settings = options
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # an object whose __call__ is async
        )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadDefinition(f"step {self.name!r} is a generator. Return a list, or write one step for each item.")
        if options.isolation == "process":
            _check_isolatable(function, self.name)
        self._signature = Signature(function, f"step {self.name!r}")
        #: How workflow code calls it; made by the first call.
        self._call: StepCall | None = None
        functools.update_wrapper(self, function, updated=())

    @functools.cached_property
    def spec(self) -> StepSpec:
        settings, policy = self.settings, self.settings.policy
        timeouts = any(limit is not None for limit in (policy.timeout, policy.queue_timeout, policy.total_timeout))
        return StepSpec(
            name=self.name,
            function=self.function,
            is_async=self.is_async,
            policy=policy,
            arguments=self._signature.arguments(),
            result=self._signature.result(),
            what=f"the result of step {self.name!r}",
            concurrency=settings.concurrency,
            isolation=settings.isolation,
            on_retry=settings.on_retry,
            is_bare=self.is_async and settings.isolation == "none" and not timeouts,
            undo=settings.undo,
        )

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R]:
        loop: Any = _get_running_loop()
        run: Any = loop.owner if type(loop) is RunLoop else None  # `running_run`, without the call
        if run is None:
            return self._just_run(args, kwargs)
        return (self._call or self._prepare())(run, args, kwargs)

    def _prepare(self) -> StepCall:
        self._call = call = StepCall(self.spec, self.name)
        return call

    async def _just_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.is_async:
            return await self.function(*args, **kwargs)
        return await asyncio.to_thread(self.function, *args, **kwargs)

    def options(self, **options: Unpack[Options]) -> Step[P, R]:
        """The same step with other options, for one call: `charge.options(timeout="5 s")(order)`."""
        changed = checked(self.settings, options)
        changed_step: Step[P, R] = Step.__new__(Step)
        changed_step.__dict__.update({key: value for key, value in self.__dict__.items() if key != "spec"})
        changed_step._call = None
        changed_step.settings = changed
        if changed.isolation == "process":
            _check_isolatable(self.function, self.name)
        if (name := options.get("name")) is not None:
            changed_step.name = check_name(name, "a step")
        return changed_step

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        """As a method: the object is the step's first argument, so its class must be storable."""
        method: Callable[..., Any] = self.__call__
        return self if instance is None else functools.partial(method, instance)

    def __repr__(self) -> str:
        return f"<step {self.name!r} of {self._signature.place}>"


def _check_isolatable(function: Any, name: str) -> None:
    qualname = getattr(function, "__qualname__", "")
    if not qualname or "<" in qualname or getattr(function, "__self__", None) is not None:
        raise BadDefinition(
            f"step {name!r} cannot have isolation='process': the other process finds it by name, so it must be a "
            "function at the top level of a module."
        )
    if function.__module__ == "__main__" and not os.path.exists(
        getattr(sys.modules["__main__"], "__file__", None) or ""
    ):
        raise BadDefinition(
            f"step {name!r} cannot have isolation='process': it is defined in a notebook or an interactive session, "
            "which another process cannot import. Put it into a module and import it from there."
        )


class StepDecorator(Protocol):
    """What `@step(...)` with options returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(**options: Unpack[Options]) -> StepDecorator: ...
def step(function: Any = None, /, **options: Unpack[Options]) -> Any:
    """Make a function a step: its outcome is recorded once, its failures are retried, durably.

    Works on `async def` (runs on the event loop), `def` (runs in a thread), bound methods and callable objects.

    - `max_attempts` (3) includes the first; None: until it works.
    - `initial_delay` (0.1 s), `factor` (2), `max_delay` (30 s), `jitter` (0.1): the wait between attempts.
    - `timeout`: for each attempt, from the start of its code; async code is really cancelled. `queue_timeout`: for the
      wait before that, for a thread, a process or a place. `total_timeout`: over all of them, waits included.
    - `retry_on`: exception types, or a function of the exception. `NonRetryable` and `RetryAfter` decide case by case.
    - `concurrency`: attempts of this step running at once in one worker.
    - `isolation="process"`: each attempt in another process, which it has to itself; killed on timeout or cancel.
    - `on_retry`: called once for each failed attempt, after it is recorded; may be async.
    - `undo`: a step or another async function of the output, which undoes this one when the saga around it fails.

    >>> @step(max_attempts=5, timeout="10 s")
    ... async def charge(order_id: str, cents: int) -> str: ...
    """
    settings = checked(StepOptions(), options)

    def decorate(target: Callable[..., Any]) -> Step[..., Any]:
        if not callable(target):
            raise BadDefinition(f"@step needs a function or a callable object, not {class_name(type(target))}.")
        return defined("what @step decorates", lambda: Step(target, options.get("name"), settings))

    return decorate if function is None else decorate(function)


# -- inside a step -----------------------------------------------------------------------------------------


class StepContext:
    """What the code of a step may know about itself."""

    __slots__ = ("_cancelled", "_origin", "attempt", "location", "name", "progress", "run_id")

    def __init__(self, run_id: str, location: str, name: str, attempt: int, origin: str) -> None:
        self.run_id = run_id
        self.location = location
        self.name = name
        #: 1 for the first try.
        self.attempt = attempt
        self._origin = origin
        #: The last value given to `heartbeat`.
        self.progress: Any = None
        self._cancelled = False

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this operation, also after a crash, and different for every other operation.
        Give it to services that deduplicate."""
        return blake(f"{self.run_id}\0{self._origin}\0{self.location}".encode(), size=16).hex()

    @property
    def origin(self) -> str:
        """Tells generations and recreated runs of one id apart."""
        return self._origin

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted. Code in a thread should look now and then."""
        return self._cancelled

    def heartbeat(self, progress: Any = None) -> None:
        """Say that the step is alive, and how far it is. Raises `CancelledError` once its result is not wanted."""
        self.progress = progress
        if self._cancelled:
            raise asyncio.CancelledError(f"step {self.location!r} was cancelled")

    def mark_cancelled(self) -> None:
        self._cancelled = True

    @property
    def context(self) -> StepContext:
        return self


class HasContext(Protocol):
    """What the engine puts where a step's code will look: something that can say what the code may know."""

    @property
    def context(self) -> StepContext: ...


step_context: ContextVar[HasContext] = ContextVar("perdure_step")


def current_step() -> StepContext:
    """Facts about the step whose code is running. Raises `NotInStep` elsewhere."""
    holder = step_context.get(None)
    if holder is None:
        raise NotInStep("current_step() only works in the code of a step that a workflow runs.")
    return holder.context
