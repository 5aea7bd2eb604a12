"""Classes and values that the tests of this folder share."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic

from perdure.kernel.values import ValueCodec

T = TypeVar("T")


def seen_live(codec: ValueCodec[Any], value: Any, data: bytes) -> Any:
    """What workflow code sees of a value that was just encoded: scalars as they are, everything else decoded."""
    return value if type(value) in codec.scalars else codec.decode(data, "it")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Odd(enum.Enum):
    PAIR = (1, 2)
    HALF = 0.5


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Line:
    sku: str
    count: int = 1
    price: Decimal = Decimal(0)


@dataclass(frozen=True)
class Order:
    id: str
    lines: list[Line]
    placed: datetime | None = None
    weight: float | None = None


@dataclass(slots=True)
class Loose:
    name: str
    extra: Any = None
    more: dict = field(default_factory=dict)  # type: ignore[type-arg]


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Special(Line):
    discount: int = 0


@dataclass
class Box(Generic[T]):
    item: T


class Point(NamedTuple):
    x: int
    y: int = 0


class Shape(msgspec.Struct, frozen=True):
    kind: str
    points: tuple[Point, ...] = ()


@attrs.define
class Person:
    name: str
    tags: set[str] = attrs.field(factory=set)


class Movie(TypedDict, total=False):
    title: str
    year: int


class Model(pydantic.BaseModel):
    id: int
    when: datetime
    tags: list[str] = []


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    names: tuple[str, ...]
    members: set[int]


class Measured(pydantic.BaseModel):
    x: float
    y: float | None


#: Values that come back exactly, without an annotation.
UNTYPED: list[Any] = [
    None,
    True,
    False,
    0,
    "",
    [],
    {},
    (),
    set(),
    b"",
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**200),
    10**5000,
    1.5,
    -0.0,
    1e308,
    float("inf"),
    float("-inf"),
    "text \u00e9 \U0001f600 \0",
    "\ud800",
    '\ud83d\ude00 and \\ "quotes" \n',
    [1, [2, [3]]],
    (1, (2, [3])),
    {1, 2, 3},
    frozenset({"a", ("b", 1)}),
    {frozenset({1, 2}), frozenset({3})},
    b"\x00\xff",
    bytearray(b"abc"),
    {"a": {"b": (1,)}},
    {1: "int", None: "none", (1, 2): "tuple", False: 1.0, "s": "str"},
    {"$tuple": [1]},
    {"$tagged": 1},
    {"$": 1, "x": 2},
    {"\ud800": 1},
    {"z": 1, "a": 2},
    datetime(2024, 2, 29, 12, 30, 15, 123456),
    datetime(2024, 10, 27, 2, 30, fold=1),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1969, 7, 20, tzinfo=timezone(timedelta(hours=-5, minutes=-30, seconds=-1))),
    date(1, 1, 1),
    time(1, 2, 3, 4),
    time(1, 2, tzinfo=UTC),
    time(1, 2, fold=1),
    timedelta(days=-1, microseconds=1),
    timedelta.max,
    timedelta.min,
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("Infinity"),
    Fraction(1, 3),
    Fraction(10**5000, 3),
    UUID(int=7),
    1 + 2j,
    complex(-0.0, float("inf")),
    Path("/tmp/a b"),
    PurePosixPath("a/b"),
    PureWindowsPath("c:\\x"),
    IPv4Address("10.0.0.1"),
    IPv6Network("2001:db8::/32"),
]

_ORDER = Order("o-1", [Line("a", 2, Decimal("1.10"))], datetime(2024, 1, 1, tzinfo=UTC), 1.5)

#: (annotation, value): round trips by annotation.
TYPED: list[tuple[Any, Any]] = [
    (int, 5),
    (int, 2**100),
    (int, 10**5000),
    (float, 2.5),
    (float, float("inf")),
    (float | None, float("-inf")),
    (str, "\ud800"),
    (str | int, 3),
    (bool, False),
    (type(None), None),
    (bytes, b"\xff"),
    (bytearray, bytearray(b"x")),
    (datetime, datetime(2024, 1, 1, 1, 2, 3, 4)),
    (datetime, datetime(2024, 10, 27, 2, 30, fold=1)),
    (datetime, datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=3661)))),
    (list[datetime], [datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=3661)))]),
    (date, date(9999, 12, 31)),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(microseconds=-1)),
    (Decimal, Decimal("1.00")),
    (UUID, UUID(int=1)),
    (complex, 1 - 2j),
    (Path, Path("a/b")),
    (Fraction, Fraction(-1, 7)),
    (IPv4Address, IPv4Address("1.2.3.4")),
    (list[int], [1, 2]),
    (list[float], [1.0, float("inf")]),
    (list[str], ["\ud800"]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[str], {"b", "a"}),
    (frozenset[int], frozenset({3, 1})),
    (set[tuple[int, str]], {(1, "a"), (0, "b")}),
    (dict[str, set[int]], {"z": {1, 2}, "a": set()}),
    (dict[int, str], {1: "a"}),
    (dict[date, int], {date(2024, 1, 1): 1}),
    (dict[tuple[int, int], str], {(1, 2): "x"}),
    (dict[float, int], {float("inf"): 1}),
    (dict[str, int], {"$tagged": 1}),
    (dict[str, int], {"z": 1, "a": 2}),
    (dict[str, Any], {"a": (1, {2})}),
    (dict[str | int, str], {"1": "text", 1: "number"}),
    (dict[str, Decimal | list], {"a": Decimal(1), "b": [1]}),  # type: ignore[type-arg]
    (Colour, Colour.BLUE),
    (Odd, Odd.PAIR),
    (Odd, Odd.HALF),
    (Level, Level.HIGH),
    (Word, Word.YES),
    (Right, Right.READ | Right.WRITE),
    (list[Colour | None], [Colour.RED, None]),
    (set[Colour], {Colour.RED, Colour.BLUE}),
    (Order, _ORDER),
    (Order, Order("x", [], None, float("inf"))),
    (Order, Order("x", [], datetime(2024, 10, 27, 2, 30, fold=1))),
    (dict[str, list[Order]], {"k": [_ORDER]}),
    (Loose, Loose("n", (1, {2, 3}), {"k": b"v"})),
    (Loose, Loose("n")),
    (list[Loose], [Loose("n", Decimal(1))]),
    (Tree, Tree("a", [Tree("b"), Tree("c", [Tree("d")])])),
    (Line | Special, Special("s", 1, Decimal(2), 3)),
    (Line | Special, Line("s")),
    (str | datetime, datetime(2024, 1, 1)),
    (str | datetime, "2024-01-01T00:00:00"),
    (Box[int], Box(1)),
    (Box[Any], Box((1,))),
    (Point, Point(1, 2)),
    (list[Point], [Point(3)]),
    (Literal[Colour.RED, b"x"], Colour.RED),
    (Literal[True, "a"], True),
    (tuple[()], ()),
    (Iterable[int], [1]),
    (Iterable[int], (1, 2)),
    (Measured, Measured(x=float("inf"), y=None)),
    (Shape, Shape("k", (Point(1),))),
    (Person, Person("ann", {"x", "y"})),
    (Movie, {"title": "t"}),
    (Model, Model(id=1, when=datetime(2024, 1, 1, tzinfo=UTC), tags=["a"])),
    (list[Model | None], [None, Model(id=1, when=datetime(2024, 1, 1))]),
    (Strict, Strict(names=("a", "b"), members={3, 1, 2})),
]


def same(one: Any, other: Any) -> bool:
    """Equal, of the same type, all the way down; the sign of zero and the fold count."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one, other)) and all(map(same, one.values(), other.values()))
    if isinstance(one, (set, frozenset)):
        return one == other and {type(item) for item in one} == {type(item) for item in other}
    if isinstance(one, (float, complex)):
        return repr(one) == repr(other)
    if isinstance(one, (datetime, time)):
        return one == other and one.fold == other.fold
    return bool(one == other)


def random_value(rng: random.Random, depth: int = 4) -> Any:
    """Some nested value of built-in types."""
    leaves: list[Callable[[], Any]] = [
        lambda: rng.choice(UNTYPED),
        lambda: rng.randrange(-(2**70), 2**70),
        lambda: rng.random() * 10 ** rng.randrange(-300, 300),
        lambda: "".join(chr(rng.choice([36, 97, 0xE9, 0xD800, 0x1F600, 0, 34])) for _ in range(rng.randrange(5))),
        lambda: rng.randbytes(rng.randrange(6)),
        lambda: datetime(2000, 1, 1) + timedelta(microseconds=rng.randrange(10**17)),
    ]
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(leaves)()
    items = [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    hashable = [item for item in items if _is_hashable(item)]
    makers: list[Callable[[], Any]] = [
        lambda: items,
        lambda: tuple(items),
        lambda: set(hashable),
        lambda: frozenset(hashable),
        lambda: dict(zip(hashable, items, strict=False)),
        lambda: {rng.choice("ab$c") * rng.randrange(1, 3): item for item in items},
    ]
    return rng.choice(makers)()


def _is_hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True
