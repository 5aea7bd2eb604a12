"""Retry arithmetic: a policy, a failed attempt and a drawn number give the time of the next attempt.

Pure on purpose: the engine draws the jitter and the resulting moment is recorded, so a replay never runs this.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from perdure import limits
from perdure.errors import BadDefinition, NonRetryable, RetryAfter

MICROSECONDS = 1_000_000

RetryOn = tuple[type[BaseException], ...] | Callable[[BaseException], bool]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how fast a step is tried. Durations are seconds; attempts include the first one."""

    max_attempts: int | None = limits.STEP_ATTEMPTS_DEFAULT  # None: until it works
    initial_delay: float = limits.STEP_INITIAL_DELAY_SECONDS
    factor: float = limits.STEP_BACKOFF_FACTOR
    max_delay: float | None = None  # None: `delay_cap`
    jitter: float = limits.STEP_JITTER
    timeout: float | None = None  # per attempt, from the start of the step's code
    queue_timeout: float | None = None  # per attempt, for what comes before: a place, a thread, a process
    total_timeout: float | None = None  # over all attempts and backoffs, from when the workflow asked
    retry_on: RetryOn = (Exception,)

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise BadDefinition(
                f"max_attempts counts the first attempt too, so it is at least 1, not {self.max_attempts}."
            )
        _require("initial_delay", self.initial_delay, minimum=0.0)
        _require("max_delay", self.delay_cap, minimum=0.0)
        self._require_order()
        _require("factor", self.factor, minimum=1.0)
        if not 0.0 <= self.jitter <= 1.0:  # also refuses NaN
            raise BadDefinition(f"jitter is a fraction between 0 and 1, not {self.jitter}.")
        for name in ("timeout", "queue_timeout", "total_timeout"):
            value = getattr(self, name)
            if value is not None:
                _require(name, value, minimum=0.0, above=True)

    @property
    def delay_cap(self) -> float:
        """No delay is longer, before jitter: as was asked for, or the usual one, unless already the first is longer."""
        return max(limits.STEP_MAX_DELAY_SECONDS, self.initial_delay) if self.max_delay is None else self.max_delay

    def _require_order(self) -> None:
        # The usual initial delay was not written by anybody: under a shorter `max_delay` it is that.
        if self.initial_delay > self.delay_cap and self.initial_delay != limits.STEP_INITIAL_DELAY_SECONDS:
            raise BadDefinition(
                f"the initial_delay of {self.initial_delay:g} s is longer than the max_delay of {self.max_delay:g} s, "
                "which no delay passes. Make max_delay as long, or leave one of them out."
            )


def _require(name: str, value: float, *, minimum: float, above: bool = False) -> None:
    good = value > minimum if above else value >= minimum
    if not good or not math.isfinite(value) or value > limits.DURATION_SECONDS_MAX:
        relation = "more than" if above else "at least"
        raise BadDefinition(f"{name} must be a number of {relation} {minimum:g} and at most a century, not {value}.")


def is_retryable(policy: RetryPolicy, error: BaseException) -> bool:
    """Whether this kind of failure may be tried again at all."""
    if isinstance(error, NonRetryable):
        return False
    if isinstance(error, RetryAfter):
        return True
    if callable(policy.retry_on):
        return bool(policy.retry_on(error))
    return isinstance(error, policy.retry_on)


def backoff_seconds(policy: RetryPolicy, attempt: int, draw: float) -> float:
    """The delay after failed attempt number `attempt`; `draw` in [0, 1) places it inside the jitter range."""
    try:
        delay = policy.initial_delay * policy.factor ** (attempt - 1)
    except OverflowError:  # 2.0 ** 1100 and the like
        delay = policy.delay_cap
    delay = min(delay, policy.delay_cap)
    return delay * (1.0 - policy.jitter + 2.0 * policy.jitter * draw)


def next_attempt_at(
    policy: RetryPolicy, attempt: int, error: BaseException, asked_at: int, now: int, draw: float
) -> int | None:
    """When to try again after attempt number `attempt` failed at `now`, or None to give up.

    Gives up at once when the next attempt could only start after `total_timeout`: waiting would not help.
    """
    if not is_retryable(policy, error):
        return None
    if policy.max_attempts is not None and attempt >= policy.max_attempts:
        return None
    seconds = error.seconds if isinstance(error, RetryAfter) else backoff_seconds(policy, attempt, draw)
    at = now + max(0, round(seconds * MICROSECONDS))
    deadline = total_deadline(policy, asked_at)
    if deadline is not None and at >= deadline:
        return None
    return at


def total_deadline(policy: RetryPolicy, asked_at: int) -> int | None:
    """The moment after which no attempt of this step may run, if it has one."""
    if policy.total_timeout is None:
        return None
    return asked_at + round(policy.total_timeout * MICROSECONDS)
