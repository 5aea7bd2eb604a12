"""Values come back as they were, with and without an annotation."""

from __future__ import annotations

import inspect
import math
import random
from typing import Any

import pytest

from perdure.kernel.values import codec_for
from values.value_samples import TYPED, UNTYPED, Line, Order, Tree, random_value, same, seen_live

UNANNOTATED = codec_for(inspect.Parameter.empty)


@pytest.mark.parametrize("value", UNTYPED, ids=[type(value).__name__ for value in UNTYPED])
def test_untyped_values_come_back_exactly(value: Any) -> None:
    """FAULTS E2-E5, E8, E9, E12, E13, E17; CONFORMANCE R1: built-in types need no annotation."""
    data = UNANNOTATED.encode(value, "it")
    data.decode("utf-8")
    assert same(UNANNOTATED.decode(data, "it"), value)
    assert same(seen_live(UNANNOTATED, value, data), value)


@pytest.mark.parametrize(("annotation", "value"), TYPED, ids=[str(annotation) for annotation, _ in TYPED])
def test_typed_values_come_back_exactly(annotation: Any, value: Any) -> None:
    """FAULTS E2, E5, E9-E13: the annotation restores the type, also where plain JSON would lose something."""
    codec = codec_for(annotation)
    data = codec.encode(value, "it")
    assert same(codec.decode(data, "it"), value)
    assert same(codec.decode(memoryview(data), "it"), value)
    assert same(seen_live(codec, value, data), value)


def test_nan_is_not_null() -> None:
    """FAULTS E2: msgspec writes NaN as null; we do not, even where None would be allowed."""
    for annotation in (None, float, float | None, list[float], list[float | None], Order):
        value: Any = float("nan")
        if annotation in (list[float], list[float | None]):
            value = [value]
        if annotation is Order:
            value = Order("x", [], None, value)
        codec = codec_for(annotation)
        back = codec.decode(codec.encode(value, "it"), "it")
        number = back[0] if isinstance(back, list) else back.weight if isinstance(back, Order) else back
        assert math.isnan(number)


def test_typed_values_are_plain_json() -> None:
    """Readable in `sqlite3`."""
    assert codec_for(Line).encode(Line("a"), "it") == b'{"sku":"a","count":1,"price":"0"}'
    assert codec_for(None).encode({"a": [1, None]}, "it") == b'{"a":[1,null]}'
    assert codec_for(Tree).encode(Tree("x"), "it") == b'{"name":"x","children":[]}'


def test_random_nested_values_come_back_exactly() -> None:
    """Any nesting of built-in types, 1,500 of them; encoding what came back gives the same bytes."""
    rng = random.Random(20240229)
    for _ in range(1500):
        value = random_value(rng)
        data = UNANNOTATED.encode(value, "it")
        back = UNANNOTATED.decode(data, "it")
        assert same(back, value), value
        assert UNANNOTATED.encode(back, "it") == data


def test_random_values_inside_a_loose_class() -> None:
    """`Any` inside a dataclass is as exact as no annotation."""
    from values.value_samples import Loose

    rng = random.Random(7)
    codec = codec_for(dict[str, Loose])
    for _ in range(300):
        value = {"k": Loose("n", random_value(rng))}
        back = codec.decode(codec.encode(value, "it"), "it")
        assert same(back["k"].extra, value["k"].extra)


def test_a_zone_comes_back_as_its_offset() -> None:
    """FAULTS E12: the instant is kept; the tz database of the reader does not matter."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    first, second = (datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=fold) for fold in (0, 1))
    for codec in (codec_for(None), codec_for(datetime)):
        moments = [codec.decode(codec.encode(value, "it"), "it").timestamp() for value in (first, second)]
        assert moments == [first.timestamp(), second.timestamp()]


def test_int_where_float_is_annotated_is_the_same_live_and_replayed() -> None:
    codec = codec_for(float)
    for value in (3, 2**53 + 1, 2**80):
        data = codec.encode(value, "it")
        live, replayed = seen_live(codec, value, data), codec.decode(data, "it")
        assert same(live, replayed)
        assert live == value


def test_subclasses_of_builtin_types_become_the_builtin_type() -> None:
    """Live and replayed code see the same type. FAULTS E14."""
    text, number, mapping = type("S", (str,), {}), type("N", (int,), {}), type("D", (dict,), {})
    value = [text("a"), number(5), mapping(k=1), type("F", (float,), {})(-0.0), type("L", (list,), {})([1])]
    expected = ["a", 5, {"k": 1}, -0.0, [1]]
    assert same(UNANNOTATED.decode(UNANNOTATED.encode(value, "it"), "it"), expected)
    assert same(seen_live(codec_for(str), text("a"), codec_for(str).encode(text("a"), "it")), "a")
    assert same(seen_live(codec_for(dict[str, int]), mapping(k=number(1)), b'{"k":1}'), {"k": 1})
