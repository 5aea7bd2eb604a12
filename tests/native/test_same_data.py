"""Two values are compared alike in C and in Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from perdure import native
from perdure.kernel.exact import same_data

pytestmark = pytest.mark.skipif(not native.IN_USE, reason="nothing is in C here")


@dataclass
class Point:
    x: Any
    y: Any = 0


class Same(Point): ...


@dataclass(slots=True)
class Slotted:
    x: Any


class Text(str): ...


class Empty: ...


class Weird(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**63, 2**63 + 1, 0.0, -0.0, 1.0, math.nan, math.inf, "", "a", "é", b"", b"a",
    [], [1], [1.0], [True], (), (1,), {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {1: 2}, {1.0: 2}, {"a": [{"b": (1,)}]},
    Point(1), Point(1.0), Point(1, [2]), Point([Point(2)]), Same(1), Slotted(1), Text("a"), Empty(), Decimal(1), {1},
    len, type(Point), Weird("Odd", (), {"__init__": lambda self: None})(),
]  # fmt: skip


def _outcome(function: Any, one: Any, other: Any) -> Any:
    try:
        return function(one, other)
    except RuntimeError:
        return False  # a class that says nothing about itself; C does not ask it


def test_the_answers_are_the_same_for_every_pair() -> None:
    definition = native.definitions["same_data"]
    told = [
        (_outcome(same_data, one, other), _outcome(definition, one, other), index, place)
        for index, one in enumerate(VALUES)
        for place, other in enumerate(VALUES)
    ]
    assert [pair for pair in told if pair[0] is not pair[1]] == []
    same = {index for found, _, index, place in told if found and index == place}
    assert same == {index for index, value in enumerate(VALUES) if _is_known(value)}
    assert not [pair for pair in told if pair[0] and pair[2] != pair[3]]


def _is_known(value: Any) -> bool:
    """What is left to `difference`: all that is not data, and the float that is not equal to itself."""
    return type(value) not in (Slotted, Text, Empty, Decimal, set, type(len), type, type(VALUES[-1])) and not (
        isinstance(value, float) and math.isnan(value)
    )
