"""Options that make no sense are refused at definition, before anything runs."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from perdure import PerdureError, step, workflow
from perdure.kernel.retry import RetryPolicy, backoff_seconds, next_attempt_at

BAD: list[dict[str, Any]] = [
    {"max_attempts": 0},
    {"max_attempts": -1},
    {"max_attempts": 2.5},
    {"max_attempts": True},
    {"max_attempts": "3"},
    {"initial_delay": -1},
    {"initial_delay": math.nan},
    {"initial_delay": math.inf},
    {"initial_delay": "soon"},
    {"initial_delay": True},
    {"max_delay": -0.1},
    {"max_delay": "101 years of solitude"},
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
    {"timeout": ""},
    {"total_timeout": 0},
    {"total_timeout": timedelta(days=40_000)},
    {"retry_on": "ValueError"},
    {"retry_on": 5},
    {"retry_on": int},
    {"concurrency": 0},
    {"concurrency": -3},
    {"concurrency": "many"},
    {"isolation": "thread"},
    {"on_retry": "not a function"},
]


async def work() -> None: ...


@pytest.mark.parametrize("options", BAD, ids=str)
def test_a_bad_option_is_refused_at_definition(options: dict[str, Any]) -> None:
    """FAULTS D34: a perdure error that names the option, from the decorator and from `.options` alike."""
    name = next(iter(options))
    with pytest.raises(PerdureError, match=name):
        step(**options)(work)
    with pytest.raises(PerdureError, match=name):
        step(work).options(**options)


GOOD: list[dict[str, Any]] = [
    {"max_attempts": None},
    {"max_attempts": 1, "initial_delay": 0, "max_delay": "1h 30m"},
    {"timeout": timedelta(seconds=3), "total_timeout": "2 days"},
    {"retry_on": ValueError},
    {"retry_on": (ValueError, KeyError)},
    {"retry_on": lambda error: False},
    {"jitter": 0, "factor": 1},
    {"concurrency": 1},
]


@pytest.mark.parametrize("options", GOOD, ids=lambda options: "-".join(options))
def test_a_good_option_is_accepted(options: dict[str, Any]) -> None:
    """Durations are numbers, timedeltas or text everywhere."""
    assert step(**options)(work).name == "work"


def test_options_of_one_call_do_not_change_the_step() -> None:
    """`.options` gives a copy; what it does not mention stays."""
    original = step(max_attempts=5, timeout=3)(work)
    copy = original.options(timeout=7)
    assert (original.spec.policy.timeout, original.spec.policy.max_attempts) == (3, 5)
    assert (copy.spec.policy.timeout, copy.spec.policy.max_attempts) == (7, 5)
    assert copy.options(max_attempts=None).spec.policy.max_attempts is None


@pytest.mark.parametrize("grace", [-1, math.nan, "never"])
def test_a_bad_cancel_grace_is_refused(grace: Any) -> None:
    with pytest.raises(PerdureError):
        workflow(name="graceful", cancel_grace=grace)(work)


def test_a_backoff_never_overflows() -> None:
    """FAULTS D34: 2 ** 10,000 is capped by max_delay."""
    policy = RetryPolicy(max_attempts=None)
    assert backoff_seconds(policy, 10_000, 0.5) == policy.delay_cap == 30.0
    assert next_attempt_at(policy, 10_000, ValueError(), 0, 0, 0.5) == 30_000_000
