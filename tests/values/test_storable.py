"""Registered classes are stored by name, without an annotation."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from perdure.errors import BadDefinition, NameClash, NotDecodable, NotStorable
from perdure.kernel.values import codec_for, storable, why_not_storable

UNTYPED = codec_for(None)


@storable
@dataclass(frozen=True)
class Data:
    items: tuple[Any, ...]


@storable
class Struct(msgspec.Struct):
    items: Any


@storable
@attrs.frozen
class Attrs:
    items: Any
    hidden: int = attrs.field(default=3, alias="shown")


@storable
class Named(NamedTuple):
    items: Any


@storable
class Choice(enum.Enum):
    ONE = (1, "one")


@storable
class Model(pydantic.BaseModel):
    items: set[int]
    inner: dict[str, float] = {}


class Money:
    def __init__(self, cents: int, currency: str) -> None:
        self.cents, self.currency = cents, currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.cents, self.currency))


storable(Money, name="money", encode=lambda m: (m.cents, m.currency), decode=lambda d: Money(*d))


@pytest.mark.parametrize(
    "value",
    [
        Data((1, {2})),
        Struct({"a": (1,)}),
        Attrs(b"x", 5),
        Named([(1,)]),
        Choice.ONE,
        Model(items={1, 2}, inner={"x": float("inf")}),
        Money(5, "EUR"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_registered_classes_come_back_untyped(value: Any) -> None:
    """Registered classes by name, nested at any depth, as members of containers too."""
    holder = {"deep": [Data((value,)), (value, 1)]}
    assert UNTYPED.decode(UNTYPED.encode(holder, "it"), "it") == holder


def test_own_functions_work_with_an_annotation_too() -> None:
    for annotation, value in ((Money, Money(1, "X")), (dict[str, list[Money]], {"a": [Money(2, "Y")]})):
        codec = codec_for(annotation)
        assert codec.decode(codec.encode(value, "it"), "it") == value
        assert why_not_storable(annotation) is None


def test_own_functions_win_over_the_fields_of_a_dataclass() -> None:
    @dataclass
    class Secret:
        text: str

    storable(Secret, name="secret", encode=lambda s: s.text[::-1], decode=lambda d: Secret(d[::-1]))
    for annotation in (None, Secret, list[Secret]):
        codec, value = codec_for(annotation), Secret("abc")
        data = codec.encode([value] if annotation == list[Secret] else value, "it")
        assert b"cba" in data
        back = codec.decode(data, "it")
        assert (back[0] if isinstance(back, list) else back) == value


def test_a_name_belongs_to_one_class() -> None:
    """FAULTS F4: the clash names both classes; a reload of the same class is fine."""

    def make(qualname: str) -> type:
        return type(qualname, (NamedTuple("Base", [("x", int)]),), {"__qualname__": qualname})

    storable(make("Reloaded"), name="clash")
    newer = make("Reloaded")
    storable(newer, name="clash")
    assert type(UNTYPED.decode(b'{"$object":["clash",{"x":1}]}', "it")) is newer
    with pytest.raises(NameClash, match=r"Reloaded and .*Other"):
        storable(make("Other"), name="clash")


def test_a_class_without_fields_needs_functions() -> None:
    class Plain: ...

    with pytest.raises(BadDefinition, match="Pass `encode=` and `decode=`"):
        storable(Plain)
    with pytest.raises(BadDefinition, match="both"):
        storable(Plain, encode=str)


def test_functions_that_raise_give_our_errors() -> None:
    class Bad: ...

    storable(Bad, name="bad", encode=lambda _: 1 / 0, decode=lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(NotStorable, match=r"\$\[0\] is a Bad that cannot be taken apart: ZeroDivisionError"):
        UNTYPED.encode([Bad()], "it")
    with pytest.raises(NotDecodable, match="does not make a Bad: ZeroDivisionError"):
        UNTYPED.decode(b'{"$object":["bad",1]}', "it")


def test_two_annotated_classes_of_one_name_are_told_apart() -> None:
    def make(module: str) -> Any:
        return dataclass(type("Same", (), {"__annotations__": {"x": "object"}, "__module__": module}))

    one, two = make(__name__), make("dataclasses")
    codec = codec_for(one | two)
    for cls in (one, two):
        assert type(codec.decode(codec.encode(cls((1,)), "it"), "it")) is cls
