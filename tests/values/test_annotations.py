"""Types are checked when a function is decorated."""

from __future__ import annotations

import collections.abc
import re
import socket
import threading
import typing
from dataclasses import dataclass
from typing import Any, Literal, NewType, Protocol, TypeVar

import pytest

from perdure.kernel.values import codec_for, why_not_storable
from values.value_samples import TYPED

T = TypeVar("T")
UserId = NewType("UserId", int)


class Plain: ...


class Named(Protocol):
    name: str


@dataclass
class Holder:
    ok: int
    conn: socket.socket | None = None


@dataclass
class Later:
    x: Undefined  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("annotation", [annotation for annotation, _ in TYPED], ids=str)
def test_every_supported_type_is_allowed(annotation: Any) -> None:
    assert why_not_storable(annotation) is None


@pytest.mark.parametrize(
    "annotation",
    [
        *(None, Any, object, T, list, dict, tuple, list[T], UserId, Literal["a", 1], Named, Later),
        *(collections.abc.Iterable[int], typing.Annotated[int, {}], collections.OrderedDict[str, int]),
        *(collections.abc.Mapping[str, Any], dict[str, object], collections.abc.Sequence, typing.Sequence),
    ],
    ids=str,
)
def test_types_that_say_little_are_allowed(annotation: Any) -> None:
    """Their values are stored as tagged JSON and looked at one by one."""
    assert why_not_storable(annotation) is None
    codec_for(annotation)


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (list[socket.socket], "list[socket.socket]: $[] is socket.socket"),
        (Plain, f"{__name__}.Plain: $ is {__name__}.Plain"),
        (Holder, f"{__name__}.Holder: $.conn is socket.socket"),
        (dict[str, tuple[int, Plain]], f"$[][1] is {__name__}.Plain"),
        (dict[Plain, int], "$[key] is"),
        (int | Plain, "$ is"),
        (collections.abc.Callable[[], int], "Callable"),
        (collections.abc.Iterator[int], "Iterator"),
        (type[int], "$ is type[int]"),
        (re.Pattern[str], "Pattern"),
        (threading.Event, "threading.Event"),
        (ValueError, "$ is ValueError"),
    ],
)
def test_types_that_can_never_be_stored_are_refused(annotation: Any, reason: str) -> None:
    """Each with the reason, which decorating shows before a run can fail. FAULTS E1, E13."""
    assert reason in (why_not_storable(annotation) or "")


def test_codecs_are_cached() -> None:
    assert codec_for(list[int]) is codec_for(list[int])
    assert codec_for(typing.Annotated[int, {}]).decode(b"1", "it") == 1


def test_a_new_type_is_its_supertype() -> None:
    codec = codec_for(UserId)
    assert codec.decode(codec.encode(UserId(5), "it"), "it") == 5


def test_an_unresolved_name_does_not_stop_the_others() -> None:
    codec = codec_for(Later)
    assert codec.decode(codec.encode(Later((1,)), "it"), "it") == Later((1,))


def test_an_annotated_subclass_of_str_is_restored() -> None:
    class Sku(str): ...

    codec = codec_for(list[Sku])
    (back,) = codec.decode(codec.encode([Sku("a")], "it"), "it")
    assert type(back) is Sku
