"""Verbs about other runs, and about this one's next generation: children, `cancel`, `wait_for_run`,
`wait_for_any`, `continue_as`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterator
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar, overload

import msgspec

from perdure.errors import BadArgument, RunCancelled, RunFailed
from perdure.given import an_instance, shown
from perdure.kernel import ending, operations
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.eventloop.tasks import RunFuture, single_operation_codes
from perdure.kernel.operations.child import ChildOperation
from perdure.kernel.run import Run
from perdure.kernel.sites import caller_site
from perdure.kernel.values import codec_for
from perdure.kernel.verbs.checks import check_operation_name, check_reason, check_run_id
from perdure.kernel.verbs.compose import Err, Ok, err_of
from perdure.kernel.verbs.current import current_run

R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

RunIds: TypeAlias = list[str] | tuple[str, ...]
"""In an order that is the same on every replay; a text is a sequence of texts too, and never what was meant."""


_ANY = codec_for(Any)


async def cancel(run_id: str, reason: str = "", *, name: str = "cancel") -> bool:
    """Ask another run to cancel. False if there was nothing to cancel (unknown, or already ended)."""
    run = current_run("cancel")
    target = check_run_id(run_id, allow_children=True)
    data = check_reason(reason).encode()
    name = check_operation_name(name)
    return bool(await operations.send.ask(run, target, "cancel", data, None, True, name, caller_site()))


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
        operations.child.cancel(self._run, self._operation, caller_site(), wanted=True)


async def run_child(spec: WorkflowSpec, data: bytes, site: str) -> Any:
    """`await other_workflow(...)`."""
    operation = operations.child.ask(current_run(spec.name), spec, data, None, False, site)
    return await operation.future


async def start_child_run(
    spec: WorkflowSpec, data: bytes, child_id: str | None, detach: bool, site: str
) -> ChildHandle[Any]:
    """`await start_child(other_workflow(...))`."""
    run = current_run("start_child")
    if child_id is not None:
        child_id = check_run_id(child_id)
    operation = operations.child.ask(run, spec, data, child_id, detach, site)
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
    ending.continue_as(run, spec, data)
    await RunFuture(loop=run.loop)
    raise AssertionError("a run went on after continue_as")


@overload
async def wait_for_run(run_id: str, *, result: type[T], name: str = "wait_for_run") -> T: ...
@overload
async def wait_for_run(run_id: str, *, result: None = None, name: str = "wait_for_run") -> Any: ...
async def wait_for_run(run_id: str, *, result: Any = None, name: str = "wait_for_run") -> Any:
    """Wait for the end of a run that need not be a child, and return what it returned: plain data, or a `result`.

    Raises `RunNotFound`, `RunFailed` (its cause is the error) or `RunCancelled`. A cancelled wait leaves the run alone.
    """
    run = current_run("wait_for_run")
    target = _other_run(run, run_id)
    codec = _ANY if result is None else codec_for(result)
    value = await operations.watch.ask(run, target, check_operation_name(name), caller_site())
    return codec.decode(value, _result_of(target))


class EndedRun(msgspec.Struct, Generic[T_co], frozen=True):
    """Which run has ended, and how: `Ok(value)`, or `Err` with the `RunFailed` or `RunCancelled` of it."""

    run_id: str
    outcome: Ok[T_co] | Err

    def result(self) -> T_co:
        """What the run returned. Raises `RunFailed` or `RunCancelled`, as `wait_for_run` does."""
        if isinstance(self.outcome, Err):
            raise self.outcome.error
        return self.outcome.value


@overload
async def wait_for_any(run_ids: RunIds, *, result: type[T], name: str = "wait_for_any") -> EndedRun[T]: ...
@overload
async def wait_for_any(run_ids: RunIds, *, result: None = None, name: str = "wait_for_any") -> EndedRun[Any]: ...
async def wait_for_any(run_ids: RunIds, *, result: Any = None, name: str = "wait_for_any") -> EndedRun[Any]:
    """Wait until the first of several runs ends, however it ends, and return which one and how.

    Of several that had ended before, it is the one given first. A failed or cancelled run is an `Err` in what is
    returned, and raised by its `result()`. Raises `RunNotFound` if any of the runs does not exist. The other runs are
    left alone, and so are all of them by a wait that is cancelled.

    >>> match await wait_for_any(["offer-1", "offer-2"], result=Offer):
    ...     case EndedRun(run_id, Ok(offer)): ...
    ...     case EndedRun(run_id, Err(kind="cancelled")): ...
    """
    run = current_run("wait_for_any")
    targets = dict.fromkeys([_other_run(run, run_id) for run_id in _listed(run_ids)])
    if not targets:
        raise BadArgument("wait_for_any() needs at least one run id: it would wait for ever.")
    codec = _ANY if result is None else codec_for(result)
    waits = operations.watch.ask_each(run, targets, check_operation_name(name), caller_site())
    try:
        await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits.values():
            wait.cancel()  # does nothing to the one that is done
    run_id, ended = next((run_id, wait) for run_id, wait in waits.items() if not wait.cancelled())
    try:
        value = ended.result()
    except (RunFailed, RunCancelled) as error:
        return EndedRun(run_id, err_of(error))
    return EndedRun(run_id, Ok(codec.decode(value, _result_of(run_id))))


def _listed(run_ids: RunIds) -> Iterator[str]:
    """Refuses a set: its order, and so which of two ended runs is told first, is another one in each process."""
    if an_instance(run_ids, list):
        return list.__iter__(run_ids)  # type: ignore[arg-type]
    if an_instance(run_ids, tuple):
        return tuple.__iter__(run_ids)  # type: ignore[arg-type]
    raise BadArgument(f"wait_for_any() takes a list of run ids, not {shown(run_ids)}. Of a set, give sorted(...).")


def _other_run(run: Run, run_id: str) -> str:
    """A run whose end this one can wait for."""
    target = check_run_id(run_id, allow_children=True)
    if target == run.id:
        raise BadArgument(f"run {target!r} would wait for its own end.")
    return target


def _result_of(run_id: str) -> str:
    return f"the result of run {run_id!r}"


single_operation_codes |= {
    function.__code__ for function in (cancel, run_child, start_child_run, wait_for_run, wait_for_any)
}
