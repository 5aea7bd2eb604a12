"""Workflow code gets fresh values; scalars cost nothing."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from perdure.kernel.values import ArgumentsCodec, codec_for
from values.value_samples import Line, Tree, seen_live


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, "a" * 50),
        (int, 10**6),
        (float, 12345.678),
        (None, "x" * 50),
        (Any, 10**7),
        (str | None, "y" * 50),
    ],
)
def test_scalars_are_handed_out_as_they_are(annotation: Any, value: Any) -> None:
    """The hot path: no decoding (the bytes given here would not even decode)."""
    assert seen_live(codec_for(annotation), value, b"not json") is value


def test_mutable_values_are_not_aliased() -> None:
    """CONFORMANCE R8, FAULTS D30: mutating a value changes nothing recorded."""
    for annotation in (None, list[int]):
        codec, value = codec_for(annotation), [1, 2]
        data = codec.encode(value, "it")
        fresh = seen_live(codec, value, data)
        value.append(3)
        fresh.append(4)
        assert codec.decode(data, "it") == [1, 2]


def test_scalar_arguments_are_handed_out_as_they_are() -> None:
    def charge(order_id: str, cents: int) -> None: ...

    codec = ArgumentsCodec(inspect.signature(charge), {"order_id": str, "cents": int}, "step 'charge'")
    args = ("o" * 50, 10**9)
    assert codec.encode_call(args, {})[1] is args


def test_mutable_arguments_are_not_aliased() -> None:
    """FAULTS D31: a step that mutates its argument does not change the recorded input."""

    def work(lines: list[Line], tree: Any = None) -> None: ...

    codec = ArgumentsCodec(inspect.signature(work), {"lines": list[Line]}, "step 'work'")
    lines = [Line("a")]
    data, seen = codec.encode_call((lines,), {})
    assert seen is None
    args, kwargs = codec.decode(data)
    assert args == (lines,)
    assert kwargs == {}
    assert args[0] is not lines
    args[0].clear()
    assert codec.decode(data)[0] == ([Line("a")],)


def test_a_value_of_another_scalar_type_is_not_passed_through() -> None:
    """`-> float` returning an int is decoded, so that live and replay agree (law 9)."""
    fresh = seen_live(codec_for(float), 3, b"3")
    assert type(fresh) is float
    assert seen_live(codec_for(Tree), Tree("a"), b'{"name":"a"}') == Tree("a")
