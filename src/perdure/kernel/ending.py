"""How a run comes to its end: what is left of it is undone, closed or let go, and then its outcome is known.

    the main task is done ──▶ sagas undone ──▶ async generators closed ──▶ wound up ──▶ Complete | Fail | EndCancelled

Each of the first two may have to wait for operations of its own; until then the run stays open. Called by `Run` when
its code is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from perdure.errors import BadArgument, Forbidden, NotStorable, Stuck, TooLarge
from perdure.kernel.eventloop.generators import OpenGenerator
from perdure.kernel.eventloop.tasks import RunTask, path_of
from perdure.kernel.operations.timer import TimerOperation
from perdure.kernel.outcomes import Complete, Continue, EndCancelled, Fail, Outcome
from perdure.kernel.values.faults import encode_error, is_recorded, tame

if TYPE_CHECKING:
    from perdure.kernel.definitions import WorkflowSpec
    from perdure.kernel.run import Run

#: Location of the timer that ends a cancelled run which does not come to an end by itself.
GRACE_LOCATION = "cancel-grace"

#: Async generators that a workflow left open are closed so many at a time.
_CLOSED_AT_ONCE = 1_000


class OpenSaga(Protocol):
    """What the end of a run needs from a saga (`verbs.saga`)."""

    is_undoing: bool

    def holds_anything(self) -> bool: ...

    def cancel(self) -> None: ...


class Closing(msgspec.Struct, eq=False):
    """The workflow has come to its end, and async generators that it left open are being closed."""

    #: Tasks that were cancelled before.
    abandoned: tuple[str, ...]
    left: list[OpenGenerator]
    tasks: Sequence[RunTask] = ()


# -- asked for -------------------------------------------------------------------------------------------------


def cancel(run: Run, reason: str, grace_until: int) -> None:
    """Cancel the code of a run. Only the first request does anything."""
    if run.cancel_requested or run.outcome is not None or run.main is None:
        return
    run.cancel_requested = True
    run.cancel_reason = reason
    if grace_until:
        run.pending.add(
            TimerOperation(GRACE_LOCATION, run.count(), run.now, "", grace_until, lambda: _grace_is_over(run))
        )
    run.main.cancel(reason or None)
    if run.closing is not None:
        run.closing.left.clear()
        for task in run.closing.tasks:
            task.cancel(reason or None)


def _grace_is_over(run: Run) -> None:
    if run.sagas:
        run.complain(f"run {run.id!r} was ended by its cancel grace before its sagas were undone.")
    run.outcome = EndCancelled(run.cancel_reason, terminated=True)
    run.loop.stopped = True


def continue_as(run: Run, spec: WorkflowSpec, data: bytes) -> None:
    if run.is_ending():
        return
    if any(saga.holds_anything() for saga in run.sagas):
        raise BadArgument(
            f"run {run.id!r} cannot continue_as inside a saga: how to undo what was done would be forgotten. "
            "Leave the `async with saga()` block first."
        )
    run.outcome = Continue(spec, data)
    run.loop.stopped = True


# -- found -----------------------------------------------------------------------------------------------------


def look(run: Run) -> None:
    """The code is idle: because it waits, because it has come to its end, or for no reason that anybody knows."""
    if run.outcome is not None:
        if not run.closed and isinstance(run.outcome, (Continue, EndCancelled)):
            _wind_up(run, cancel_tasks=False)
    elif run.main is not None and run.main.done():
        if _is_undoing_sagas(run) and run.pending:
            return
        if run.loop.generators is None:
            _finish(run, run.main)
        elif not _is_closing_generators(run, run.main):
            _end(run, run.main, _wind_up(run, cancel_tasks=True, main=run.main))
    elif not run.pending:
        raise Stuck(
            f"run {run.id!r} waits for something that perdure does not know, so nothing could ever wake it: "
            f"{_where(run)}. Wait for a step, a sleep, an event or a child instead."
        )


def close_no_more(run: Run) -> None:
    """A replay has come to the recorded end: of a run that ended before perdure waited for its generators."""
    if run.closing is None or run.outcome is not None:
        return
    run.closing.left.clear()
    if run.main is not None:
        _end(run, run.main, _wind_up(run, cancel_tasks=True, main=run.main))


def raised(run: Run) -> BaseException | None:
    """What the code ended with, if it raised."""
    main = run.main
    return None if main is None or not main.done() or main.cancelled() else main.exception()


def _is_undoing_sagas(run: Run) -> bool:
    """Whether the end has to wait: a saga in some task that is left (the loser of a race) is undone first."""
    if not run.sagas:
        return False
    for saga in list(run.sagas):
        saga.cancel()
    run.loop.drain()
    return any(saga.is_undoing for saga in run.sagas)


def _is_closing_generators(run: Run, main: RunTask) -> bool:
    """Whether the end has to wait: async generators that were left open are closed first, as `asyncio.run` does.

    Tasks that are left go before, since they may be using some. What the cleanup asks for is durable. One that is
    left in a cycle is closed here, and not when a collection finds it: that moment is another one on every replay
    (tests/plain_python/test_collections.py).
    """
    closing = run.closing
    if closing is None:
        abandoned = _wind_up(run, cancel_tasks=True, main=main, keep_grace=True)
        generators = run.loop.generators
        closing = run.closing = Closing(abandoned, [] if generators is None else generators.to_close())
    while True:
        unfinished = [task for task in closing.tasks if not task.done()]
        if unfinished:
            if run.pending:
                return True
            for task in unfinished:  # they wait for something that perdure does not know
                task.cancel("the workflow ended")
            run.loop.drain()
            if run.pending:
                return True
        if not closing.left:
            return False
        # Not all at once: a turn may only run so many callbacks.
        closing.tasks = run.loop.close_generators(closing.left[:_CLOSED_AT_ONCE])
        del closing.left[:_CLOSED_AT_ONCE]
        run.loop.drain()


# -- the outcome -----------------------------------------------------------------------------------------------


def _finish(run: Run, main: RunTask) -> None:
    """The usual end: often nothing is left to wind up."""
    loop = run.loop
    is_something_left = run.pending or len(loop._tasks) > 1 or loop.failed_tasks is not None
    _end(run, main, _wind_up(run, cancel_tasks=True, main=main) if is_something_left else ())


def _end(run: Run, main: RunTask, abandoned: tuple[str, ...]) -> None:
    if run.closing is not None:
        abandoned = run.closing.abandoned + abandoned
    if main.cancelled():
        error: BaseException | None = asyncio.CancelledError("workflow code raised CancelledError by itself")
    else:
        error = main.exception()
    if main.cancelled() and run.cancel_requested:
        run.outcome = EndCancelled(run.cancel_reason, abandoned=abandoned)
    elif error is not None:
        error = tame(error)
        refused = _refusal_in(error)
        if refused is not None:
            # The code is at fault, and other code can fix it: parked, with nothing of this turn kept.
            raise refused
        run.outcome = Fail(encode_error(error), abandoned)
    else:
        run.outcome = _completed(run, main.result(), abandoned)


def _completed(run: Run, value: Any, abandoned: tuple[str, ...]) -> Outcome:
    try:
        return Complete(Raw(run.spec.result.encode(value, f"the result of workflow {run.spec.name!r}")), abandoned)
    except (NotStorable, TooLarge) as error:
        return Fail(encode_error(error), abandoned)


def _refusal_in(error: BaseException) -> Forbidden | None:
    """What the code was not allowed to do, if that is why it ended; not an error of this kind that a step raised."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for member in error.exceptions if (found := _refusal_in(tame(member))) is not None), None)
    return error if isinstance(error, Forbidden) and not is_recorded(error) else None


# -- winding up ------------------------------------------------------------------------------------------------


def _wind_up(run: Run, *, cancel_tasks: bool, main: RunTask | None = None, keep_grace: bool = False) -> tuple[str, ...]:
    """Let go of whatever still runs when the workflow ends: tasks are cancelled in the order of creation,
    steps too, children are asked to cancel. Nothing new is started on the way."""
    left = [task for task in run.loop.unfinished_tasks() if task is not main]
    abandoned = tuple(path_of(task) for task in left) if cancel_tasks else ()
    for operation in list(run.pending):
        operation.abandon(run)
    if abandoned:
        _drain_cancelled(run, left)
        names = ", ".join(repr(path) for path in abandoned)
        run.complain(f"run {run.id!r} ended while tasks were still running; they were cancelled: {names}.")
    for operation in list(run.pending):
        # Cancel requests to children, and what was asked for in the last turn, are still to be carried out.
        if not operation.outlives_code and not (keep_grace and operation.location == GRACE_LOCATION):
            run.pending.remove(operation)
            if operation.answered_by is not None:
                run.note_given_up(operation)
    for text in run.loop.take_forgotten(main):
        run.complain_of(text)
    return abandoned


def _drain_cancelled(run: Run, left: list[RunTask]) -> None:
    run.outcome = EndCancelled("")  # makes every further request of these tasks raise CancelledError
    for task in left:
        task.cancel("the workflow ended")
    run.loop.drain()
    run.outcome = None


def _where(run: Run) -> str:
    for task in run.loop.unfinished_tasks():
        stack = task.get_stack(limit=1)
        if stack:
            return f"{stack[-1].f_code.co_name}, line {stack[-1].f_lineno} of {stack[-1].f_code.co_filename}"
    return "no task is left"
