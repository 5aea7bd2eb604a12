"""Data written by older code: fields added and removed, annotations added, upcasters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic

from perdure.kernel.values import codec_for, storable
from values.value_samples import Line, Loose, Point


def test_removed_fields_are_ignored_and_added_ones_take_their_default() -> None:
    """FAULTS E15, typed and tagged."""
    assert codec_for(Line).decode(b'{"sku":"a","gone":1}', "it") == Line("a")
    assert codec_for(Loose).decode(b'{"$object":["Loose",{"name":"n","gone":[]}]}', "it") == Loose("n")


def test_an_annotation_may_be_added_later() -> None:
    """What was stored without one is made to fit it."""
    untyped = codec_for(None)
    assert codec_for(tuple[int, int]).decode(untyped.encode((1, 2), "it"), "it") == (1, 2)
    assert codec_for(set[int]).decode(untyped.encode({1, 2}, "it"), "it") == {1, 2}
    assert codec_for(dict[int, str]).decode(untyped.encode({1: "a"}, "it"), "it") == {1: "a"}


def test_any_may_become_a_type_and_back() -> None:
    assert codec_for(Loose).decode(b'{"name":"n","extra":[1]}', "it") == Loose("n", [1])
    assert codec_for(None).decode(codec_for(float).encode(float("inf"), "it"), "it") == float("inf")


def test_upcasters_run_in_typed_and_tagged_data() -> None:
    def split(data: dict[str, Any]) -> dict[str, Any]:
        if "name" in data:
            first, last = data["name"].split(" ")
            return {"first": first, "last": last}
        return data

    @storable(name="upcast-person", upcast=split)
    @dataclass
    class Person:
        first: str
        last: str

    new = Person("ada", "lovelace")
    assert codec_for(Person).decode(b'{"name":"ada lovelace"}', "it") == new
    assert codec_for(Person).decode(codec_for(Person).encode(new, "it"), "it") == new
    nested = b'[{"$object":["upcast-person",{"name":"ada lovelace"}]}]'
    assert codec_for(None).decode(nested, "it") == [new]


def test_upcaster_of_a_pydantic_model_runs_wherever_it_is_nested() -> None:
    @storable(name="upcast-model", upcast=lambda data: {"id": data.get("number", data.get("id"))})
    class Numbered(pydantic.BaseModel):
        id: int

    assert codec_for(list[Numbered]).decode(b'[{"number":3},{"id":4}]', "it") == [
        Numbered(id=3),
        Numbered(id=4),
    ]


def test_named_tuples_take_defaults() -> None:
    assert codec_for(Point).decode(b"[1]", "it") == Point(1, 0)
