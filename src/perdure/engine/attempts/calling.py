"""Calling: async code runs as part of a task of the host loop, sync code in a thread, isolated code in a process.

Wherever it runs, it has a context of its own, fresh copies of its arguments, and its timeouts around it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeAlias

from perdure import limits
from perdure.authoring.step import step_context
from perdure.engine.attempts.attempt import Attempt, Waits
from perdure.engine.attempts.processes import StepProcesses, outcome_of, value_of
from perdure.engine.attempts.threads import DaemonThreads
from perdure.engine.attempts.timeouts import Timeouts
from perdure.engine.clock import Timekeeper
from perdure.errors import StepTimeout
from perdure.kernel.definitions import StepSpec

StandIn: TypeAlias = Callable[[Attempt, tuple[Any, ...], dict[str, Any]], Coroutine[Any, Any, Any] | None]

_set_step = step_context.set


class Calling:
    """Runs the code of attempts in at most so many threads and processes."""

    def __init__(self, clock: Timekeeper, threads: int, processes: int | None, timeouts: Timeouts) -> None:
        self._clock = clock
        self._timeouts = timeouts
        self._threads = DaemonThreads(threads)
        self._processes = StepProcesses(processes)
        #: For tests: what to call in the place of a step's code (None: the code itself).
        self.stand_in: StandIn | None = None

    def begin(self, attempt: Attempt) -> Any:
        """Run the code of an attempt, in a context of its own, until its end or until it waits for the first time: what
        it returned, or a `Waits`."""
        operation = attempt.operation
        spec, args = operation.spec, operation.args
        coroutine: Coroutine[Any, Any, Any]
        if args is not None and spec.is_bare and self.stand_in is None:
            coroutine = spec.function(*args)  # nothing has to be around it
        else:
            coroutine = self._limited(attempt)
        context = copy_context()
        context.run(_set_step, attempt)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration as returned:
            return returned.value
        return Waits(coroutine, context, awaited)

    async def _limited(self, attempt: Attempt) -> Any:
        """Run the code within its timeouts."""
        spec = attempt.operation.spec
        policy = spec.policy
        if policy.timeout is None and policy.queue_timeout is None and policy.total_timeout is None:
            return await self._call(attempt)
        if _runs_here(spec):
            self._timeouts.code_begins(attempt)
        else:  # it waits for a thread or a process first
            self._timeouts.limit_the_wait(attempt)
        try:
            if attempt.expired:
                raise StepTimeout(attempt.expired)
            return await self._call(attempt)
        finally:
            if not attempt.expired:
                attempt.stop_timer()

    def _call(self, attempt: Attempt) -> Coroutine[Any, Any, Any] | asyncio.Future[Any]:
        spec = attempt.operation.spec
        args, kwargs = attempt.arguments()
        if self.stand_in is not None and (instead := self.stand_in(attempt, args, kwargs)) is not None:
            if not _runs_here(spec):
                self._timeouts.code_begins(attempt)
            return instead
        if _runs_here(spec):
            return spec.function(*args, **kwargs)  # type: ignore[no-any-return]
        has_limits = spec.policy.timeout is not None or attempt.timer is not None
        begun = functools.partial(self._timeouts.code_begins, attempt) if has_limits else None
        if spec.isolation == "process":
            return self._clock.outside(self._isolated(attempt, begun))
        context = copy_context()
        attempt.call = self._threads.submit(lambda: context.run(spec.function, *args, **kwargs), begun)
        return self._clock.outside(attempt.call.future)

    async def _isolated(self, attempt: Attempt, begun: Callable[[], None] | None) -> Any:
        operation = attempt.operation
        attempt.call = self._processes.ask(operation.spec, operation.data, attempt.context, begun)
        return value_of(operation.spec, await outcome_of(attempt.call), operation.location)

    async def close(self) -> None:
        """Let threads and processes end."""
        self._threads.close()
        self._processes.close()
        await asyncio.wait({self._clock.outside(self._processes.gone())}, timeout=limits.STEP_STOP_SECONDS)

    def abandon(self) -> None:
        """As a crash would: processes end, threads are left behind, to end by themselves when their call does."""
        self._threads.close()
        self._processes.close()


def _runs_here(spec: StepSpec) -> bool:
    """Whether the code runs on this loop, and so begins at once."""
    return spec.is_async and spec.isolation == "none"
