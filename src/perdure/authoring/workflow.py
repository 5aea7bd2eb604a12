"""`@workflow`: a durable async function. Calling it describes a run (`Invocation`); something else runs it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator
from types import CodeType
from typing import Any, Generic, Literal, NoReturn, ParamSpec, Protocol, TypeVar, Unpack, overload

from perdure.authoring.choices import auto_settings
from perdure.authoring.globals import with_stand_ins
from perdure.authoring.inspect import Signature, caller_locals, defined, name_of, place_of
from perdure.authoring.options import CallOptions, StepOptions
from perdure.authoring.registry import Place, check_name, registry
from perdure.errors import BadArgument, BadDefinition, NotInWorkflow, written_out
from perdure.given import an_instance, class_name, shown, text_of
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.sites import caller_site
from perdure.kernel.verbs import checks, runs
from perdure.kernel.verbs.current import running_run
from perdure.kernel.verbs.durations import Duration, positive_seconds_of
from perdure.kernel.verbs.runs import ChildHandle

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Invocation(Coroutine[Any, Any, R_co]):
    """A workflow with its arguments, not yet running.

    `await engine.start(invocation)` runs it; awaited inside another workflow it becomes a child.
    """

    __slots__ = ("_child", "data", "site", "spec")

    def __init__(self, spec: WorkflowSpec, data: bytes, site: str) -> None:
        self.spec = spec
        self.data = data
        self.site = site
        self._child: Coroutine[Any, Any, R_co] | None = None

    # asyncio takes it for a coroutine: gather, create_task, TaskGroup and wait_for all accept it.

    @property
    def cr_code(self) -> CodeType:
        return runs.run_child.__code__

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.spec.name

    def _coroutine(self) -> Coroutine[Any, Any, R_co]:
        if self._child is None:
            if running_run() is None:
                raise NotInWorkflow(
                    f"workflow {self.spec.name!r} was awaited outside a workflow. Start it: "
                    f"`await engine.start({self.spec.name}(...))`, or `perdure.run({self.spec.name}(...))` in a script."
                )
            self._child = runs.run_child(self.spec, self.data, self.site)
        return self._child

    def __await__(self) -> Generator[Any, Any, R_co]:
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(self, *args: Any) -> Any:
        return self._coroutine().throw(*args)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()

    def __repr__(self) -> str:
        return f"<invocation of workflow {self.spec.name!r} version {self.spec.version!r}>"


class Workflow(Generic[P, R]):
    """A decorated workflow. `workflow(...)` checks the arguments and returns an `Invocation`."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, R]],
        name: str | None,
        version: str,
        cancel_grace: Duration | None,
        auto: StepOptions | None = None,
    ) -> None:
        what = f"@workflow function {name_of(function)!r}"
        if inspect.isfunction(function):
            what += f" ({place_of(function)})"
        if inspect.isasyncgenfunction(function):
            raise BadDefinition(
                f"{what} is an async generator, as it contains `yield`; a workflow returns one value at its end: "
                "collect a list and return it, or `publish` each item."
            )
        if not inspect.isfunction(function) or (auto is None and not inspect.iscoroutinefunction(function)):
            if inspect.isfunction(function):
                what = f"{what} is a plain `def`, which takes `@workflow(auto=True)`; without it, it"
            raise BadDefinition(f"{what} must be an `async def` function; not a method, a partial or another object.")
        self.function = function
        self.name = check_name(name or name_of(function), "a workflow")
        self.version = _check_version(version)
        self._grace = None if cancel_grace is None else positive_seconds_of(cancel_grace, "cancel_grace")
        self._signature = Signature(function, f"workflow {self.name!r}")
        #: What a run executes: the function itself, or in auto mode the one that was made from its source.
        self._executed: Callable[..., Any] = function
        self.is_auto = auto is not None
        if auto is not None:
            from perdure.authoring.auto.build import made_durable  # only for those who use it

            self._executed = made_durable(function, auto, caller_locals())
        functools.update_wrapper(self, function, updated=())
        definition: Any = self  # its spec is a cached property, which a protocol's read-only one does not admit
        registry.add_workflow(definition, self._signature.place)

    @property
    def place(self) -> Place:
        """Where its function is defined."""
        return self._signature.place

    @functools.cached_property
    def spec(self) -> WorkflowSpec:
        return WorkflowSpec(
            name=self.name,
            version=self.version,
            function=with_stand_ins(self._executed),
            arguments=self._signature.arguments(with_defaults=True),
            result=self._signature.result(),
            cancel_grace=self._grace,
        )

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Invocation[R]:
        # Where it is asked for matters to a workflow that awaits it; outside of one nobody looks.
        site = caller_site(0) if running_run() is not None else ""
        return Invocation(self.spec, self.spec.arguments.encode(args, kwargs), site)

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} version {self.version!r} of {self._signature.place}>"


def _check_version(version: str) -> str:
    exact = text_of(version)
    if exact is None or not exact.strip() or len(exact) > 50 or exact != written_out(exact):
        raise BadDefinition(f"a version is a short text such as '2' or '2.1', not {shown(version)}.")
    return exact


class WorkflowDecorator(Protocol):
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


class AutoDecorator(Protocol):
    """What `@workflow(auto=True)` returns: it takes plain functions too."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Workflow[P, R]: ...


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *, name: str | None = None, version: str = "1", cancel_grace: Duration | None = None
) -> WorkflowDecorator: ...
@overload
def workflow(
    *,
    auto: Literal[True],
    name: str | None = None,
    version: str = "1",
    cancel_grace: Duration | None = None,
    **options: Unpack[CallOptions],
) -> AutoDecorator: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str = "1",
    cancel_grace: Duration | None = None,
    auto: bool = False,
    **options: Any,
) -> Any:
    """Make an `async def` function a workflow, registered under its name and version.

    Several versions may be registered at once: a run stays with the one it started with until `continue_as`.

    With `auto=True` nothing has to be a step: what the function calls is recorded as if it were one, with the options
    of a step given here, and a plain `def` will do. See the how-to about auto mode for what is recorded.

    >>> @workflow
    ... async def fulfil(order_id: str) -> str:
    ...     return await ship(order_id)
    """

    if type(auto) is not bool:
        raise BadDefinition(f"@workflow(auto=...) is True or False, not {shown(auto)}.")
    if options and not auto:
        raise TypeError(f"a workflow has no option {min(options)!r}: options of steps need auto=True.")
    settings = auto_settings(options) if auto else None

    def decorate(target: Callable[..., Any]) -> Workflow[..., Any]:
        return defined("what @workflow decorates", lambda: Workflow(target, name, version, cancel_grace, settings))

    return decorate if function is None else decorate(function)


# -- verbs that speak of workflows ---------------------------------------------------------------------------


async def start_child(
    invocation: Invocation[R],
    *,
    id: str | None = None,  # noqa: A002
    detach: bool = False,
) -> ChildHandle[R]:
    """Start a child and go on; await the handle for its result.

    Its id is the parent's id and the location, unless given. `detach=True` makes it independent: it is neither
    cancelled with its parent nor awaited by it. Raises `RunConflict` if a given id is taken by something else.
    """
    if not an_instance(invocation, Invocation):
        kind = class_name(type(invocation))
        raise BadArgument(f"start_child needs a workflow call such as fulfil('o-1'), not {kind}.")
    detach = checks.check_flag(detach, "detach")
    return await runs.start_child_run(invocation.spec, invocation.data, id, detach, caller_site())


async def continue_as(target: Any = ..., /, *args: Any, **kwargs: Any) -> NoReturn:
    """End this generation of the run and go on with a fresh journal, under the same id.

    `continue_as(fulfil("o-2"))` goes on as that (arguments are type-checked); `continue_as(fulfil, "o-2")` is the
    same; `continue_as("o-2")` is the newest version of the same workflow. Unread events and `state` carry over,
    children that are not detached are cancelled. Nothing after this call runs.
    """
    if an_instance(target, Invocation):
        await runs.continue_run_with(target.spec, target.data)
    elif an_instance(target, Workflow):
        await runs.continue_run_as(target.spec, args, kwargs)
    else:
        await runs.continue_run_as(None, args if target is ... else (target, *args), kwargs)
