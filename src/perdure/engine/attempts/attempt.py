"""One try of one step: what is known about it while it goes on, and the rest of its code while that waits.

An attempt belongs to one resident run, under the location of its step. Once it is unwanted it stays so: whatever its
code still does, nothing is recorded of it.
"""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any

import msgspec

from perdure.authoring.step import StepContext
from perdure.engine.attempts.threads import Call
from perdure.engine.resident import Resident
from perdure.kernel.operations.step import StepOperation


class Attempt(msgspec.Struct, eq=False):
    """One try of one step."""

    resident: Resident
    operation: StepOperation
    number: int
    task: asyncio.Task[None] | None = None
    unwanted: bool = False
    _context: StepContext | None = None
    #: What it took too long for, once it has.
    expired: str = ""
    #: Whether its place was given to others although its code goes on.
    has_left: bool = False
    #: How often this attempt was cancelled by code that is neither perdure's nor the end of the host.
    strange_cancels: int = 0
    #: For whichever limit comes next.
    timer: asyncio.TimerHandle | None = None
    #: The limit that keeps it from beginning: "steps_max", "concurrency", "lease" or nothing.
    held_by: str = ""
    #: When it began to wait for its place, by the clock of the loop.
    waiting_since: float = 0.0
    #: Of code that runs elsewhere.
    call: Call | None = None

    def __repr__(self) -> str:
        return f"<attempt {self.number} of {self.operation.location!r}>"

    @property
    def context(self) -> StepContext:
        """What the step's code may know. Made when somebody asks, which few do."""
        if self._context is None:
            with _making_context:  # several threads of one step may ask at once
                if self._context is None:
                    run, operation = self.resident.run, self.operation
                    self._context = StepContext(
                        run.id, operation.location, operation.spec.name, self.number, f"{run.seed:x}"
                    )
            if self.unwanted:
                self._context.mark_cancelled()
        return self._context

    @property
    def waits_for(self) -> str:
        """What its code waits for before it begins, named as the setting that limits it; nothing once it has."""
        if self.held_by or self.call is None or self.call.has_begun:
            return self.held_by
        return "step_processes" if self.operation.spec.isolation == "process" else "step_threads"

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the step's function with. Fresh copies of everything that can change: what the step does to its
        arguments must not reach the workflow, which would see the change live and miss it on replay."""
        operation = self.operation
        return (operation.args, {}) if operation.args is not None else operation.spec.arguments.decode(operation.data)

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        self.unwanted = True
        if self._context is not None:
            self._context.mark_cancelled()
        if self.task is not None:
            self.task.cancel()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


_making_context = threading.Lock()


class Waits(msgspec.Struct, eq=False):
    """The code of an attempt has begun and waits for something."""

    coroutine: Coroutine[Any, Any, Any]
    context: Context
    awaited: Any
    #: How often the code has asked for the cancellation of the task that it runs in.
    own_cancels: int = 0
    #: Whether the coroutine was closed before its end: the event loop is gone, and nothing can be done any more.
    is_closed: bool = False


@types.coroutine
def rest_of(begun: Waits, task: asyncio.Task[Any]) -> Generator[Any, Any, Any]:
    """Run a coroutine that waits to its end, inside the current task but in a context of its own.

    Counts how often the code itself cancels that task: only while it runs can nobody else.
    """
    coroutine, context, awaited = begun.coroutine, begun.context, begun.awaited
    cancelling = task.cancelling
    before = 0
    try:
        while True:
            if (asked := cancelling()) > before:
                begun.own_cancels += asked - before
            try:
                value = yield awaited
            except GeneratorExit:
                begun.is_closed = True
                coroutine.close()
                raise
            except BaseException as error:
                before = cancelling()
                awaited = context.run(coroutine.throw, error)
            else:
                before = cancelling()
                awaited = context.run(coroutine.send, value)
    except StopIteration as returned:
        return returned.value
