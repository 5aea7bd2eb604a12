"""Tasks and futures of a run: asyncio's own, with a hash that is the same on every replay and a place in the run.

asyncio keeps both in sets, whose order follows their hash, which is their address. Ours hash to a number that is given
in the order of creation (offset by the run's seed, so that runs do not collide in asyncio's global registries).
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from asyncio import tasks
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.kernel.eventloop.loop import RunLoop
    from perdure.kernel.operations.base import Operation
from perdure.kernel.locations import Branch


class RunFuture(asyncio.Future[Any]):
    """A future that hashes to a number of its own, given at first use. With an `operation`, cancelling it tells the run
    that nobody waits for that any more. Made with `RunFuture(loop=loop)`. Those of steps are asyncio's own (0094)."""

    __slots__ = ("_number", "operation")
    _number: int
    operation: Operation | None

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop: Any = self.get_loop()
            self._number = number = int(loop.next_number())
            return number

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        operation: Operation | None = getattr(self, "operation", None)
        if cancelled and operation is not None:
            loop: Any = self.get_loop()
            if loop.owner is not None:
                loop.owner.give_up(operation)
        return cancelled


#: Without `super()`, which makes an object to look it up: a wide run has many tasks.
_init_task: Callable[..., None] = asyncio.Task.__init__


class RunTask(asyncio.Task[Any]):
    """A task that hashes to its creation number and knows its branch, and the context that its code runs in (asyncio
    tells that only from Python 3.12 on)."""

    __slots__ = ("_number", "branch", "context")

    def __init__(self, coroutine: Any, loop: RunLoop, branch: Branch, context: contextvars.Context | None) -> None:
        if hasattr(self, "branch"):  # Python 3.12 crashes where a task that runs is made anew
            raise RuntimeError("a task is initialised once.")
        # All before asyncio's own part, which puts the task into a WeakSet and so hashes it.
        self._number = loop.next_number() if branch.scope is None else branch.scope.next_number()
        self.branch = branch
        if context is None:
            context = contextvars.copy_context()
        self.context = context
        _init_task(self, coroutine, loop=loop, name=branch.path or "main", context=context)

    def __hash__(self) -> int:
        return self._number


def path_of(task: Any) -> str:
    """The path of a task of a run, also of one that the loop did not make (`RunLoop.adopt`)."""
    branch: Branch = task.branch if type(task) is RunTask else task.perdure_branch
    return branch.path


#: Code of coroutines that are one operation: a task made of one lends it its path (see `Branch`).
single_operation_codes: set[CodeType] = {asyncio.sleep.__code__}


class StepName(str):
    """The qualified name of a step's coroutines. Its class tells them from others: for a look at their code Python
    calls the audit hook (`engine.guarding`), which costs as much as a good part of making their task."""

    __slots__ = ()


#: `asyncio.current_task`, which is written in Python before 3.12; every operation asks.
current_task: Callable[[Any], Any] = (
    getattr(tasks, "_current_tasks").get if sys.version_info < (3, 12) else asyncio.current_task  # noqa: B009
)


def is_of_step(coroutine: Any) -> bool:
    return type(getattr(coroutine, "__qualname__", None)) is StepName
