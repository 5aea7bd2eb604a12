"""Tagged JSON: values without a type to guide them, brought back exactly.

What JSON has, looks like JSON. Everything else is an object with one key that starts with `$`:

    {"$tuple": [...]}   {"$set": [...]}      {"$frozenset": [...]}   {"$dict": [[key, value], ...]}
    {"$bytes": base64}  {"$bytearray": ...}  {"$str": escaped}       {"$int": hex}  {"$float": "nan"}
    {"$datetime": iso}  {"$date": iso}       {"$time": iso}          {"$timedelta": [days, seconds, micros]}
    {"$decimal": text}  {"$fraction": [numerator, denominator]}      {"$complex": text}
    {"$uuid": text}     {"$path": text}      {"$purepath": [flavour, text]}         {"$ip": [class, text]}
    {"$memoryview": ...}                     {"$counter": [[key, count], ...]}
    {"$ordereddict": [[key, value], ...]}    {"$defaultdict": [factory, [[key, value], ...]]}
    {"$deque": [maxlen, [...]]}
    {"$object": [name, data]}                a class registered with `storable`, or named by the annotation
    {"$object": [name, data, rest]}          with what such an instance holds besides its fields

Subclasses of built-in types without state of their own come back as the built-in type (FAULTS E14). The encoding of
equal values is the same in every process: members of sets are sorted by their encoding. Decoding imports nothing and
makes instances only of classes this process has registered or annotated. No method of a subclass is called: values are
read by the methods of the built-in type.

Over 450 lines, and still one thing: each tag with its encoder and its decoder side by side.
"""

from __future__ import annotations

import base64
import enum
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure import limits
from perdure.given import class_name, is_a, is_ordinary, mro_of, qualified_name
from perdure.kernel.values import lazy_types
from perdure.kernel.values.class_codecs import ClassCodec, class_codec_of, registered, registered_name
from perdure.kernel.values.instances import is_named_tuple, state_of
from perdure.kernel.values.refusals import HINT, Refused, a_thing, brief, key_part

#: A journal is read by people and copied into backups. See docs/decisions/0106.
_HOW_TO_STORE_SECRETS: Final = (
    "A secret is not written to the journal in the clear: store where to find it, or give the class functions that "
    "encrypt, `storable(cls, encode=..., decode=...)`."
)

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

_encode_json = msgspec.json.Encoder().encode


def encodable(text: str) -> bool:
    """Whether UTF-8 can carry `text`: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Walker:
    """Turns values into tagged plain data and back, knowing the classes of one annotation.

    `classes` are those the annotation names; registered ones are known to every walker.
    """

    def __init__(self, classes: frozenset[type] = frozenset()) -> None:
        self._by_class: dict[int, ClassCodec] = {}  # by the id of the class: see `shapes`
        self._by_name: dict[str, ClassCodec | None] = {}
        for cls in classes:
            codec = class_codec_of(cls, qualified_name(cls))
            if codec is not None:
                self._add(codec)

    def _add(self, codec: ClassCodec) -> None:
        # The short name is readable and survives a move to another module; where two classes share it,
        # both are written in full and the short one means neither.
        name, full = codec.name, f"{codec.cls.__module__}:{codec.name}"
        if name in self._by_name:
            rival = self._by_name[name]
            if rival is not None:
                self._by_class[id(rival.cls)] = msgspec.structs.replace(rival, name=f"{rival.cls.__module__}:{name}")
            self._by_name[name] = None
            self._by_class[id(codec.cls)] = msgspec.structs.replace(codec, name=full)
        else:
            self._by_name[name] = codec
            self._by_class[id(codec.cls)] = codec
        self._by_name[full] = codec

    # -- to plain data -----------------------------------------------------------------------------------

    def plain(self, value: Any, depth: int = 0) -> Any:
        """`value` as data that JSON carries exactly. Raises `Refused` with the path to what it cannot."""
        kind = type(value)
        if kind is str:
            return value if encodable(value) else _surrogates(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if INT_MIN <= value <= INT_MAX else {"$int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if depth >= limits.VALUE_DEPTH_MAX:
            raise Refused(f"is nested more than {limits.VALUE_DEPTH_MAX} levels deep, or contains itself")
        if kind is dict:
            return self._dict(value, depth)
        if kind is list:
            return self._list(value, depth)
        codec = registered(kind) or self._by_class.get(id(kind))
        if codec is not None:
            return {"$object": self._object(codec, value, depth)}
        return self._builtin(kind, value, depth)

    def _object(self, codec: ClassCodec, value: Any, depth: int) -> list[Any]:
        payload, rest = codec.apart(value)
        # One class may be stored as an instance of another; the depth still counts, so cycles end.
        out = [codec.name, self.plain(payload, depth + 1)]
        return out if rest is None else [*out, self._pairs(rest.items(), depth + 1)]

    def _builtin(self, kind: type, value: Any, depth: int) -> Any:
        try:
            base = _builtin_base(kind)
            if base is not None and kind is not base and state_of(value, base):
                base = None  # it is more than the built-in value
        except Exception:
            base = None
        if base is None:
            raise _refusal(kind)
        if base in _CONTAINERS:
            return _CONTAINERS[base](self, value, depth)
        try:
            return (_SCALARS.get(base) or _RARE[base.__name__])(value)
        except Refused:
            raise
        except Exception as error:
            raise Refused(
                f"is {a_thing(kind)} that cannot be read: {class_name(type(error))}: {brief(error)}"
            ) from None

    def _list(self, value: Any, depth: int) -> list[Any]:
        return self._items(list.__iter__(value), depth)

    def _items(self, items: Any, depth: int) -> list[Any]:
        out: list[Any] = []
        try:
            for item in items:
                out.append(self.plain(item, depth + 1))
        except Refused as refused:
            raise refused.at(f"[{len(out)}]") from None
        return out

    def _members(self, members: Any, depth: int) -> list[Any]:
        out: list[Any] = []
        try:
            for item in members:
                out.append(self.plain(item, depth + 1))
        except Refused as refused:
            raise refused.at("[]") from None
        out.sort(key=_encode_json)
        return out

    def _dict(self, value: Any, depth: int) -> dict[str, Any]:
        for key in dict.__iter__(value):
            if type(key) is not str or key[:1] == "$" or not encodable(key):
                return {"$dict": self._pairs(dict.items(value), depth)}
        out: dict[str, Any] = {}
        key = ""
        try:
            for key, item in dict.items(value):
                out[key] = self.plain(item, depth + 1)
        except Refused as refused:
            raise refused.at(key_part(key)) from None
        return out

    def _pairs(self, items: Any, depth: int) -> list[Any]:
        return [self._pair(key, item, depth) for key, item in items]

    def _pair(self, key: Any, item: Any, depth: int) -> list[Any]:
        try:
            return [self.plain(key, depth + 1), self.plain(item, depth + 1)]
        except Refused as refused:
            raise refused.at(key_part(key)) from None

    def _defaultdict(self, value: Any, depth: int) -> list[Any]:
        factory = value.default_factory
        for name, known in _FACTORIES.items():
            if factory is known:
                return [name, self._pairs(dict.items(value), depth)]
        raise Refused("is a defaultdict with a factory that cannot be stored", "Store `dict(...)` of it.")

    # -- from plain data ---------------------------------------------------------------------------------

    def value(self, plain: Any) -> Any:
        """The value that `plain` stands for. Raises `Refused` for data this process cannot understand."""
        kind = type(plain)
        if kind is dict:
            if len(plain) == 1:
                ((key, body),) = plain.items()
                if key[:1] == "$":
                    return self._untag(key, body)
            return self._undict(plain)
        if kind is list:
            return self._unlist(plain)
        return plain

    def _undict(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        key = ""
        out: dict[str, Any] = {}
        try:
            for key, item in plain.items():
                out[key] = self.value(item)
        except Refused as refused:
            raise refused.at(key_part(key)) from None
        return out

    def _unlist(self, plain: Any) -> list[Any]:
        if type(plain) is not list:
            raise Refused(f"is {a_thing(type(plain))} where a list is expected")
        out: list[Any] = []
        try:
            for item in plain:
                out.append(self.value(item))
        except Refused as refused:
            raise refused.at(f"[{len(out)}]") from None
        return out

    def _untag(self, tag: str, body: Any) -> Any:
        if tag == "$object":
            return self._unobject(body)
        if tag == "$tagged":  # what a typed codec puts around tagged data
            return self.value(body)
        if tag in _NESTED:
            return self._nested(tag, body)
        if tag in _COLLECTIONS:
            return _checked(tag, _COLLECTIONS[tag], self._unlist(body))
        read = _READERS.get(tag)
        if read is None:
            raise Refused(f"has the tag {tag!r}, which this release does not know")
        return _checked(tag, read, body)

    def _unobject(self, body: Any) -> Any:
        if type(body) is not list or len(body) not in (2, 3) or type(body[0]) is not str:
            raise Refused("is a damaged '$object'")
        name, payload = body[:2]
        codec = registered_name(name) or self._by_name.get(name)
        if codec is None:
            raise Refused(
                f"is an instance of {name!r}, and no class is registered under this name here",
                "Register it with `perdure.storable`, using this name.",
            )
        codec = registered(codec.cls) or codec  # the upcaster, when the annotation named the class
        rest = _checked("$object", dict, self._unlist(body[2])) if len(body) == 3 else None
        return codec.build(self.value(payload), rest)

    def _nested(self, tag: str, body: Any) -> Any:
        """A collection with one more piece of data: what its items are put into, and the items."""
        if type(body) is not list or len(body) != 2:
            raise Refused(f"is not readable as {tag!r}")
        return _checked(tag, lambda items: _NESTED[tag](body[0], items), self._unlist(body[1]))


def _builtin_base(kind: type) -> type | None:
    """The built-in type that values of this class are stored as."""
    if is_named_tuple(kind) or is_a(kind, (enum.Enum,)):
        return None  # they would lose their names: register or annotate them
    for base in mro_of(kind):
        if is_ordinary(base) and (base in _SCALARS or base in _CONTAINERS):
            return base
        if class_name(base) in _RARE and any(base is known for known in lazy_types.classes()):
            return base
    return None


def _refusal(kind: type) -> Refused:
    secret = class_name(kind) in ("SecretStr", "SecretBytes", "Secret")
    return Refused(f"is {a_thing(kind)}", _HOW_TO_STORE_SECRETS if secret else HINT)


def _checked(tag: str, read: Callable[[Any], Any], body: Any) -> Any:
    try:
        return read(body)
    except (ValueError, TypeError, ArithmeticError, LookupError):
        raise Refused(f"is not readable as {tag!r}") from None


def _surrogates(text: str) -> dict[str, str]:
    return {"$str": text.encode("unicode_escape").decode("ascii")}


def _text(value: str) -> Any:
    exact = str.__str__(value)
    return exact if encodable(exact) else _surrogates(exact)


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode("ascii")


# Attributes as the built-in type has them: a subclass may have its own.
_DATETIME_FOLD: Final[Callable[[Any], Any]] = datetime.__dict__["fold"].__get__
_TIME_FOLD: Final[Callable[[Any], Any]] = time.__dict__["fold"].__get__
_TIME_ZONE: Final[Callable[[Any], Any]] = time.__dict__["tzinfo"].__get__
_UUID_INT: Final[Callable[[Any], Any]] = UUID.__dict__["int"].__get__
_TIMEDELTA_PARTS: Final[tuple[Callable[[Any], Any], ...]] = tuple(
    timedelta.__dict__[name].__get__ for name in ("days", "seconds", "microseconds")
)


def _viewed(value: memoryview) -> bytes:
    if value.format != "B" or value.ndim != 1:
        raise Refused("is a memoryview of something else than bytes", "Store the bytes.")
    return bytes(value)


def _datetime(value: datetime) -> Any:
    iso = datetime.isoformat(value)
    # A zone is kept as its offset: the instant must not depend on the tz database of the process that replays.
    return {"$datetime": [iso, 1] if _DATETIME_FOLD(value) else iso}


def _time(value: time) -> Any:
    if _TIME_ZONE(value) is not None and time.utcoffset(value) is None:
        raise Refused("is a time in a zone without a fixed offset", "Store a datetime, or the zone's name beside it.")
    iso = time.isoformat(value)
    return {"$time": [iso, 1] if _TIME_FOLD(value) else iso}


def _path(value: Any) -> Any:
    kind = type(value)
    text = _text(lazy_types.fetch("pathlib", "PurePath").__str__(value))
    if is_a(kind, (lazy_types.fetch("pathlib", "Path"),)):
        return {"$path": text}
    windows = is_a(kind, (lazy_types.fetch("pathlib", "PureWindowsPath"),))
    return {"$purepath": ["windows" if windows else "posix", text]}


def _ip(value: Any) -> Any:
    known = lazy_types.loaded("ipaddress")
    base: Any = next(base for base in mro_of(type(value)) if any(base is cls for cls in known))
    return {"$ip": [base.__name__, base.__str__(value)]}


def _fraction(value: Any) -> Any:
    base = lazy_types.fetch("fractions", "Fraction")
    return {"$fraction": [_plain_int(base.numerator.fget(value)), _plain_int(base.denominator.fget(value))]}


def _plain_int(value: int) -> Any:
    exact = int.__index__(value)
    return exact if INT_MIN <= exact <= INT_MAX else {"$int": hex(exact)}


def _plain_float(value: float) -> Any:
    exact = float.__add__(value, -0.0)  # -0.0, not 0.0: adding it changes nothing, not even the sign of zero
    return exact if math.isfinite(exact) else {"$float": str(exact)}


# Encoders by class, looked up along the MRO, so that a subclass is stored as its built-in base.
_SCALARS: Final[dict[type, Callable[[Any], Any]]] = {
    str: _text,
    int: _plain_int,
    float: _plain_float,
    complex: lambda value: {"$complex": complex.__repr__(value)},
    bytes: lambda value: {"$bytes": _base64(value)},
    bytearray: lambda value: {"$bytearray": _base64(value)},
    memoryview: lambda value: {"$memoryview": _base64(_viewed(value))},
    datetime: _datetime,
    date: lambda value: {"$date": date.isoformat(value)},
    time: _time,
    timedelta: lambda value: {"$timedelta": [part(value) for part in _TIMEDELTA_PARTS]},
    Decimal: lambda value: {"$decimal": Decimal.__str__(value)},
    UUID: lambda value: {"$uuid": str(UUID(int=_UUID_INT(value)))},
}

# The same for classes of modules that are not imported here: see `rare`.
_RARE: Final[dict[str, Callable[[Any], Any]]] = {
    "Fraction": lambda value: _fraction(value),
    "PurePath": _path,
    "IPv4Address": _ip,
    "IPv6Address": _ip,
    "IPv4Network": _ip,
    "IPv6Network": _ip,
}

_CONTAINERS: Final[dict[type, Callable[[Walker, Any, int], Any]]] = {
    dict: Walker._dict,
    list: Walker._list,
    tuple: lambda walker, value, depth: {"$tuple": walker._items(tuple.__iter__(value), depth)},
    set: lambda walker, value, depth: {"$set": walker._members(set.__iter__(value), depth)},
    frozenset: lambda walker, value, depth: {"$frozenset": walker._members(frozenset.__iter__(value), depth)},
    Counter: lambda walker, value, depth: {"$counter": walker._pairs(dict.items(value), depth)},
    OrderedDict: lambda walker, value, depth: {"$ordereddict": walker._pairs(OrderedDict.items(value), depth)},
    defaultdict: lambda walker, value, depth: {"$defaultdict": walker._defaultdict(value, depth)},
    deque: lambda walker, value, depth: {"$deque": [value.maxlen, walker._items(deque.__iter__(value), depth)]},
}

#: What makes the missing values of a defaultdict: only these are known in every process.
_FACTORIES: Final[dict[str | None, Any]] = {
    None: None,
    **{kind.__name__: kind for kind in (bool, int, float, str, bytes, list, dict, set, tuple, frozenset)},
}


def _read_text(body: Any) -> str:
    if type(body) is dict:
        body = body["$str"].encode("ascii").decode("unicode_escape")
    if type(body) is not str:
        raise TypeError
    return body


def _read_int(body: Any) -> int:
    return int(body["$int"], 16) if type(body) is dict else int(body)


def _read_datetime(body: Any) -> datetime:
    iso, fold = body if type(body) is list else (body, 0)
    return datetime.fromisoformat(iso).replace(fold=fold)


def _read_time(body: Any) -> time:
    iso, fold = body if type(body) is list else (body, 0)
    return time.fromisoformat(iso).replace(fold=fold)


def _read_pure_path(body: Any) -> Any:
    flavour, text = body
    return lazy_types.fetch("pathlib", "PureWindowsPath" if flavour == "windows" else "PurePosixPath")(_read_text(text))


_COLLECTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
    "$counter": lambda pairs: Counter(dict(pairs)),
    "$ordereddict": OrderedDict,
}

_NESTED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "$defaultdict": lambda factory, pairs: defaultdict(_FACTORIES[factory], dict(pairs)),
    "$deque": lambda maxlen, items: deque(items, maxlen),
}

_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$str": lambda body: body.encode("ascii").decode("unicode_escape"),
    "$int": lambda body: int(body, 16),
    "$float": float,
    "$complex": complex,
    "$bytes": lambda body: base64.b64decode(body, validate=True),
    "$memoryview": lambda body: memoryview(base64.b64decode(body, validate=True)),
    "$bytearray": lambda body: bytearray(base64.b64decode(body, validate=True)),
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda body: timedelta(body[0], body[1], body[2]),
    "$decimal": Decimal,
    "$fraction": lambda body: lazy_types.fetch("fractions", "Fraction")(_read_int(body[0]), _read_int(body[1])),
    "$uuid": UUID,
    "$path": lambda body: lazy_types.fetch("pathlib", "Path")(_read_text(body)),
    "$purepath": _read_pure_path,
    "$ip": lambda body: lazy_types.fetch("ipaddress", body[0])(body[1]),
}
