"""Outcomes: whatever the code of an attempt does becomes one outcome of that attempt, or nothing at all.

What it returned is encoded at once. What it raised is a failure of that attempt, whatever it is: `sys.exit()` and a
`CancelledError` of its own included; only interruptions are not (`interruptions`). An outcome that nobody wants any
more is dropped here, and a run whose failure cannot even be described is parked, so that none hangs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from perdure.engine.attempts.attempt import Attempt
from perdure.engine.attempts.capacity import Capacity
from perdure.engine.attempts.interruptions import Interruptions
from perdure.engine.attempts.threads import Carried
from perdure.engine.clock import Timekeeper
from perdure.engine.host import is_interrupt
from perdure.engine.resident import Resident
from perdure.errors import EncodingError, NotStorable, StepFailed, StepTimeout, describe_line
from perdure.kernel.arrivals import StepOutcome
from perdure.kernel.journal import Body
from perdure.kernel.retry import next_attempt_at
from perdure.kernel.values.faults import encode_error, tame

logger = logging.getLogger("perdure.steps")


class Outcomes:
    """`finished` hears of each run that has a new outcome. `park` is for one whose step has an outcome that cannot even
    be recorded as a failure."""

    def __init__(
        self,
        clock: Timekeeper,
        rng: random.Random,
        capacity: Capacity,
        interruptions: Interruptions,
        finished: Callable[[Resident], None],
        park: Callable[[Resident, BaseException], None],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._capacity = capacity
        self._interruptions = interruptions
        self._finished = finished
        self._park = park
        #: For tests: whether retries wait.
        self.delays = True

    def returned(self, attempt: Attempt, value: Any) -> None:
        """The code of an attempt, which has left, came to its end. What it returned is encoded at once, before other
        code can change it."""
        try:
            body = attempt.operation.returned(value, attempt.number)
        except BaseException as error:
            self._unstorable(attempt, error)
        else:
            self._note(attempt, body)

    def _unstorable(self, attempt: Attempt, error: BaseException) -> None:
        """The step has a result that cannot be stored. It is not tried again: what it did is done, and would be done
        once more (docs/decisions/0112)."""
        if is_interrupt(error):
            self._interruptions.abandon(attempt)
            raise error
        if not isinstance(error, EncodingError):  # of the value's own code, or of its class
            what = attempt.operation.spec.what
            refused = NotStorable(f"{what} cannot be stored: looking at it raised {describe_line(error)}")
            refused.__cause__ = error
            error = refused
        self.fail(attempt, error, is_final=True)

    def raised(self, attempt: Attempt, error: BaseException, was_told: bool = False) -> None:
        """The code raised. `was_told`: somebody else has cancelled the task in which it runs."""
        self._capacity.leave(attempt)
        is_final = False
        error = tame(error)
        if isinstance(error, Carried):
            is_final = error.is_final
            error = tame(error.error)
        elif is_interrupt(error):
            self._interruptions.abandon(attempt)
            raise error
        if attempt.unwanted:
            return  # as it was asked to
        if attempt.expired and isinstance(error, (asyncio.CancelledError, TimeoutError)):
            timeout = StepTimeout(attempt.expired)
            timeout.__cause__ = error
            self.fail(attempt, timeout)
        elif was_told and not self._interruptions.is_of_the_step(attempt, error):
            self._interruptions.abandon(attempt)
        else:
            self.fail(attempt, error, is_final)

    def fail(self, attempt: Attempt, error: BaseException, is_final: bool = False) -> None:
        """A failure of this attempt. Whatever else goes wrong while it is described: the run does not hang."""
        try:
            self._note(attempt, self._failure(attempt, error, is_final))
        except BaseException as raised:
            if is_interrupt(raised):
                self._interruptions.abandon(attempt)
                raise
            logger.error("a failure of step %r cannot be recorded", attempt.operation.location, exc_info=raised)
            self._park(attempt.resident, raised)

    def _note(self, attempt: Attempt, body: Body) -> None:
        """An outcome, if anybody still wants it."""
        operation, resident = attempt.operation, attempt.resident
        attempts, location = resident.attempts, operation.location
        if not attempt.unwanted and attempts.get(location) is attempt:
            del attempts[location]
            resident.arrivals.outcomes.append(StepOutcome(operation, body, self._clock.now()))
            self._finished(resident)

    def _failure(self, attempt: Attempt, error: BaseException, is_final: bool) -> Body:
        operation = attempt.operation
        policy = operation.spec.policy
        now, draw = self._clock.now(), self._rng.random()
        shown, next_at = _as_failure(attempt, error), None
        if not is_final:
            try:
                # A class named by retry_on is meant as the step raised it; a function sees what the workflow would.
                judged = error if isinstance(policy.retry_on, tuple) and isinstance(error, policy.retry_on) else shown
                next_at = next_attempt_at(policy, attempt.number, judged, operation.asked_at, now, draw)
            except BaseException as raised:  # a retry_on that raises: the step fails with both errors shown
                if is_interrupt(raised):
                    raise
                raised.__context__ = error
                shown = _as_failure(attempt, raised)
        if next_at is not None and not self.delays:
            next_at = now
        fault = encode_error(shown)
        return operation.failed(attempt.number, fault, next_at)


#: What these mean to Python and asyncio is about the task or the process; a workflow that gets one as the failure of a
#: step would end by it, past every `except Exception`.
_CONTROL = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


def _as_failure(attempt: Attempt, error: BaseException) -> BaseException:
    """What is recorded of an error: the error, or in the place of one that would end its workflow, a `StepFailed`."""
    if not isinstance(error, _CONTROL):
        return error
    fault = encode_error(error)
    name = fault.type.rpartition(":")[2]
    text = f"{name}: {fault.message}" if fault.message else name
    failed = StepFailed(
        f"attempt {attempt.number} of step {attempt.operation.location!r} raised {text}",
        type_name=fault.type,
        original_message=fault.message,
    )
    failed.__cause__ = error
    return failed.with_traceback(error.__traceback__)
