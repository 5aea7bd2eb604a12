"""Interruptions: what comes from outside of a step is no outcome of it, and leaves its attempt as a crash does.

That is a cancellation that perdure did not ask for (a host that ends cancels all tasks of its event loop) and the
exception of a signal. Nothing is recorded; if the process goes on, the same attempt begins again after a while
(docs/decisions/0111). While a host seems to end nothing is begun: a loop that ends must not get new tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure import limits
from perdure.engine.attempts.attempt import Attempt
from perdure.engine.attempts.capacity import Capacity

logger = logging.getLogger("perdure.steps")


class Interruptions:
    """`resumed` is called when a pause is over, `begin_again` with an attempt that was abandoned a while ago."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        capacity: Capacity,
        resumed: Callable[[], None],
        begin_again: Callable[[Attempt], None],
    ) -> None:
        self._loop = loop
        self._capacity = capacity
        self._resumed = resumed
        self._begin_again = begin_again
        #: Nothing is begun for now: the host seems to end.
        self.is_paused = False
        #: The engine's own task. Code that cancels that one, and is not the engine's, cancels everything on the loop.
        self.sweeper: asyncio.Task[None] | None = None

    def _host_ends(self) -> bool:
        return self.sweeper is not None and self.sweeper.cancelling() > 0

    def pause(self) -> None:
        """A stranger cancels the tasks of this loop. Begin nothing for a while: a loop that ends must not get new
        tasks, and one that goes on gets to work again."""
        if not self.is_paused and self._capacity.accepting:
            self.is_paused = True
            self._loop.call_later(limits.CANCELLED_BY_OTHERS_SECONDS, self._resume)

    def _resume(self) -> None:
        self.is_paused = False
        self._resumed()

    def is_of_the_step(self, attempt: Attempt, error: BaseException) -> bool:
        """Whether what the code raised in a cancelled task is its own affair."""
        if not self._capacity.accepting or self._host_ends():
            return False  # whatever it made of the cancellation: it was meant for the process, not for the step
        if not isinstance(error, asyncio.CancelledError):
            return True
        attempt.strange_cancels += 1
        return attempt.strange_cancels > limits.STRANGE_CANCELS_MAX

    def abandon(self, attempt: Attempt) -> None:
        """As by a crash: nothing is recorded. If the process goes on, the same attempt begins again after a while."""
        if not self._capacity.accepting or attempt.unwanted:
            return
        operation = attempt.operation
        logger.warning(
            "attempt %d of step %r of run %r was cancelled by something else than perdure, such as the end of the "
            "event loop. Nothing is recorded of it: it begins again, here or in the next process.",
            attempt.number, operation.location, attempt.resident.id,
        )  # fmt: skip
        if self._host_ends():
            self.pause()
        self._loop.call_later(limits.CANCELLED_BY_OTHERS_SECONDS, self._begin_again, attempt)
