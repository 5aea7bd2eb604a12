"""Tasks that failed while nobody asks for their outcome: each is reported once, and not again by replays.

asyncio reports such a task at the moment it is let go of, which a loop that keeps its tasks never sees. So a task that
has failed is kept only as long as the code of the run keeps it. If that lets go of it in a turn, it is reported there:
the same turn on every replay, which is silent. A collection finds tasks that are part of a cycle at another moment on
every replay: those, and the ones that the code holds to the end, are reported when the run ends.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from perdure.kernel.values.faults import summary

if TYPE_CHECKING:
    from perdure.kernel.eventloop.loop import RunLoop
    from perdure.kernel.eventloop.tasks import RunTask

#: Texts that are kept for the end of a run. More would only say the same again.
_KEPT_MAX = 100


class FailedTasks:
    """Those of one run whose exception nobody has looked at so far."""

    __slots__ = ("_held", "_just_failed", "_texts")

    def __init__(self) -> None:
        #: In this turn: their waiters, woken a moment later, look at most of them.
        self._just_failed: list[Any] = []
        #: The code has them.
        self._held: list[weakref.ref[Any]] = []
        #: What a collection found.
        self._texts: list[str] = []

    def add(self, loop: RunLoop, task: RunTask) -> None:
        if not self._just_failed:
            loop.call_soon(self._let_go, loop)
        self._just_failed.append(task)

    def _let_go(self, loop: RunLoop) -> None:
        failed = [task for task in self._just_failed if is_unseen(task)]
        self._just_failed.clear()
        if failed:
            self._held = [held for held in self._held if is_unseen(held())]
            self._held += map(weakref.ref, failed)
            loop.forget_ended_tasks()

    def keep(self, text: str) -> None:
        if len(self._texts) < _KEPT_MAX:
            self._texts.append(text)

    def take(self) -> list[str]:
        """What is still to be said when the run ends."""
        texts, self._texts = self._texts, []
        texts += reported([*self._just_failed, *(held() for held in self._held)])
        self._held.clear()
        return texts


def is_unseen(task: Any) -> bool:
    """Whether this failed and nobody has looked at the exception: the flag by which asyncio itself reports."""
    return getattr(task, "_log_traceback", False) is True


def reported(tasks: list[Any]) -> list[str]:
    """What to say of those that nobody has looked at. They count as seen from now on."""
    texts: list[str] = []
    for task in tasks:
        if is_unseen(task):
            texts.append(report(task.get_name(), task.exception()))
    return texts


def report(name: str, error: BaseException) -> str:
    return f"task {name!r} failed and nobody asks for its outcome: {summary(error)}"
