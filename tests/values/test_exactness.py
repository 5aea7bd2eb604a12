"""A value comes back exactly, or is refused with its path when it is stored: nothing of it is lost without a word."""

from __future__ import annotations

import math
import re
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from dataclasses import InitVar, dataclass, field
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from http import HTTPStatus
from threading import Lock
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NewType, Optional, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest

from perdure.errors import NotStorable
from perdure.kernel.values import codec_for, storable
from perdure.kernel.values.exact import difference
from values.value_samples import TYPED, UNTYPED, Colour, Level, Line, Right, Word

T = TypeVar("T")
Price = NewType("Price", float)


def trips(annotation: Any, value: Any, times: int = 10) -> Any:
    """The value after so many trips; each must bring back what went in, and write the same bytes."""
    codec = codec_for(annotation)
    first = codec.encode(value, "it")
    back = value
    for _ in range(times):
        data = codec.encode(back, "it")
        assert data == first
        back = codec.decode(data, "it")
        found = difference(value, back)
        assert found is None, found.text()
    return back


class Base(pydantic.BaseModel):
    x: int


class Derived(Base):
    y: int = 0


class Holder(pydantic.BaseModel):
    items: list[Base]


class Login(pydantic.BaseModel):
    pw: pydantic.SecretStr
    token: str = pydantic.Field(default="none", exclude=True)
    _uses: int = pydantic.PrivateAttr(default=0)


class Hidden(pydantic.BaseModel):
    token: str = pydantic.Field(default="none", exclude=True)
    _uses: int = pydantic.PrivateAttr(default=0)


class Extra(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    some: int = pydantic.Field(alias="someName", serialization_alias="another")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.some


class Shouting(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def louder(cls, name: str) -> str:
        return name + "!"


class Numbers(pydantic.RootModel[list[int]]): ...


class Vault:
    """Stands for a secret whose class has functions that encrypt."""

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass
class Normalised:
    runs: ClassVar[int] = 0
    name: str

    def __post_init__(self) -> None:
        type(self).runs += 1
        self.name += "!"


@dataclass
class Derives:
    a: int
    b: int = field(init=False, default=0)
    c: int = field(init=False)

    def __post_init__(self) -> None:
        self.b = self.c = self.a


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    a: int
    b: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", self.a + 1)


@dataclass
class Seeded:
    seed: InitVar[int]
    value: int = 0

    def __post_init__(self, seed: int) -> None:
        self.value = seed


@dataclass
class Guarded:
    count: int

    def __post_init__(self) -> None:
        self.lock = Lock()
        self.count += 1


class GuardedMore(Guarded): ...


@dataclass
class Lazy:
    a: int

    @cached_property
    def square(self) -> int:
        return self.a**2


@dataclass
class Box(Generic[T]):
    value: T | None


@dataclass
class Nested:
    inner: list[Normalised | None]
    by_name: dict[str, Derives]
    pair: tuple[Frozen, int]


@attrs.define
class Converted:
    runs: ClassVar[int] = 0
    a: int = attrs.field(converter=lambda a: a + 1)
    b: int = attrs.field(default=1)

    @b.validator
    def _check(self, _attribute: Any, _value: int) -> None:
        Converted.runs += 1

    def __attrs_post_init__(self) -> None:
        self.b += 1


class Hooked(msgspec.Struct, rename="camel", omit_defaults=True):
    some_name: int
    other: int = 5

    def __post_init__(self) -> None:
        self.some_name += 1


class HookedChild(Hooked, frozen=False):
    third: int = 0


class Short(NamedTuple):
    a: int
    b: int = 0


class Movie(TypedDict):
    title: str


def _shown(**given: Any) -> Hidden:
    made = Hidden(**given)
    made._uses = 7
    return made


def _changed_derives() -> Derives:
    made = Derives(1)
    made.b, made.c = 9, 8
    return made


def _with_attribute() -> Line:
    made = Line("a")
    made.seen = {1, 2}  # type: ignore[attr-defined]
    return made


KEPT: list[tuple[Any, Any]] = [
    (Price | None, Price(math.nan)),
    (Optional[Annotated[float, "percent"]], math.inf),  # noqa: UP045
    (Box[float], Box(-math.inf)),
    (list[Price | None], [Price(math.nan), None]),
    (Hidden, _shown(token="t0ken")),
    (list[Hidden], [_shown()]),
    (Base, Base(x=1)),
    (Holder, Holder(items=[Base(x=1)])),
    (Extra, Extra(a=1, z=[1, {"y": 2}])),  # type: ignore[call-arg]
    (Aliased, Aliased(some=1)),
    (Shouting, Shouting(name="x")),
    (Numbers, Numbers([1, 2])),
    (Normalised, Normalised("x")),
    (Derives, _changed_derives()),
    (Frozen, Frozen(a=1)),
    (Seeded, Seeded(3)),
    (Nested, Nested([Normalised("x"), None], {"k": _changed_derives()}, (Frozen(a=1), 2))),
    (dict[str, list[Nested]], {"k": [Nested([], {}, (Frozen(a=1), 2))]}),
    (Normalised | int, Normalised("x")),
    (Line, _with_attribute()),
    (Converted, Converted(1)),
    (list[Converted], [Converted(1, 2)]),
    (Hooked, Hooked(1)),
    (list[Hooked], [Hooked(1, 7)]),
    (HookedChild, HookedChild(1, 2, 3)),
    (Short, Short(1)),
    (tuple[int, ...] | list[int], (1, 2)),
    (Movie, {"title": "t"}),
    (Movie, {"title": "t", "year": 1}),
    (Any, Counter("abca")),
    (Any, defaultdict(list, {"a": [1]})),
    (Any, defaultdict(None, {"a": 1})),
    (Any, deque([1, (2,)], 5)),
    (Any, deque()),
    (Any, memoryview(b"abc")),
    (Counter[str], Counter("abca")),
    (OrderedDict[str, int], OrderedDict(b=1, a=2)),
    (dict[str, int], Counter("ab")),
    (deque[int], deque([1])),
    (bool | int, True),
    (Colour, Colour.RED),
    (Right, Right.READ | Right.WRITE),
    (Any, datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1)),
    (datetime, datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))),
    (datetime | None, datetime(2024, 1, 1, fold=1)),
    (list[time], [time(1, tzinfo=timezone(timedelta(seconds=61)))]),
    (Decimal, Decimal("-0.00E+7")),
    (Decimal, Decimal("sNaN123")),
]


@pytest.mark.parametrize(("annotation", "value"), KEPT, ids=[f"{str(a)[-30:]}-{i}" for i, (a, _) in enumerate(KEPT)])
def test_values_come_back_exactly_ten_times(annotation: Any, value: Any) -> None:
    """FAULTS E2, E9-E14: also what their JSON does not show."""
    trips(annotation, value)


@pytest.mark.parametrize(("annotation", "value"), [*TYPED, *((None, value) for value in UNTYPED)], ids=lambda _: "")
def test_every_listed_type_comes_back_exactly_ten_times(annotation: Any, value: Any) -> None:
    """Encoding what came back gives the same bytes each time."""
    trips(annotation, value)


REFUSED: list[tuple[Any, Any, str]] = [
    (Login, Login(pw="hunter2"), "$.pw is a SecretStr. A secret is not written to the journal in the clear"),  # type: ignore[arg-type]
    (Holder, Holder(items=[Derived(x=1, y=2)]), "$.items[0] is a Derived"),
    (Base, Derived(x=1), "$ is a Derived"),
    (dict[str, int], {1: 2}, "$[1] is an int, and would come back as a str"),
    (dict[str, list[dict[str, int]]], {"a": [{"b": 1, 2: 3}]}, "$.a[0][2] is an int"),  # type: ignore[dict-item]
    (str, Word.YES, "$ is a Word, and would come back as a str"),
    (int, Level.LOW, "$ is a Level"),
    (list[int], [HTTPStatus.OK], "$[0] is a HTTPStatus"),
    (None, [Level.LOW], "$[0] is a Level"),
    (Line, {"sku": "a", "count": 1, "price": "0"}, "$ is a dict, and would come back as a Line"),
    (Any, UserDict(a=1), "$ is a UserDict"),
    (Any, ChainMap({}), "$ is a ChainMap"),
    (Any, defaultdict(lambda: 1), "$ is a defaultdict with a factory that cannot be stored"),
    (Any, memoryview(b"abcd").cast("I"), "$ is a memoryview of something else than bytes"),
    (list[Guarded], [GuardedMore(1)], "$[0] is a GuardedMore, and would come back as a Guarded"),
]


@pytest.mark.parametrize(("annotation", "value", "part"), REFUSED, ids=[part for *_, part in REFUSED])
def test_what_would_be_lost_is_refused_with_its_path(annotation: Any, value: Any, part: str) -> None:
    """FAULTS E1, E8, E13: at the first encode, not at some replay."""
    with pytest.raises(NotStorable, match=re.escape(f"it cannot be stored: {part}")):
        codec_for(annotation).encode(value, "it")


def test_hooks_and_validators_do_not_run_again() -> None:
    """They ran when the value was made; a second time they would change it, or refuse it."""
    value, other = Nested([Normalised("x")], {}, (Frozen(a=1), 2)), Converted(1)
    before = Normalised.runs, Converted.runs
    assert trips(Nested, value).inner[0].name == "x!"
    assert trips(Any, None) is None
    assert trips(Converted, other) == other
    assert (Normalised.runs, Converted.runs) == before


def test_a_hook_that_makes_more_than_fields_runs_and_the_fields_stay() -> None:
    """Nobody else could make the lock."""
    value = Guarded(1)
    for annotation in (Guarded, list[Guarded]):
        codec = codec_for(annotation)
        data = codec.encode(value if annotation is Guarded else [value], "it")
        back = codec.decode(data, "it")
        back = back[0] if isinstance(back, list) else back
        assert back.count == 2
        assert back.lock.acquire(blocking=False)


def test_a_hook_makes_the_field_that_old_data_lacks() -> None:
    """FAULTS E15: a field that `__init__` does not take was added since."""
    assert codec_for(Derives).decode(b'{"a":4}', "it") == Derives(4)


def test_bytes_of_classes_with_hooks_are_plain() -> None:
    """What was stored right before is stored the same now."""
    assert codec_for(Normalised).encode(Normalised("x"), "it") == b'{"name":"x!"}'
    assert codec_for(Hooked).encode(Hooked(1), "it") == b'{"someName":2}'
    assert codec_for(Base).encode(Base(x=1), "it") == b'{"x":1}'


def test_cached_properties_are_computed_again() -> None:
    value = Lazy(3)
    assert value.square == 9
    assert codec_for(Lazy).decode(codec_for(Lazy).encode(value, "it"), "it").square == 9


def test_a_secret_with_functions_of_its_own_is_kept() -> None:
    """A class that encrypts may be stored, inside a model too."""

    class Key(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        secret: Vault
        name: str = "n"

    storable(Vault, name="vault", encode=lambda v: v.text[::-1], decode=lambda d: Vault(d[::-1]))
    data = codec_for(Key).encode(Key(secret=Vault("abc")), "it")
    assert b"cba" in data
    assert b"abc" not in data
    assert codec_for(Key).decode(data, "it").secret.text == "abc"


def test_a_subclass_with_state_is_refused() -> None:
    """FAULTS E14: only a subclass that adds nothing comes back as its built-in type."""

    class Tagged(str):
        tag: str

    class Slotted(dict[str, int]):
        __slots__ = ("more",)
        more: int

    plain, tagged, slotted = Tagged("a"), Tagged("a"), Slotted(a=1)
    tagged.tag, slotted.more = "t", 1
    assert type(codec_for(None).decode(codec_for(None).encode(plain, "it"), "it")) is str
    for annotation, value in ((None, tagged), (str, tagged), (None, slotted), (dict[str, int], slotted)):
        with pytest.raises(NotStorable, match=r"\$ is a (Tagged|Slotted)"):
            codec_for(annotation).encode(value, "it")


def test_the_order_of_an_ordered_dict_is_its_own() -> None:
    value = OrderedDict(a=1, b=2)
    value.move_to_end("a")
    assert list(trips(Any, value)) == ["b", "a"]
