"""Retry arithmetic: attempts, delays, their cap, jitter and overflow, as numbers."""

from __future__ import annotations

import math

import pytest

from perdure import NonRetryable, RetryAfter, step
from perdure.errors import BadDefinition
from perdure.kernel.retry import RetryPolicy, backoff_seconds, is_retryable, next_attempt_at

SECOND = 1_000_000


async def _nothing() -> None: ...


def calm(**options: object) -> RetryPolicy:
    return RetryPolicy(**{"jitter": 0.0, **options})  # type: ignore[arg-type]


def test_first_delay_is_the_initial_delay_and_each_next_one_grows_by_the_factor() -> None:
    """The arithmetic of a backoff without jitter. CONFORMANCE S1."""
    policy = calm(initial_delay=0.5, factor=3.0, max_delay=1_000.0)
    assert [backoff_seconds(policy, attempt, 0.5) for attempt in (1, 2, 3, 4)] == [0.5, 1.5, 4.5, 13.5]


def test_delay_never_passes_max_delay() -> None:
    """However many attempts there were. CONFORMANCE S1."""
    policy = calm(initial_delay=1.0, factor=10.0, max_delay=30.0)
    assert [backoff_seconds(policy, attempt, 0.0) for attempt in (1, 2, 3, 50)] == [1.0, 10.0, 30.0, 30.0]


def test_initial_delay_above_the_usual_cap_is_kept() -> None:
    """CONFORMANCE S1: "1 hour" means an hour, and grows only up to a `max_delay` that somebody wrote."""
    policy = step(initial_delay="1 hour", jitter=0)(_nothing).spec.policy
    assert [backoff_seconds(policy, attempt, 0.0) for attempt in (1, 2, 9)] == [3600.0, 3600.0, 3600.0]
    growing = step(initial_delay="1 hour", max_delay="3 hours", jitter=0)(_nothing).spec.policy
    assert [backoff_seconds(growing, attempt, 0.0) for attempt in (1, 2, 3)] == [3600.0, 7200.0, 10800.0]
    shorter = step(max_delay="50 ms", jitter=0)(_nothing).spec.policy
    assert backoff_seconds(shorter, 1, 0.0) == 0.05


def test_option_that_contradicts_an_earlier_one_is_refused() -> None:
    """CONFORMANCE S1: the message names both."""
    quick = step(max_delay="10 s")(_nothing)
    with pytest.raises(BadDefinition, match="initial_delay of 3600 s is longer than the max_delay of 10 s"):
        quick.options(initial_delay="1 hour")
    assert quick.options(initial_delay="1 hour", max_delay="2 hours").spec.policy.delay_cap == 7200.0


@pytest.mark.parametrize("attempt", [1_100, 10_000, 10**9])
def test_delay_of_an_attempt_beyond_floating_point_is_the_cap(attempt: int) -> None:
    """CONFORMANCE S1, FAULTS D34: `2 ** 10000` overflows; the delay is capped, not an error."""
    assert backoff_seconds(calm(max_delay=7.0), attempt, 0.0) == 7.0


def test_zero_initial_delay_stays_zero_however_far_the_factor_grows() -> None:
    """CONFORMANCE S1: 0 times infinity must not become NaN."""
    delay = backoff_seconds(calm(initial_delay=0.0), 10_000, 0.0)
    assert not math.isnan(delay)
    assert delay in (0.0, calm().delay_cap)


@pytest.mark.parametrize("jitter", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("draw", [0.0, 0.25, 0.5, 0.999999])
def test_jitter_stays_within_its_bounds(jitter: float, draw: float) -> None:
    """CONFORMANCE S1: each delay lies in [1 - jitter, 1 + jitter] times the computed one."""
    delay = backoff_seconds(RetryPolicy(initial_delay=2.0, jitter=jitter), 1, draw)
    assert 2.0 * (1 - jitter) <= delay <= 2.0 * (1 + jitter)


def test_last_attempt_is_followed_by_none() -> None:
    """CONFORMANCE S1: `max_attempts` includes the first."""
    policy = calm(max_attempts=3)
    answers = [next_attempt_at(policy, attempt, ValueError(), 0, 0, 0.0) for attempt in (1, 2, 3)]
    assert [answer is None for answer in answers] == [False, False, True]


def test_no_limit_on_attempts_goes_on_for_ever() -> None:
    """`max_attempts=None` never gives up. CONFORMANCE S1."""
    assert next_attempt_at(calm(max_attempts=None), 10**6, ValueError(), 0, 0, 0.0) == 30 * SECOND


def test_total_timeout_gives_up_when_the_next_attempt_could_only_start_after_it() -> None:
    """CONFORMANCE S3: retrying ends even in a backoff."""
    policy = calm(max_attempts=None, initial_delay=4.0, total_timeout=10.0)
    assert next_attempt_at(policy, 1, ValueError(), 0, 5 * SECOND, 0.0) == 9 * SECOND
    assert next_attempt_at(policy, 1, ValueError(), 0, 6 * SECOND, 0.0) is None


def test_retry_after_chooses_the_delay_and_still_counts() -> None:
    """The error says when; how often is still the policy's to say. CONFORMANCE S1."""
    policy = calm(max_attempts=2, retry_on=(KeyError,))
    assert next_attempt_at(policy, 1, RetryAfter(77.0), 0, 0, 0.0) == 77 * SECOND
    assert next_attempt_at(policy, 2, RetryAfter(77.0), 0, 0, 0.0) is None


def test_which_errors_are_retried() -> None:
    """CONFORMANCE S1: `retry_on` as types and as a predicate; `NonRetryable` beats both."""
    by_type = calm(retry_on=(LookupError,))
    assert is_retryable(by_type, KeyError())
    assert not is_retryable(by_type, ValueError())
    by_predicate = calm(retry_on=lambda error: "again" in str(error))
    assert is_retryable(by_predicate, ValueError("try again"))
    assert not is_retryable(by_predicate, ValueError("no"))
    always = calm(retry_on=lambda error: True)
    assert not is_retryable(always, NonRetryable("stop"))


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": 2.5},
        {"max_attempts": True},
        {"initial_delay": -1},
        {"initial_delay": math.nan},
        {"initial_delay": math.inf},
        {"max_delay": -0.1},
        {"max_delay": "soon"},
        {"initial_delay": "1 hour", "max_delay": "1 minute"},
        {"queue_timeout": 0},
        {"factor": 0.5},
        {"factor": math.nan},
        {"factor": math.inf},
        {"factor": "two"},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": math.nan},
        {"total_timeout": 0},
        {"total_timeout": math.inf},
        {"timeout": 200 * 366 * 86_400},
        {"retry_on": 42},
        {"retry_on": [ValueError]},
        {"retry_on": (ValueError, "KeyError")},
        {"concurrency": 0},
        {"concurrency": "many"},
        {"isolation": "container"},
    ],
    ids=str,
)
def test_impossible_policy_is_refused_where_it_is_written(options: dict[str, object]) -> None:
    """FAULTS D34: a policy that makes no sense is an error at the definition, not at the first failure."""

    async def anything() -> None: ...

    # BadArgument for what is not a duration at all, BadDefinition for what makes no sense as a policy.
    with pytest.raises((BadDefinition, ValueError)) as caught:
        step(**options)(anything)  # type: ignore[call-overload]
    assert getattr(caught.value, "code", "") in {"P-222", "P-230"}


def test_options_for_one_call_are_checked_too() -> None:
    """As those of the decorator are. FAULTS D34."""

    @step
    async def anything() -> None: ...

    with pytest.raises(BadDefinition):
        anything.options(max_attempts=0)
    with pytest.raises(BadDefinition):
        anything.options(isolation="process")  # not found by name from another process
