"""Timeouts: an attempt that waits or takes too long is told at once, and loses its place if it goes on all the same.

Each attempt has one timer, for the limit that comes next: `queue_timeout` while it waits for its place, `timeout` from
when its code begins, or what is left of `total_timeout`. What code that was told to stop still returns is refused;
after a short grace others get its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure import limits
from perdure.engine.attempts.attempt import Attempt
from perdure.engine.attempts.capacity import Capacity
from perdure.engine.attempts.outcomes import Outcomes
from perdure.engine.clock import Timekeeper
from perdure.errors import StepTimeout
from perdure.kernel.retry import total_deadline

logger = logging.getLogger("perdure.steps")


class Timeouts:
    """`leave_behind` gets the task of an attempt that goes on."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Timekeeper,
        capacity: Capacity,
        outcomes: Outcomes,
        leave_behind: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._capacity = capacity
        self._outcomes = outcomes
        self._leave_behind = leave_behind

    def limit_the_wait(self, attempt: Attempt) -> None:
        """An attempt waits for its place, or goes on waiting."""
        policy = attempt.operation.spec.policy
        if attempt.timer is None and (policy.queue_timeout is not None or policy.total_timeout is not None):
            now = self._loop.time()
            attempt.waiting_since = attempt.waiting_since or now
            left = None if policy.queue_timeout is None else attempt.waiting_since + policy.queue_timeout - now
            name = f"attempt {attempt.number} of step {attempt.operation.location!r}"
            what = f"{name} waited longer than its queue_timeout of {policy.queue_timeout} s and did not begin."
            self._set_timer(attempt, left, what, self._waited_too_long)

    def code_begins(self, attempt: Attempt) -> None:
        """From now on the timeout of the attempt counts."""
        attempt.stop_timer()
        if not attempt.expired:
            seconds = attempt.operation.spec.policy.timeout
            name = f"attempt {attempt.number} of step {attempt.operation.location!r}"
            what = f"{name} took longer than its timeout of {seconds} s."
            self._set_timer(attempt, seconds, what, self._time_is_up)

    def give_grace(self, attempt: Attempt) -> None:
        """The code was told to stop and has a short time for that."""
        attempt.timer = self._loop.call_later(limits.STEP_STOP_SECONDS, self._goes_on, attempt)

    def _set_timer(
        self, attempt: Attempt, seconds: float | None, what: str, then: Callable[[Attempt, str], None]
    ) -> None:
        """For that limit, or for what is left of `total_timeout`. One that is over already is kept by the attempt."""
        operation = attempt.operation
        deadline = total_deadline(operation.spec.policy, operation.asked_at)
        if deadline is not None:
            left = (deadline - self._clock.now()) / 1_000_000
            if seconds is None or left < seconds:
                seconds, total = left, operation.spec.policy.total_timeout
                what = f"step {operation.location!r} took longer than its total_timeout of {total} s."
        if seconds is None:
            return
        if seconds <= 0 and attempt.call is None and not attempt.held_by:
            attempt.expired = what
        else:
            attempt.timer = self._loop.call_later(seconds, then, attempt, what)

    def _waited_too_long(self, attempt: Attempt, what: str) -> None:
        attempt.timer = None
        if attempt.held_by:
            self._outcomes.fail(attempt, StepTimeout(what))
            attempt.unwanted = True  # those who look for the next one pass it over
        elif attempt.call is None or attempt.call.withdraw():
            attempt.expired = what
            if attempt.task is not None:
                attempt.task.cancel()
        # Otherwise its code has just begun, and `code_begins` comes next.

    def _time_is_up(self, attempt: Attempt, what: str) -> None:
        attempt.expired = what
        attempt.context.mark_cancelled()
        if attempt.task is not None:
            attempt.task.cancel()
        self.give_grace(attempt)

    def _goes_on(self, attempt: Attempt) -> None:
        """The code was told to stop and had its time for that."""
        attempt.timer = None
        if attempt.has_left:
            return
        logger.warning(
            "attempt %d of step %r of run %r was told to stop %g s ago and goes on. Others get its place, and what it "
            "still returns is refused. Let `CancelledError` out of the step's code.",
            attempt.number, attempt.operation.location, attempt.resident.id, limits.STEP_STOP_SECONDS,
        )  # fmt: skip
        if attempt.expired and not attempt.unwanted:
            self._outcomes.fail(attempt, StepTimeout(attempt.expired))
        attempt.unwanted = True
        if attempt.task is not None:
            self._leave_behind(attempt.task)
        self._capacity.leave(attempt)
