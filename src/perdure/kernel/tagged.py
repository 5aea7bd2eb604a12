"""Tagged JSON: values without a type to guide them, brought back exactly.

What JSON has, looks like JSON. Everything else is an object with one key that starts with `$`:

    {"$tuple": [...]}   {"$set": [...]}      {"$frozenset": [...]}   {"$dict": [[key, value], ...]}
    {"$bytes": base64}  {"$bytearray": ...}  {"$str": escaped}       {"$int": hex}  {"$float": "nan"}
    {"$datetime": iso}  {"$date": iso}       {"$time": iso}          {"$timedelta": [days, seconds, micros]}
    {"$decimal": text}  {"$fraction": [numerator, denominator]}      {"$complex": text}
    {"$uuid": text}     {"$path": text}      {"$purepath": [flavour, text]}         {"$ip": [class, text]}
    {"$object": [name, data]}                a class registered with `storable`, or named by the annotation

Subclasses of built-in types come back as the built-in type (FAULTS E14). The encoding of equal values is the
same in every process: members of sets are sorted by their encoding. Decoding imports nothing and makes
instances only of classes this process has registered or annotated.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure import limits
from perdure.kernel import rare
from perdure.kernel.shapes import (
    HINT,
    Form,
    Refused,
    a_thing,
    form_of,
    is_named_tuple,
    key_part,
    registered,
    registered_name,
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
        self._by_class: dict[type, Form] = {}
        self._by_name: dict[str, Form | None] = {}
        for cls in classes:
            form = form_of(cls, cls.__qualname__)
            if form is not None:
                self._add(form)

    def _add(self, form: Form) -> None:
        # The short name is readable and survives a move to another module; where two classes share it,
        # both are written in full and the short one means neither.
        name, full = form.name, f"{form.cls.__module__}:{form.name}"
        if name in self._by_name:
            rival = self._by_name[name]
            if rival is not None:
                self._by_class[rival.cls] = msgspec.structs.replace(rival, name=f"{rival.cls.__module__}:{name}")
            self._by_name[name] = None
            self._by_class[form.cls] = msgspec.structs.replace(form, name=full)
        else:
            self._by_name[name] = form
            self._by_class[form.cls] = form
        self._by_name[full] = form

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
        form = registered(kind) or self._by_class.get(kind)
        if form is not None:
            return {"$object": [form.name, self._payload(form, value, depth)]}
        return self._builtin(kind, value, depth)

    def _payload(self, form: Form, value: Any, depth: int) -> Any:
        payload = form.apart(value)
        # One class may be stored as an instance of another; the depth still counts, so cycles end.
        return self.plain(payload, depth + 1)

    def _builtin(self, kind: type, value: Any, depth: int) -> Any:
        if not is_named_tuple(kind):  # as a bare tuple it would lose its names: register it
            for base in kind.__mro__:
                if base in _SCALARS:
                    return _SCALARS[base](value)
                if base.__name__ in _RARE and base in rare.classes():
                    return _RARE[base.__name__](value)
                if base in _CONTAINERS:
                    return _CONTAINERS[base](self, value, depth)
        raise Refused(f"is {a_thing(kind)}", HINT)

    def _list(self, value: Any, depth: int) -> list[Any]:
        out: list[Any] = []
        try:
            for item in value:
                out.append(self.plain(item, depth + 1))
        except Refused as refused:
            raise refused.at(f"[{len(out)}]") from None
        return out

    def _set(self, value: Any, depth: int) -> list[Any]:
        out: list[Any] = []
        try:
            for item in value:
                out.append(self.plain(item, depth + 1))
        except Refused as refused:
            raise refused.at("[]") from None
        out.sort(key=_encode_json)
        return out

    def _dict(self, value: Any, depth: int) -> dict[str, Any]:
        for key in value:
            if type(key) is not str or key[:1] == "$" or not encodable(key):
                return {"$dict": self._pairs(value, depth)}
        out: dict[str, Any] = {}
        key = ""
        try:
            for key, item in value.items():
                out[key] = self.plain(item, depth + 1)
        except Refused as refused:
            raise refused.at(key_part(key)) from None
        return out

    def _pairs(self, value: Any, depth: int) -> list[Any]:
        return [self._pair(key, item, depth) for key, item in value.items()]

    def _pair(self, key: Any, item: Any, depth: int) -> list[Any]:
        try:
            return [self.plain(key, depth + 1), self.plain(item, depth + 1)]
        except Refused as refused:
            raise refused.at(key_part(key)) from None

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
        if tag in _COLLECTIONS:
            return _checked(tag, _COLLECTIONS[tag], self._unlist(body))
        read = _READERS.get(tag)
        if read is None:
            raise Refused(f"has the tag {tag!r}, which this release does not know")
        return _checked(tag, read, body)

    def _unobject(self, body: Any) -> Any:
        if type(body) is not list or len(body) != 2 or type(body[0]) is not str:
            raise Refused("is a damaged '$object'")
        name, payload = body
        form = registered_name(name) or self._by_name.get(name)
        if form is None:
            raise Refused(
                f"is an instance of {name!r}, and no class is registered under this name here",
                "Register it with `perdure.storable`, using this name.",
            )
        form = registered(form.cls) or form  # the upcaster, when the annotation named the class
        return form.build(self.value(payload))


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


def _datetime(value: datetime) -> Any:
    iso = datetime.isoformat(value)
    # A zone is kept as its offset: the instant must not depend on the tz database of whoever replays.
    return {"$datetime": [iso, 1] if value.fold else iso}


def _time(value: time) -> Any:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Refused("is a time in a zone without a fixed offset", "Store a datetime, or the zone's name beside it.")
    iso = time.isoformat(value)
    return {"$time": [iso, 1] if value.fold else iso}


def _path(value: Any) -> Any:
    text = _text(str(value))
    if isinstance(value, rare.fetch("pathlib", "Path")):
        return {"$path": text}
    windows = isinstance(value, rare.fetch("pathlib", "PureWindowsPath"))
    return {"$purepath": ["windows" if windows else "posix", text]}


def _ip(value: Any) -> Any:
    known = rare.loaded("ipaddress")
    return {"$ip": [next(base.__name__ for base in type(value).__mro__ if base in known), str(value)]}


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
    memoryview: lambda value: {"$bytes": _base64(bytes(value))},
    datetime: _datetime,
    date: lambda value: {"$date": date.isoformat(value)},
    time: _time,
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    Decimal: lambda value: {"$decimal": Decimal.__str__(value)},
    UUID: lambda value: {"$uuid": UUID.__str__(value)},
}

# The same for classes of modules that are not imported here: see `rare`.
_RARE: Final[dict[str, Callable[[Any], Any]]] = {
    "Fraction": lambda value: {"$fraction": [_plain_int(value.numerator), _plain_int(value.denominator)]},
    "PurePath": _path,
    "IPv4Address": _ip,
    "IPv6Address": _ip,
    "IPv4Network": _ip,
    "IPv6Network": _ip,
}

_CONTAINERS: Final[dict[type, Callable[[Walker, Any, int], Any]]] = {
    dict: Walker._dict,
    list: Walker._list,
    tuple: lambda walker, value, depth: {"$tuple": walker._list(value, depth)},
    set: lambda walker, value, depth: {"$set": walker._set(value, depth)},
    frozenset: lambda walker, value, depth: {"$frozenset": walker._set(value, depth)},
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
    return rare.fetch("pathlib", "PureWindowsPath" if flavour == "windows" else "PurePosixPath")(_read_text(text))


_COLLECTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
}

_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$str": lambda body: body.encode("ascii").decode("unicode_escape"),
    "$int": lambda body: int(body, 16),
    "$float": float,
    "$complex": complex,
    "$bytes": lambda body: base64.b64decode(body, validate=True),
    "$bytearray": lambda body: bytearray(base64.b64decode(body, validate=True)),
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda body: timedelta(body[0], body[1], body[2]),
    "$decimal": Decimal,
    "$fraction": lambda body: rare.fetch("fractions", "Fraction")(_read_int(body[0]), _read_int(body[1])),
    "$uuid": UUID,
    "$path": lambda body: rare.fetch("pathlib", "Path")(_read_text(body)),
    "$purepath": _read_pure_path,
    "$ip": lambda body: rare.fetch("ipaddress", body[0])(body[1]),
}
