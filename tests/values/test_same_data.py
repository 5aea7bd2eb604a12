"""Which values `same_data` takes for the same without asking their classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from perdure.kernel.values.exact import same_data


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


def _same(one: Any, other: Any) -> bool:
    try:
        return same_data(one, other)
    except RuntimeError:
        return False  # a class that says nothing about itself


def test_only_data_is_the_same_as_itself_and_nothing_is_the_same_as_something_else() -> None:
    pairs = {
        (index, place) for index, one in enumerate(VALUES) for place, other in enumerate(VALUES) if _same(one, other)
    }
    assert pairs == {(index, index) for index, value in enumerate(VALUES) if _is_known(value)}


def _is_known(value: Any) -> bool:
    """What is left to `difference`: all that is not data, and the float that is not equal to itself."""
    return type(value) not in (Slotted, Text, Empty, Decimal, set, type(len), type, type(VALUES[-1])) and not (
        isinstance(value, float) and math.isnan(value)
    )
