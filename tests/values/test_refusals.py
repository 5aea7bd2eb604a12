"""What cannot be stored is refused at once, with the path and what to do."""

from __future__ import annotations

import re
import socket
import threading
from typing import Annotated, Any

import msgspec
import pytest

from perdure import limits
from perdure.errors import NotDecodable, NotStorable, TooLarge
from perdure.kernel.values import codec_for
from values.value_samples import Colour, Level, Line, Loose, Model, Movie, Order, Point, Special, Tree

WHAT = "the result of step 'fetch_report'"


def test_the_message_names_the_value_the_path_and_the_fix() -> None:
    """Which value, where in the result it is, and what to return instead. FAULTS E1, CONFORMANCE S5."""
    with socket.socket() as conn, pytest.raises(NotStorable) as caught:
        codec_for(None).encode({"rows": [1, 2, 3, {"conn": conn}]}, WHAT)
    assert caught.value.message == (
        "the result of step 'fetch_report' cannot be stored: $.rows[3].conn is a socket. "
        "Return plain data, or register the class with `perdure.storable`."
    )


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (None, lambda: 0, "$ is a function"),
        (None, [threading.Lock()], "$[0] is a lock"),
        (None, {"a b": object()}, "$['a b'] is an object"),
        (None, {(1, 2): {1: object()}}, "$[<tuple>][1] is an object"),
        (None, {object()}, "$[] is an object"),
        (None, Line("a"), "$ is a Line"),
        (None, Point(1), "$ is a Point"),
        (None, Colour.RED, "$ is a Colour"),
        (None, re.compile("x"), "$ is a Pattern"),
        (list[Any], [1, (object(),)], "$[1][0] is an object"),
        (Loose, Loose("n", [object()]), "$.extra[0] is an object"),
        (Order, Order("x", [Line("a", object())]), "$.lines[0].count is an object"),  # type: ignore[arg-type]
        (Line, Special("a"), "$ is a Special"),
        (list[Line], [Line("a"), Special("a")], "$[1] is a Special"),
    ],
)
def test_unstorable_values(annotation: Any, value: Any, path: str) -> None:
    """FAULTS E1, E13: the path leads to the culprit; a subclass never loses fields silently."""
    with pytest.raises(NotStorable, match=re.escape(f"{WHAT} cannot be stored: {path}")):
        codec_for(annotation).encode(value, WHAT)


@pytest.mark.parametrize(
    ("annotation", "value", "part"),
    [
        (int, "x", "Expected `int`, got `str` - at `$`"),
        (int, True, "Expected `int`, got `bool`"),
        (str, None, "Expected `str`, got `null`"),
        (list[int], [1, "x"], "$[1]"),
        (Order, Order("x", [Line(5)]), "$.lines[0].sku"),  # type: ignore[arg-type]
        (Order, {"lines": []}, "missing required field `id`"),
        (Movie, {"year": "x"}, "$.year"),
        (Annotated[int, msgspec.Meta(gt=0)], -1, ">= 1"),
        (Loose, {"name": 5}, "$.name"),
        (Model, {"id": "x"}, "id"),
    ],
)
def test_a_value_that_is_not_what_its_annotation_says(annotation: Any, value: Any, part: str) -> None:
    """Law 9, FAULTS E11: one clear error when it is recorded, never one on replay."""
    with pytest.raises(NotStorable, match=re.escape(part)):
        codec_for(annotation).encode(value, WHAT)


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def _deep_tree(levels: int) -> Tree:
    tree = Tree("leaf")
    for _ in range(levels):
        tree = Tree("node", [tree])
    return tree


def test_cycles_and_depth_are_refused_without_a_recursion_error() -> None:
    """FAULTS E6: depth 100,000 and circular references, typed and untyped."""
    cycle: list[Any] = []
    cycle.append(cycle)
    loop = Tree("a")
    loop.children.append(loop)
    for annotation, value in (
        (None, cycle),
        (None, _deep(100_000)),
        (list[Any], cycle),
        (Tree, loop),
        (Tree, _deep_tree(150)),
        (Tree, _deep_tree(400)),
    ):
        with pytest.raises(NotStorable, match="nested more than 200 levels deep, or contains itself"):
            codec_for(annotation).encode(value, WHAT)
    codec = codec_for(None)
    assert codec.decode(codec.encode(_deep(190), WHAT), WHAT) == _deep(190)
    assert codec_for(Tree).decode(codec_for(Tree).encode(_deep_tree(90), WHAT), WHAT) == _deep_tree(90)


def test_deep_json_is_not_decodable() -> None:
    """It is refused by name instead of ending the process. FAULTS E6."""
    with pytest.raises(NotDecodable, match="nested too deeply"):
        codec_for(None).decode(b"[" * 100_000 + b"]" * 100_000, WHAT)


def test_size_limit() -> None:
    """FAULTS E7: at the limit it fits; one byte more is refused with size and limit."""
    codec = codec_for(str)
    assert len(codec.encode("x" * (limits.VALUE_BYTES_MAX - 2), WHAT)) == limits.VALUE_BYTES_MAX
    with pytest.raises(TooLarge, match="is 2,097,153 bytes as JSON; the limit is 2,097,152"):
        codec.encode("x" * (limits.VALUE_BYTES_MAX - 1), WHAT)
    with pytest.raises(TooLarge):
        codec_for(None).encode(["x" * limits.VALUE_BYTES_MAX], WHAT)


@pytest.mark.parametrize(
    ("annotation", "data", "part"),
    [
        (int, b'"x"', "Expected `int`, got `str` - at `$`"),
        (list[Line], b'[{"sku":"a"},{}]', "missing required field `sku` - at `$[1]`"),
        (Level, b"7", "Invalid enum value 7"),
        (None, b"{", "truncated"),
        (None, b'[{"$datetime":"x"}]', "$[0] is not readable as '$datetime'"),
        (None, b'{"a":{"$new":1}}', "$.a has the tag '$new', which this release does not know"),
        (None, b'{"$object":["os.system","x"]}', "no class is registered under this name"),
        (None, b'{"$object":["Line",{"sku":"a"}]}', "no class is registered under this name"),
        (None, b'{"$object":5}', "damaged"),
        (None, b'{"$set":[[]]}', "not readable as '$set'"),
        (None, b'{"$tuple":5}', "where a list is expected"),
        (None, b"\x80\x04\x95", "malformed"),
        (Loose, b'{"$object":["Loose",{"more":{}}]}', "lacks the field 'name' of Loose"),
        (Model, b"{}", "id"),
    ],
)
def test_undecodable_data_says_where(annotation: Any, data: bytes, part: str) -> None:
    """FAULTS E10, E15, S1: no pickle, no class by name; the path of what is wrong."""
    with pytest.raises(NotDecodable, match=re.escape(part)) as caught:
        codec_for(annotation).decode(data, WHAT)
    assert caught.value.message.startswith(f"{WHAT} cannot be read back: ")
