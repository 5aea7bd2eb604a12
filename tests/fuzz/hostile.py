"""Values that mean no good: `draw` gives one of them, `canon` says what one holds without running any code of it.

Whatever a value does when it is touched, it does by raising `Trap`. A `Trap` that comes out of a public call shows that
code of a value was run, and not expected to fail.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import enum
import fractions
import io
import ipaddress
import math
import pathlib
import random
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

import msgspec
import pydantic

from perdure import Break, Ok, storable


class Trap(Exception):
    """Raised by the methods of hostile values."""


def _trap(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise Trap("a method of a hostile value ran")


#: What a caller may touch without meaning it.
TOUCHED = (
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__repr__", "__str__", "__bool__",
    "__len__",
    "__iter__", "__contains__", "__getitem__", "__format__", "__index__", "__int__", "__float__", "__call__",
    "__await__", "__aiter__", "__next__", "__round__", "__abs__", "__add__", "__sub__", "__mul__", "__neg__",
    "__reduce_ex__", "__sizeof__", "__dir__", "__bytes__", "__fspath__", "__get__", "__set_name__", "__copy__",
    "keys", "items", "values", "strip", "encode", "isoformat", "utcoffset", "total_seconds", "get", "lower", "split",
)  # fmt: skip

# -- metaclasses -------------------------------------------------------------------------------------------------------


class Unhashable(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


class EqualToAll(type):
    """Its classes have the hash of `int` and are equal to everything."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(int)


class TrapsAttributes(type):
    def __getattribute__(cls, name: str) -> Any:
        raise Trap(name)


class TrapsAll(type):
    __eq__ = __hash__ = __repr__ = __bool__ = __instancecheck__ = __subclasscheck__ = __iter__ = _trap  # type: ignore[assignment]


class Misnamed(type):
    __name__ = property(_trap)  # type: ignore[assignment]
    __module__ = property(_trap)  # type: ignore[assignment]


METACLASSES: tuple[Any, ...] = (type, Unhashable, EqualToAll, TrapsAttributes, TrapsAll, Misnamed)
NAMES = ("Odd", "a.b", "", "x" * 400, "<lambda>", "é")


def a_class(rng: random.Random, *bases: type) -> Any:
    """A class some of whose methods are traps."""
    count = rng.choice((0, 1, 3, len(TOUCHED)))
    methods: dict[str, Any] = dict.fromkeys(rng.sample(TOUCHED, count), _trap)
    if rng.random() < 0.1:
        methods["__getattribute__"] = _trap
    if rng.random() < 0.1:
        methods["__getattr__"] = _trap
    if rng.random() < 0.1:
        methods["__class__"] = property(rng.choice((_trap, lambda _self: str, lambda _self: dict)))
    if rng.random() < 0.1:
        methods["__repr__"] = lambda _self: rng.choice(("caf\udce9", 7, "r" * 10_000))
    if bases and rng.random() < 0.2:
        methods["__slots__"] = ()
    if rng.random() < 0.1:
        methods["__hash__"] = None
    return rng.choice(METACLASSES)(rng.choice(NAMES), bases, methods)


def _instance(rng: random.Random, *bases: type, args: tuple[Any, ...] = ()) -> Any:
    made = bases[0].__new__(a_class(rng, *bases), *args) if bases else object.__new__(a_class(rng))
    if bases and bases[0] in (list, set, dict, bytearray):
        bases[0].__init__(made, *args)  # type: ignore[misc]
    if rng.random() < 0.2:
        with contextlib.suppress(AttributeError):  # it has no room for attributes
            object.__setattr__(made, "more", rng.choice((1, object(), made)))
    return made


# -- scalars -----------------------------------------------------------------------------------------------------------

TEXTS = (
    "", " ", "a", "\0", "a\0b", "caf\udce9", "\ud800", "\udfff" * 3, "x" * 10_000, "é" * 300, "a/b", "..", "$tagged",
    '{"$tagged":1}', "\u202e", "\x7f", "5 minutes", "-1 s", "1e999 s", "9" * 5_000 + " s", "none", "process", "waiting",
    "running", "step", "adds", "'; drop table runs; --", "%s %d %(x)s", "{x}", "\n", "💥", "\ufeff", "nan",
    "inf", "*", "%",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 100, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**400, -(10**5_000), True,
    False,
    0.0, -0.0, 0.5, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf, 1e18, complex(math.nan, -0.0), 3j,
)  # fmt: skip


class NoOffset(tzinfo):
    utcoffset = dst = tzname = fromutc = _trap  # type: ignore[assignment]


MOMENTS: tuple[Any, ...] = (
    datetime.max, datetime.min, datetime(2024, 10, 27, 2, 30, fold=1),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=14))), datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, tzinfo=NoOffset()), time(1, 2, 3, 4, fold=1), time(1, tzinfo=NoOffset()), date.max, date.min,
    timedelta.max, timedelta.min, timedelta(0), timedelta(microseconds=-1), timedelta(days=36_525),
    timedelta(seconds=0.01),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, ..., NotImplemented, b"", b"\xff\0", bytearray(b"x"), memoryview(b"abc"), Decimal("sNaN"), Decimal("-0.0"),
    Decimal("1E+999999"), fractions.Fraction(1, 3), uuid.UUID(int=1), pathlib.PurePosixPath("a\udce9"),
    pathlib.PureWindowsPath("c:/x"), ipaddress.ip_address("::1"), range(3), slice(1), Ok(1), Break(2), int, str, type,
    object, Exception, asyncio.CancelledError, len, print, sys, random, math, types.SimpleNamespace(a=1),
    types.MappingProxyType({"a": 1}), collections.ChainMap({}), collections.UserDict(a=1), list[int], dict[str, Any],
    weakref.ref(Trap), contextvars.ContextVar("x"), property(_trap), enum.Enum, lambda: 1, _trap,
)  # fmt: skip

# -- classes with fields -----------------------------------------------------------------------------------------------


@storable(name="fuzz-parcel")
@dataclass
class Parcel:
    body: Any
    tags: list[str] = field(default_factory=list)


@storable(name="fuzz-sealed")
@dataclass(frozen=True, slots=True)
class Sealed:
    body: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", self.body)


@storable(name="fuzz-pair")
class Pair(NamedTuple):
    one: Any
    other: Any = None


@storable(name="fuzz-crate")
class Crate(msgspec.Struct):
    body: Any


@storable(name="fuzz-model")
class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    body: Any
    _private: Any = pydantic.PrivateAttr(default=None)


@storable(name="fuzz-colour")
class Colour(enum.Enum):
    RED = 1
    GREEN = "caf\udce9"


class Trapped:
    """Every attribute is a trap, also those that all objects have."""

    __getattribute__ = _trap  # type: ignore[assignment]


# -- drawing -----------------------------------------------------------------------------------------------------------


class Draws:
    """Hostile values by a seed. `close` ends what must not be left open."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._open: list[Any] = []

    def close(self) -> None:
        for one in self._open:
            one.close()

    def value(self, depth: int = 3) -> Any:
        """Any value; more often than not a simple one."""
        rng = self.rng
        kinds = (self.text, self.number, self.instance, self.scalar, self.container, self.live, self.error, self.other)
        if depth <= 0:
            kinds = kinds[:4]
        kind = rng.choice(kinds)
        return kind(depth) if kind in (self.container, self.error) else kind()  # type: ignore[call-arg]

    def text(self) -> str:
        text = self.rng.choice(TEXTS)
        return text if self.rng.random() < 0.7 else _instance(self.rng, str, args=(text,))  # type: ignore[no-any-return]

    def number(self) -> Any:
        number = self.rng.choice(NUMBERS)
        if type(number) in (int, float) and self.rng.random() < 0.3:
            return _instance(self.rng, type(number), args=(number,))
        return number

    def scalar(self) -> Any:
        rng = self.rng
        base, args = rng.choice((
            (bytes, (b"x",)), (bytearray, (b"x",)), (complex, (1j,)), (Decimal, ("1.0",)), (timedelta, (1,)),
            (date, (2024, 1, 1)), (datetime, (2024, 1, 1)), (frozenset, ((1, 2),)), (tuple, ((1, 2),)),
        ))  # fmt: skip
        return _instance(rng, base, args=args)

    def instance(self) -> Any:
        return Trapped() if self.rng.random() < 0.1 else _instance(self.rng)

    def other(self) -> Any:
        rng = self.rng
        return rng.choice((rng.choice(MOMENTS), rng.choice(OTHERS), rng.choice(list(Colour)), a_class(rng)))

    def container(self, depth: int) -> Any:
        rng = self.rng
        items = [self.value(depth - 1) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        pairs = {f"{rng.choice(('a', '$tagged', '$object', 'é', 'b c'))}{n}"[: rng.choice((7, 9))]: item
                 for n, item in enumerate(items)}  # fmt: skip
        first = items[0] if items else None
        return rng.choice((
            lambda: items, lambda: tuple(items), lambda: pairs, lambda: _instance(rng, list, args=(items,)),
            lambda: _instance(rng, dict, args=(pairs,)), lambda: self._keyed(items), lambda: self._set(items),
            lambda: collections.deque(items, 5), lambda: collections.OrderedDict(pairs),
            lambda: collections.defaultdict(rng.choice((list, None, _trap)), pairs),
            lambda: collections.Counter("abca"), lambda: Parcel(first), lambda: Sealed(first), lambda: Pair(first),
            lambda: Crate(first), lambda: self._model(first),
            self._deep, self._cycle, lambda: [items, items], lambda: {"rows": [{"cell": first}]},
        ))()  # fmt: skip

    def _keyed(self, items: list[Any]) -> Any:
        try:
            return {item: n for n, item in enumerate(items)} | {1: 2, (1, "x"): 3}
        except Exception:
            return {1.5: items}

    def _set(self, items: list[Any]) -> Any:
        try:
            return {*items, 1, "x"}
        except Exception:
            return frozenset((1, None))

    def _model(self, body: Any) -> Any:
        made = Model.model_construct(body=body)
        made._private = self.rng.choice((None, 1, object()))
        return made

    def _deep(self) -> Any:
        value: Any = self.rng.choice((1, "\ud800", object()))
        wrap: Callable[[Any], Any] = self.rng.choice((
            lambda v: [v], lambda v: {"a": v}, lambda v: (v,), lambda v: Parcel(v), lambda v: collections.deque([v]),
            lambda v: {1: v}, lambda v: Model.model_construct(body=v),
        ))  # fmt: skip
        for _ in range(self.rng.choice((50, 99, 120, 1_000, 20_000))):
            value = wrap(value)
        return value

    def _cycle(self) -> Any:
        rng = self.rng
        one: list[Any] = [1]
        one.append(rng.choice((one, {"a": one}, (one,), collections.deque([one]), Parcel(one), [[one]])))
        made = Parcel(one)
        made.body = made
        return rng.choice((one, made, {"a": one}))

    def live(self) -> Any:
        """What belongs to this process and moment."""

        async def coroutine() -> None: ...

        async def agen() -> Any:
            yield 1

        kind = self.rng.randrange(9)
        if kind < 3:
            made: Any = (coroutine, (lambda: (n for n in range(3))), io.BytesIO)[kind]()
            self._open.append(made)
            return made
        rng = self.rng
        return rng.choice((
            threading.Lock, threading.Event, agen, lambda: sys._getframe(), lambda: asyncio.Event(), lambda: iter([1]),
            lambda: asyncio.get_running_loop().create_future(), lambda: rng, lambda: sys.exc_info,
            threading.current_thread, lambda: asyncio.current_task(), lambda: asyncio.get_running_loop(),
        ))()  # fmt: skip

    def error(self, depth: int) -> BaseException:
        """An exception whose text, arguments, attributes, notes or causes are hostile."""
        rng = self.rng
        base: Any = rng.choice(
            (ValueError, RuntimeError, OSError, KeyError, UnicodeDecodeError, StopIteration, TimeoutError)
        )
        args: tuple[Any, ...] = tuple(self.value(depth - 1) for _ in range(rng.randrange(3)))
        try:
            made = base(*args)
        except Exception:
            made = ValueError(*args)
        if rng.random() < 0.5:
            made = _instance(rng, ValueError, args=args)
        if rng.random() < 0.2:
            made = ExceptionGroup(rng.choice(TEXTS), [ValueError(*args), KeyError(rng.choice(TEXTS))])
        for change in rng.sample((self._attribute, self._note, self._cause, self._long_chain), rng.randrange(3)):
            try:
                change(made)
            except Exception:
                continue  # its own methods prevent it
        return made  # type: ignore[no-any-return]

    def _attribute(self, error: Any) -> None:
        state: dict[Any, Any] = BaseException.__dict__["__dict__"].__get__(error)
        state[self.rng.choice(("code", "caf\udce9", "args", "__notes__", 7))] = self.value(1)

    def _note(self, error: Any) -> None:
        error.add_note(self.rng.choice(TEXTS))

    def _cause(self, error: Any) -> None:
        BaseException.__dict__["__cause__"].__set__(error, self.rng.choice((error, self.error(1), KeyError("k"))))

    def _long_chain(self, error: Any) -> None:
        for _ in range(self.rng.choice((50, 3_000))):
            error.__context__ = error = ValueError("next")


# -- judging -----------------------------------------------------------------------------------------------------------


class Unknown(Exception):
    """A value that nothing should have been able to store."""


_BASES: tuple[Any, ...] = (
    bool,
    int,
    float,
    str,
    bytes,
    bytearray,
    complex,
    Decimal,
    datetime,
    date,
    time,
    timedelta,
    uuid.UUID,
)


_PARTS: dict[Any, tuple[str, ...]] = {date: ("year", "month", "day"), timedelta: ("days", "seconds", "microseconds")}


def _base_of(value: Any) -> Any:
    for parent in type.__dict__["__mro__"].__get__(type(value)):
        for base in (*_BASES, list, tuple, dict, set, frozenset, collections.deque):
            if parent is base:
                return base
    return None


def canon(value: Any) -> Any:
    """What a value holds, as texts and tuples, without running code of it; `Unknown` if that cannot be told."""
    kind = type(value)
    if value is None or any(kind is base for base in (Parcel, Sealed, Crate, Pair, Model, Ok, Break)):
        return (kind.__name__, *(canon(item) for item in _fields(value)))
    if any(kind is other for other in (Colour, fractions.Fraction, memoryview, type(ipaddress.ip_address("::1")))):
        return (kind.__name__, repr(value) if kind is not memoryview else repr(bytes(value)))
    if any(kind is path for path in (pathlib.PurePosixPath, pathlib.PureWindowsPath)):
        return (kind.__name__, str(value))
    base = _base_of(value)
    if base is None or issubclass_safely(kind, enum.Enum):
        raise Unknown(type.__dict__["__name__"].__get__(kind))
    if base in (datetime, time):
        parts = _PARTS[date] * (base is datetime) + ("hour", "minute", "second", "microsecond", "fold")
        own = date.__dict__ | base.__dict__
        return (base.__name__, *(own[part].__get__(value) for part in parts), repr(base.utcoffset(value)))
    if base is int or base is bytearray:
        return (base.__name__, hex(int.__index__(value)) if base is int else repr(bytes(memoryview(value))))
    if base in (date, timedelta):
        return (base.__name__, *(base.__dict__[part].__get__(value) for part in _PARTS[base]))
    if base in _BASES:
        return (base.__name__, base.__repr__(value))
    if base is dict:
        return (_dict_name(value), *((canon(key), canon(item)) for key, item in dict.items(value)))
    items = [canon(item) for item in base.__iter__(value)]
    return (base.__name__, *(sorted(items) if base in (set, frozenset) else items))


def _dict_name(value: Any) -> str:
    for base in (collections.Counter, collections.OrderedDict, collections.defaultdict):
        if issubclass_safely(type(value), base):
            return base.__name__
    return "dict"


def issubclass_safely(kind: Any, base: type) -> bool:
    return any(parent is base for parent in type.__dict__["__mro__"].__get__(kind))


def _fields(value: Any) -> Iterator[Any]:
    match value:
        case None:
            return
        case Parcel():
            yield from (value.body, value.tags)
        case Sealed() | Crate():
            yield value.body
        case Pair():
            yield from tuple(value)
        case Model():
            yield from (value.body, value._private)
        case _:
            yield value.value
