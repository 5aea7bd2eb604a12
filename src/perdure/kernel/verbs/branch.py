"""`async with branch("agent"):` names the branch of the run in which library code works.

A location follows the tasks that lead to it, and a task is named after its function: in code that is not ours, a
private name that the next release may change, and every open run would have diverged. Inside the block each task that
the code makes is called `task` (`task#2`, ...), in the order in which they are made (decision 0109).
"""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.errors import BadArgument
from perdure.kernel.eventloop.tasks import RunTask
from perdure.kernel.locations import Branch
from perdure.kernel.verbs.compose import is_name
from perdure.kernel.verbs.current import current_run


class branch:  # reads as what it does: `async with branch("agent"): ...`
    """What is asked for inside the block, by this task and by all that it makes there, has locations such as
    `agent/charge` and `agent/task#2/charge`, which do not depend on the names of functions of libraries.

    >>> async with branch("agent"):
    ...     answer = await agent.run(question)
    """

    def __init__(self, name: str) -> None:
        if not is_name(name):
            raise BadArgument(f"the name of a branch is text without spaces, '/', '#' and '~', not {name!r}.")
        self._name = name
        self._outer = Branch()
        self._task: Any = None

    async def __aenter__(self) -> None:
        if self._task is not None:
            raise BadArgument(f"a branch is entered once: write `async with branch({self._name!r}):` for each block.")
        loop = current_run("branch").loop
        self._outer = outer = loop.branch()
        self._task = asyncio.current_task()
        inner = outer.below(outer.locate(self._name))
        inner.names_no_tasks = True
        _move(self._task, inner)

    async def __aexit__(self, *_: object) -> None:
        _move(self._task, self._outer)


def _move(task: Any, to: Branch) -> None:
    """From now on the task stands there."""
    if type(task) is RunTask:
        task.branch = to
    else:  # of a class of its own, see `RunLoop.adopt`
        task.perdure_branch = to
