"""Sagas: steps that can be undone, and their undoing.

A saga remembers what succeeded inside it, with the way to undo it and the output that needs. When its block is left by
an error or a cancellation, the compensations run in reverse order. They are ordinary operations, recorded and retried
at `saga/undo/...`, so a crash in the middle repeats none of them.

Nothing is left in doubt: a step that can be undone is never cancelled half-way. If its waiter is cancelled
(a timeout, a lost race, the end of the run), the step goes on, the saga waits for its outcome, and undoes it if it
succeeded, because nobody took the result.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar, TypeVarTuple, overload

from perdure.errors import BadArgument, BranchCancelled, CompensationFailed, SagaClosed
from perdure.given import shown
from perdure.kernel import operations
from perdure.kernel.eventloop.tasks import RunTask
from perdure.kernel.locations import Branch
from perdure.kernel.operations.child import ChildOperation
from perdure.kernel.run import Run
from perdure.kernel.verbs.compose import is_name
from perdure.kernel.verbs.current import current_run
from perdure.kernel.verbs.runs import run_child

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

Undo = Callable[[Any], Awaitable[object]]

_current: ContextVar[Saga | None] = ContextVar("perdure_saga", default=None)


class _Done:
    """Something that succeeds in a saga. `output` is set when it has."""

    __slots__ = ("name", "output", "undo", "wanted")

    def __init__(self, name: str, undo: Undo) -> None:
        self.name = name
        self.undo = undo
        self.output: Any = None
        #: False if its waiter was cancelled: it is undone even if the saga succeeds.
        self.wanted = True


class Saga:
    """Remembers what was done inside its block, and undoes it if the block fails. Made by `saga()`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._location = name
        self._done: list[_Done] = []
        self._under_way: dict[RunTask, None] = {}
        self._outer: Saga | None = None
        self._run: Run | None = None
        self._task: asyncio.Task[Any] | None = None
        self._branch = Branch()
        self._is_asked_to_end = False
        self.is_undoing = False

    async def __aenter__(self) -> Saga:
        if self._run is not None:
            raise SagaClosed("a saga is entered once. Write `async with saga() as s:` for each.")
        run = self._run = current_run("saga")
        self._branch = run.loop.branch()
        self._location = self._branch.locate(self._name)
        self._task = asyncio.current_task()
        self._outer = _current.get()
        _current.set(self)
        run.sagas = (*run.sagas, self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run = self._run
        if run is None:
            raise AssertionError("left before it was entered")
        if error is not None and not isinstance(error, (Exception, asyncio.CancelledError)):
            return  # the run leaves memory: its next life comes here again
        _current.set(self._outer)
        try:
            await self._end(run, error)
        finally:
            run.sagas = tuple(saga for saga in run.sagas if saga is not self)

    @overload
    async def do(
        self,
        action: Callable[[*Ts], Awaitable[R]],
        /,
        *args: *Ts,
        undo: Callable[[R], Awaitable[object]] | None = None,
    ) -> R: ...
    @overload
    async def do(self, action: Awaitable[R], /, *, undo: Callable[[R], Awaitable[object]] | None = None) -> R: ...
    async def do(self, action: Any, /, *args: Any, undo: Undo | None = None) -> Any:  # type: ignore[misc]
        """Do something that can be undone, and return its output.

        `undo` is a step, a workflow or another async function of one argument, the output. It defaults to the step's
        own, `@step(undo=...)`. Keyword arguments go into the call: `do(charge(order, cents=5), undo=refund)`.

        >>> receipt = await s.do(charge, order, undo=refund)
        """
        undo = undo if undo is not None else getattr(getattr(action, "settings", None), "undo", None)
        if undo is not None and not callable(undo):
            raise BadArgument(f"undo is a step or another async function of the output, not {type(undo).__name__}.")
        if not callable(action) and args:
            raise BadArgument("arguments were given twice: write do(charge, order) or do(charge(order)).")
        asked = action(*args) if callable(action) else action
        if not isinstance(asked, Awaitable):
            raise BadArgument(f"do() needs a step, a workflow or another async function, not {type(asked).__name__}.")
        if undo is None:
            return await asked
        if getattr(asked, "cr_code", None) is run_child.__code__:
            return await self._do_child(asked, undo)
        name = getattr(asked, "__name__", None) or getattr(action, "__name__", None) or type(asked).__name__
        return await self.carry_out(asked, undo, name)

    async def _do_child(self, invocation: Any, undo: Undo) -> Any:
        """A child can be cancelled without leaving anything in doubt: it is asked to, and its end waited for."""
        run = current_run("do")
        asked: list[ChildOperation] = []

        async def child() -> Any:
            operation = operations.child.ask(run, invocation.spec, invocation.data, None, False, invocation.site)
            asked.append(operation)
            return await operation.future

        def cancel(_started: object = None) -> None:
            for operation in asked:
                operations.child.cancel(run, operation, operation.site, wanted=True)

        try:
            return await self.carry_out(child(), undo, invocation.spec.name)
        except asyncio.CancelledError:
            for operation in asked:
                if operation.is_running:
                    cancel()
                else:  # asked for in this very turn
                    operation.started.add_done_callback(cancel)
            raise

    async def carry_out(self, action: Awaitable[R], undo: Undo, name: str) -> R:
        """Await `action`; once it has succeeded, `undo` undoes it. Cancelling the wait does not cancel the action."""
        run = self._run
        if run is None or self not in run.sagas or self.is_undoing:
            if isinstance(action, Coroutine):
                action.close()
            state = "is being undone" if self.is_undoing else "is not open"
            raise SagaClosed(f"saga {self._location!r} {state}, so {name!r} was not begun.")
        done = _Done(name, undo)
        branch = run.loop.branch()
        task = run.loop.spawn(self._carry_out(action, done), branch, _without_saga())
        if branch.scope is not None:
            branch.scope.sheltered.add(task)
            # An iteration with something to undo outside of it must be there when that is undone.
            branch.scope.keep_up_to(self._branch.scope)
        self._under_way[task] = None
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            done.wanted = False
            task.add_done_callback(_look)
            raise
        return task.result()  # type: ignore[no-any-return]

    async def _carry_out(self, action: Awaitable[R], done: _Done) -> R:
        try:
            output = done.output = await action
            self._done.append(done)
            return output
        finally:
            self._under_way.pop(asyncio.current_task(), None)  # type: ignore[call-overload]

    # -- for the run -----------------------------------------------------------------------------------------

    def holds_anything(self) -> bool:
        return bool(self._done or self._under_way)

    def cancel(self) -> None:
        """The workflow has ended around it: a saga that is still open is undone."""
        if not self._is_asked_to_end and not self.is_undoing and self._task is not None and not self._task.done():
            self._is_asked_to_end = True
            if not self._task.cancelling():
                self._task.cancel("the workflow ended")

    # -- the end ---------------------------------------------------------------------------------------------

    async def _end(self, run: Run, error: BaseException | None) -> None:
        self.is_undoing = error is not None
        if not self._done and not self._under_way:
            return
        branch = self._branch.below(f"{self._location}/undo")
        task = run.loop.spawn(self._settle(), branch, _without_saga())
        if branch.scope is not None:
            branch.scope.sheltered.add(task)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as raised:
                # What was begun is undone to the end, whatever is cancelled meanwhile; the cancel grace of the run
                # still holds.
                cancelled = raised
                self.is_undoing = True
        errors, undone = task.result()
        if errors:
            failed = CompensationFailed(
                f"saga {self._location!r} of run {run.id!r} could not be undone: {len(errors)} of "
                f"{len(errors) + len(undone)} compensations failed ({', '.join(name for name, _ in errors)}); "
                f"{', '.join(undone) or 'nothing'} was undone.",
                [one for _, one in errors],
                [name for name, _ in errors],
            )
            failed.undone = tuple(undone)
            raise failed from error
        if cancelled is not None:
            raise cancelled
        if error is None and self._outer is not None:
            self._hand_over(self._outer)

    def _hand_over(self, outer: Saga) -> None:
        """It succeeded inside another saga: if that one fails later, this is undone with it."""
        outer._done += self._done
        if self._branch.scope is not None and self._done:
            self._branch.scope.keep_up_to(outer._branch.scope)

    async def _settle(self) -> tuple[list[tuple[str, Exception]], list[str]]:
        """Wait for what is under way, then undo: everything, or after a success what nobody took."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))
        errors: list[tuple[str, Exception]] = []
        undone: list[str] = []
        while (done := self._next()) is not None:
            try:
                await _await(done.undo(done.output))
            except Exception as error:
                errors.append((done.name, error))
            except asyncio.CancelledError:
                cancelled = BranchCancelled(f"the compensation of {done.name!r} ended by a CancelledError of its own.")
                errors.append((done.name, cancelled))
            else:
                undone.append(done.name)
        return errors, undone

    def _next(self) -> _Done | None:
        """The newest that is to be undone."""
        for index in range(len(self._done) - 1, -1, -1):
            if self.is_undoing or not self._done[index].wanted:
                return self._done.pop(index)
        return None


def _without_saga() -> contextvars.Context:
    """One unit: what an action or a compensation is made of is not undone besides."""
    context = contextvars.copy_context()
    context.run(_current.set, None)
    return context


def _look(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more, and asyncio need not say so if it failed."""
    if not task.cancelled():
        task.exception()


async def _await(awaitable: Any) -> Any:
    if not isinstance(awaitable, Awaitable):
        raise BadArgument(
            f"undo is a step or another async function of the output; this one returned {type(awaitable).__name__}."
        )
    return await awaitable


def saga(name: str = "saga") -> Saga:
    """A block whose steps are undone, in reverse order, if it is left by an error or a cancellation.

    Each compensation is durable and retried as its step says; one that fails does not stop the others, and all that
    failed are raised as one `CompensationFailed`. Otherwise the error that ended the block goes on.

    >>> async with saga() as s:
    ...     receipt = await s.do(charge, order, undo=refund)
    ...     await s.do(ship, order, undo=call_back)
    """
    if not is_name(name):
        raise BadArgument(f"the name of a saga is text without spaces, '/', '#' and '~', not {shown(name)}.")
    return Saga(name)


def current_saga() -> Saga | None:
    """The saga around the running code, also in tasks that were made inside it."""
    return _current.get()
