"""Objects and classes whose own methods raise or lie: each is stored as what it is, or refused, and no more."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Any, NoReturn

import pytest

from perdure import Engine, step, workflow
from perdure.errors import NotStorable, RunFailed
from perdure.kernel.values import ArgumentsCodec, codec_for
from perdure.kernel.values.faults import decode_error, encode_error


class Unhashable(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


class Lying(type):
    """Its classes have the hash of `int` and are equal to everything."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(int)


class Raising(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)

    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError

    def __subclasscheck__(cls, subclass: type) -> bool:
        raise RuntimeError

    def __hash__(cls) -> int:
        raise RuntimeError


class Pretender:
    """Says that it is a str."""

    @property
    def __class__(self) -> Any:
        return str

    def __str__(self) -> str:
        return "pretended"


class NoText(str):
    def __str__(self) -> NoReturn:
        raise RuntimeError

    __repr__ = __str__


class NoItems(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


class NoPairs(dict[Any, Any]):
    def items(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError

    def __iter__(self) -> NoReturn:
        raise RuntimeError


class NoOffset(tzinfo):
    def utcoffset(self, _when: datetime | None) -> timedelta:
        raise RuntimeError("no offset")


def _of(metaclass: Any) -> Any:
    return metaclass("Odd", (), {})()


REFUSED = [
    pytest.param(lambda: _of(Unhashable), id="unhashable class"),
    pytest.param(lambda: _of(Lying), id="lying class"),
    pytest.param(lambda: _of(Raising), id="raising class"),
    pytest.param(Pretender, id="pretender"),
    pytest.param(lambda: datetime(2024, 1, 1, tzinfo=NoOffset()), id="zone that raises"),
]
ANNOTATIONS: list[Any] = [None, int, str, list[int], str | None, dict[str, int]]


@pytest.mark.parametrize("make", REFUSED)
@pytest.mark.parametrize("annotation", ANNOTATIONS, ids=str)
def test_odd_objects_are_refused(make: Any, annotation: Any) -> None:
    """By themselves, as members, as keys where they can be."""
    codec = codec_for(annotation)
    for value in (make(), [make()], {"a": make()}, (1, {"b": [make()]})):
        with pytest.raises(NotStorable) as caught:
            codec.encode(value, "it")
        str(caught.value).encode()


@pytest.mark.parametrize("make", REFUSED)
def test_odd_arguments_are_refused(make: Any) -> None:
    def work(a: int, b: Any = None) -> None: ...

    codec = ArgumentsCodec(inspect.signature(work), {"a": int, "b": Any}, "step 'work'")
    codec.encode((1, 2), {})
    for args in ((make(),), (1, make())):
        with pytest.raises(NotStorable):
            codec.encode(args, {})


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (None, NoText("a"), "a"),
        (str, NoText("a"), "a"),
        (None, NoItems([1, 2]), [1, 2]),
        (list[int], NoItems([1, 2]), [1, 2]),
        (None, NoPairs(a=1), {"a": 1}),
        (dict[str, int], NoPairs(a=1), {"a": 1}),
    ],
)
def test_methods_of_subclasses_are_not_called(annotation: Any, value: Any, expected: Any) -> None:
    """FAULTS E14: it is read as the built-in value that it is, or refused."""
    codec = codec_for(annotation)
    back = codec.decode(codec.encode(value, "it"), "it")
    assert type(back) is type(expected)
    assert back == expected


def test_classes_that_lie_about_equality_get_codecs_of_their_own() -> None:
    lying = Lying("Lying", (), {})
    assert codec_for(lying) is not codec_for(int)
    assert codec_for(list[lying]) is not codec_for(list[int])  # type: ignore[valid-type]


@pytest.mark.parametrize("metaclass", [Unhashable, Lying, Raising])
def test_odd_classes_of_exceptions_and_their_arguments(metaclass: Any) -> None:
    """FAULTS E16: recording an exception never raises."""
    for error in (ValueError(_of(metaclass)), ValueError(NoText("x"))):
        assert isinstance(decode_error(encode_error(error)), ValueError)


@step(max_attempts=2, initial_delay=0)
async def untyped() -> Any:
    return _of(Unhashable)


@step(max_attempts=2, initial_delay=0)
async def typed() -> int:
    return _of(Unhashable)  # type: ignore[no-any-return]


@step
async def fine(number: int) -> int:
    return number


@workflow
async def asks(which: int) -> str:
    await fine(1)
    try:
        await (untyped() if which == 0 else typed())
    except NotStorable as error:
        return error.message
    return "stored"


@workflow
async def returns() -> Any:
    await fine(1)
    return _of(Unhashable)


def test_a_result_whose_class_cannot_be_hashed_fails_its_step() -> None:
    """It fails the step, or the run that returns it; nothing hangs."""

    async def scenario() -> None:
        async with Engine(":memory:") as engine, asyncio.timeout(20):
            for which in (0, 1):
                assert "$ is an Odd" in await (await engine.start(asks(which))).result()
            with pytest.raises(RunFailed, match=r"\$ is an Odd"):
                await (await engine.start(returns())).result()

    asyncio.run(scenario())
