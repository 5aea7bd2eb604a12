"""Arguments are stored by parameter name and come back so that the function can be called."""

from __future__ import annotations

import inspect
import re
import socket
import typing
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import NotDecodable, NotStorable, TooLarge
from perdure.kernel.values import ArgumentsCodec
from values.value_samples import Line


def codec(function: Callable[..., Any]) -> ArgumentsCodec:
    return ArgumentsCodec(inspect.signature(function), typing.get_type_hints(function), f"step {function.__name__!r}")


def charge(order_id: str, cents: int = 5, rate: float = 1.0) -> None: ...
def only(a: int, b: int = 2, /, c: int = 3) -> tuple[int, ...]: ...
def every(a: int, *rest: tuple[int, int], key: str, other: Any = None, **more: Line) -> None: ...
def untyped(a, b=None): ...  # type: ignore[no-untyped-def]
def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "data"),
    [
        (charge, ("o-1", 1999), {}, b'{"order_id":"o-1","cents":1999}'),
        (charge, ("o-1",), {}, b'{"order_id":"o-1"}'),
        (charge, (), {"order_id": "x"}, b'{"order_id":"x"}'),
        (nothing, (), {}, b"{}"),
        (only, (1, 2), {"c": 4}, b'{"a":1,"b":2,"c":4}'),
        (every, (1, (2, 3)), {"key": "k", "z": Line("s")}, None),
        (untyped, ((1, 2), None), {}, b'{"a":{"$tuple":[1,2]},"b":null}'),
        (charge, ("\ud800", 10**5000, float("inf")), {}, None),
        (charge, ("x", 2**64), {}, None),
    ],
)
def test_calls_come_back(function: Any, args: Any, kwargs: Any, data: bytes | None) -> None:
    """Defaults are not stored; `*args` and `**kwargs` stand under their names."""
    arguments = codec(function)
    encoded = arguments.encode(args, kwargs)
    assert data is None or encoded == data
    signature = inspect.signature(function)
    decoded = arguments.decode(encoded)
    assert signature.bind(*decoded[0], **decoded[1]) == signature.bind(*args, **kwargs)
    assert arguments.encode_call(args, kwargs) in ((encoded, None), (encoded, args))
    assert arguments.encode(*arguments.decode(encoded)) == encoded


def test_the_shape_of_var_arguments() -> None:
    data = codec(every).encode((1, (2, 3)), {"key": "k", "z": Line("s")})
    assert data == b'{"a":1,"rest":[[2,3]],"key":"k","more":{"z":{"sku":"s","count":1,"price":"0"}}}'


def test_a_gap_before_a_given_argument_is_filled_with_its_default() -> None:
    assert codec(charge).decode(b'{"order_id":"x","rate":2.0}') == (("x", 5, 2.0), {})
    assert codec(only).decode(b'{"a":1,"c":9}') == ((1, 2, 9), {})


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (charge, (), {}),
        (charge, ("a", 1, 1.0, 9), {}),
        (charge, ("a",), {"order_id": "b"}),
        (charge, ("a",), {"centz": 1}),
        (every, (1,), {}),
        (only, (), {"a": 1}),
    ],
)
def test_a_wrong_call_is_a_type_error_that_names_the_function(function: Any, args: Any, kwargs: Any) -> None:
    """As a call of the plain function would be. FAULTS F6."""
    with pytest.raises(TypeError, match=f"^step '{function.__name__}': "):
        codec(function).encode(args, kwargs)


def test_errors_name_the_argument() -> None:
    """Which of them could not be stored. FAULTS E1, F6."""
    with pytest.raises(NotStorable, match=r"argument 'cents' of step 'charge' cannot be stored.*Expected `int`"):
        codec(charge).encode(("a", "b"), {})
    with (
        socket.socket() as conn,
        pytest.raises(NotStorable, match=r"argument 'b' of step 'untyped' .*\$\[0\] is"),
    ):
        codec(untyped).encode((1,), {"b": [conn]})
    with pytest.raises(NotStorable, match="argument 'z' of step 'every'"):
        codec(every).encode((1,), {"key": "k", "z": 5})
    with pytest.raises(NotStorable, match="a keyword of step 'every'"):
        codec(every).encode((1,), {"key": "k", "\ud800": Line("a")})
    with pytest.raises(TooLarge, match="the input of step 'untyped' is 3,"):
        codec(untyped).encode(("x" * 1_500_000, "y" * 1_500_000), {})


@pytest.mark.parametrize(
    ("function", "data", "part"),
    [
        (charge, b'{"order_id":"x","gone":1}', "has an argument 'gone' that the function does not take"),
        (charge, b'{"cents":1}', "lacks the argument 'order_id'"),
        (every, b'{"a":1}', "lacks the argument 'key'"),
        (charge, b'{"order_id":5}', "argument 'order_id' of step 'charge' cannot be read back"),
        (every, b'{"a":1,"key":"k","rest":5}', "argument 'rest'"),
        (charge, b"[1]", "the input of step 'charge' cannot be read back"),
        (charge, b"", "the input of step 'charge' cannot be read back"),
    ],
)
def test_input_that_does_not_fit_the_function(function: Any, data: bytes, part: str) -> None:
    """FAULTS E15: a changed signature is reported by name."""
    with pytest.raises(NotDecodable, match=re.escape(part)):
        codec(function).decode(data)


def test_nan_among_scalars() -> None:
    args, _ = codec(charge).decode(codec(charge).encode(("a", 1, float("nan")), {}))
    assert args[2] != args[2]
