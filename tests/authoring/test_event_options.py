"""Options of `@event`: every value is taken, anything else is refused while decorating."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure import event
from perdure.errors import BadDefinition, NameClash
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy


@dataclass
class Plain:
    number: int


def policy_of(**options: Any) -> EventPolicy:
    decorated: Any = event(name="tests.optioned", **options)(Plain)
    return decorated.__perdure_event__.policy  # type: ignore[no-any-return]


def test_the_defaults() -> None:
    """The first value of each."""
    assert policy_of() is DEFAULT_POLICY
    assert EventPolicy("after_create", True, None, "dead_letter") == DEFAULT_POLICY


@pytest.mark.parametrize("delivery", ["after_create", "after_wait", "all", "first"])
@pytest.mark.parametrize("consume", [True, False])
@pytest.mark.parametrize("undelivered", ["dead_letter", "broadcast", "discard"])
def test_every_value_is_taken(delivery: str, consume: bool, undelivered: str) -> None:
    policy = policy_of(delivery=delivery, consume=consume, undelivered=undelivered, expires="2 minutes")
    assert policy == EventPolicy(delivery, consume, 120_000_000, undelivered)
    assert policy.single is (consume or delivery == "first")


@pytest.mark.parametrize("expires", [1.5, timedelta(seconds=1.5), "1.5 s"])
def test_durations(expires: Any) -> None:
    assert policy_of(expires=expires).expires == 1_500_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": "everyone"}, "'after_create' or 'after_wait' or 'all' or 'first', not 'everyone'"),
        ({"undelivered": "lose"}, "'dead_letter' or 'broadcast' or 'discard', not 'lose'"),
        ({"consume": "yes"}, "True or False, not 'yes'"),
        ({"consume": 1}, "True or False, not 1"),
        ({"expires": 0}, "more than zero"),
        ({"expires": -1}, "more than zero"),
        ({"expires": "soon"}, "was not understood"),
        ({"expires": float("nan")}, "at most a century"),
        ({"expires": True}, "not True"),
        ({"delivery": None}, "not None"),
        ({"delivery": ["all"]}, "not \\['all'\\]"),
    ],
)
def test_other_values_are_refused_while_decorating(options: dict[str, Any], message: str) -> None:
    """Bad input: unknown option values."""
    with pytest.raises(BadDefinition, match=message):
        event(name="tests.never", **options)(Plain)


def test_another_class_under_the_same_name_is_refused() -> None:
    """Bad input: an event class redefined; the first one stays."""

    @event(name="tests.optioned-once")
    @dataclass
    class First:
        number: int

    with pytest.raises(NameClash, match=r"tests\.optioned-once"):

        @event(name="tests.optioned-once", consume=False)
        @dataclass
        class Second:
            number: int

    assert First.__perdure_event__.policy is DEFAULT_POLICY  # type: ignore[attr-defined]
