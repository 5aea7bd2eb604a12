"""Classes as stored data: how to take an instance apart and put it together again.

A `Form` does both for one class. Dataclasses, msgspec structs, attrs classes, named tuples, enums and
pydantic models need no help; any other class is given two functions through `storable`. `kernel.tagged`
writes forms by name, `kernel.codec` uses them as hooks of msgspec. Nothing here imports a module
or looks a class up by a name found in data: a stored name means only what
`storable` or an annotation gave it.

To support one more kind of class, add its case to `fields_of` (classes with fields) or to `form_of`.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from perdure.errors import BadDefinition, NameClash

T = TypeVar("T")
C = TypeVar("C", bound=type)

HINT = "Return plain data, or register the class with `perdure.storable`."


class Refused(Exception):
    """A value, or stored data, that cannot cross. Gathers its path while it travels up the walk."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.parts: list[str] = []

    def at(self, part: str) -> Refused:
        """Add the part of the path that leads to where this was raised."""
        self.parts.append(part)
        return self

    @property
    def path(self) -> str:
        """`$.rows[3].conn`; the middle of a very long path is cut out."""
        parts = self.parts[::-1]
        if len(parts) > 24:
            parts = [*parts[:12], " ... ", *parts[-6:]]
        return "$" + "".join(parts)

    def text(self) -> str:
        """The sentence, or two, that an error message ends with."""
        return f"{self.path} {self.reason}." + (f" {self.hint}" if self.hint else "")


def key_part(key: object) -> str:
    """The part of a path for one key of a dict."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    if isinstance(key, (str, int, float, bytes, type(None))):
        text = ascii(key)
        return f"[{text if len(text) <= 40 else text[:37] + '...'}]"
    return f"[<{type(key).__name__}>]"


def a_thing(cls: type) -> str:
    """`a socket`, `an Order`."""
    name = cls.__name__
    return f"{'an' if name[:1] in 'aeiouAEIO' else 'a'} {name}"


class Field(msgspec.Struct, frozen=True):
    """One field of a class. `default` makes the value of a field the data does not have."""

    name: str
    default: Callable[[Any], Any] | None


def is_pydantic(cls: type) -> bool:
    """Whether `cls` is a pydantic model. Does not import pydantic: nobody has a model who has not."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return isinstance(base, type) and issubclass(cls, base)


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _constant(value: Any) -> Callable[[Any], Any]:
    return lambda _self: value


def _calling(factory: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda _self: factory()


def _dataclass_field(field: Any, missing: object) -> Field:
    if field.default is not missing:
        return Field(field.name, _constant(field.default))
    if field.default_factory is not missing:
        return Field(field.name, _calling(field.default_factory))
    # A field that __init__ does not take is made by __post_init__, so old data may lack it.
    return Field(field.name, None if field.init else _constant(None))


def _struct_field(field: msgspec.structs.FieldInfo) -> Field:
    if field.default is not msgspec.NODEFAULT:
        return Field(field.name, _constant(field.default))
    if field.default_factory is not msgspec.NODEFAULT:
        return Field(field.name, _calling(field.default_factory))
    return Field(field.name, None)


def _attrs_field(attribute: Any) -> Field:
    default = attribute.default
    if default is getattr(sys.modules.get("attr"), "NOTHING", None):
        return Field(attribute.name, None)
    if hasattr(default, "factory") and hasattr(default, "takes_self"):
        return Field(attribute.name, default.factory if default.takes_self else _calling(default.factory))
    return Field(attribute.name, _constant(default))


def fields_of(cls: type) -> tuple[Field, ...] | None:
    """The fields of a dataclass, struct, attrs class or named tuple; None for any other class."""
    if issubclass(cls, msgspec.Struct):
        return tuple(_struct_field(field) for field in msgspec.structs.fields(cls))
    dataclasses = sys.modules.get("dataclasses")  # nobody has one who has not imported it
    if dataclasses is not None and dataclasses.is_dataclass(cls):
        return tuple(_dataclass_field(field, dataclasses.MISSING) for field in dataclasses.fields(cls))
    if "__attrs_attrs__" in vars(cls):
        return tuple(_attrs_field(attribute) for attribute in vars(cls)["__attrs_attrs__"])
    if is_named_tuple(cls):
        defaults: Mapping[str, Any] = getattr(cls, "_field_defaults", {})
        names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        return tuple(Field(name, _constant(defaults[name]) if name in defaults else None) for name in names)
    return None


class Form(msgspec.Struct, frozen=True):
    """How instances of one class are stored under one name."""

    name: str
    cls: type
    take_apart: Callable[[Any], Any]
    put_together: Callable[[Any], Any]
    custom: bool = False  # by functions of the user
    upcast: Callable[[Any], Any] | None = None

    def build(self, payload: Any) -> Any:
        """An instance from what `take_apart` gave, now or in an earlier release. Raises `Refused`."""
        try:
            return self.put_together(self.upcast(payload) if self.upcast is not None else payload)
        except Refused:
            raise
        except Exception as error:
            reason = f"does not make {a_thing(self.cls)}: {type(error).__name__}: {_brief(error)}"
            raise Refused(reason) from None

    def apart(self, value: Any) -> Any:
        """The data of an instance. Raises `Refused`."""
        try:
            return self.take_apart(value)
        except Refused:
            raise
        except Exception as error:
            reason = f"is {a_thing(self.cls)} that cannot be taken apart: {type(error).__name__}: {_brief(error)}"
            raise Refused(reason) from None


def _brief(error: Exception) -> str:
    try:
        return " ".join(str(error).split())[:300]
    except Exception:
        return "<its message could not be read>"


def _fields_apart(fields: tuple[Field, ...]) -> Callable[[Any], Any]:
    names = [field.name for field in fields]

    def take_apart(value: Any) -> dict[str, Any]:
        # A field may be unset (`del self.x`, or init=False and never assigned): it is then left out.
        return {name: getattr(value, name) for name in names if hasattr(value, name)}

    return take_apart


def _values(cls: type, fields: tuple[Field, ...], payload: Any) -> dict[str, Any]:
    """The fields that `payload` has; fields it has too many are ignored, they belong to an older class."""
    if type(payload) is not dict:
        raise Refused(f"is {a_thing(type(payload))} where the fields of {cls.__name__} are expected")
    for field in fields:
        if field.name not in payload and field.default is None:
            raise Refused(f"lacks the field {field.name!r} of {cls.__name__}")
    return {field.name: payload[field.name] for field in fields if field.name in payload}


def _by_attributes(cls: type, fields: tuple[Field, ...]) -> Callable[[Any], Any]:
    """As msgspec does it: no `__init__`, fields set directly (frozen or not), then the post-init hook."""
    post_init = getattr(cls, "__post_init__", None) or getattr(cls, "__attrs_post_init__", None)

    def put_together(payload: Any) -> Any:
        values = _values(cls, fields, payload)
        built: Any = object.__new__(cls)
        for field in fields:
            if field.name in values:
                object.__setattr__(built, field.name, values[field.name])
            elif field.default is not None:
                object.__setattr__(built, field.name, field.default(built))
        if post_init is not None:
            post_init(built)
        return built

    return put_together


def _by_call(cls: type, fields: tuple[Field, ...]) -> Callable[[Any], Any]:
    return lambda payload: cls(**_values(cls, fields, payload))


def _pydantic_apart(value: Any) -> Any:
    # round_trip leaves computed fields out: a model that forbids extra fields could not read them back.
    return value.model_dump(mode="python", by_alias=True, round_trip=True)


def form_of(cls: type, name: str) -> Form | None:
    """The form of a class that needs no help, or None."""
    if issubclass(cls, enum.Enum):
        return Form(name, cls, lambda member: member.value, cls)
    if is_pydantic(cls):
        return Form(name, cls, _pydantic_apart, cls.model_validate)  # type: ignore[attr-defined]
    fields = fields_of(cls)
    if fields is None:
        return None
    by_call = issubclass(cls, (msgspec.Struct, tuple))
    return Form(name, cls, _fields_apart(fields), _by_call(cls, fields) if by_call else _by_attributes(cls, fields))


# -- registered classes ----------------------------------------------------------------------------------

_by_class: dict[type, Form] = {}
_by_name: dict[str, Form] = {}
_listeners: list[Callable[[], object]] = []


def registered(cls: type) -> Form | None:
    """The form `storable` gave this class."""
    return _by_class.get(cls)


def registered_name(name: str) -> Form | None:
    """The form stored under `name`."""
    return _by_name.get(name)


def on_registration(listener: Callable[[], object]) -> None:
    """Call `listener` after each registration (the codec cache forgets what it derived from annotations)."""
    _listeners.append(listener)


def _same_source(one: type, other: type) -> bool:
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _register(form: Form) -> None:
    known = _by_name.get(form.name)
    if known is not None and not _same_source(known.cls, form.cls):
        raise NameClash(
            f"two classes want to be stored as {form.name!r}: "
            f"{known.cls.__module__}.{known.cls.__qualname__} and "
            f"{form.cls.__module__}.{form.cls.__qualname__}. Give one of them `name=...`."
        )
    if known is not None:
        _by_class.pop(known.cls, None)
    _by_name[form.name] = form
    _by_class[form.cls] = form
    for listener in _listeners:
        listener()


@overload
def storable(cls: C, /) -> C: ...
@overload
def storable(
    cls: type[T],
    /,
    *,
    name: str | None = None,
    encode: Callable[[T], Any] | None = None,
    decode: Callable[[Any], T] | None = None,
    upcast: Callable[[Any], Any] | None = None,
) -> type[T]: ...
@overload
def storable(
    cls: None = None,
    /,
    *,
    name: str | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    upcast: Callable[[Any], Any] | None = None,
) -> Callable[[C], C]: ...
def storable(
    cls: Any = None,
    /,
    *,
    name: str | None = None,
    encode: Callable[[Any], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    upcast: Callable[[Any], Any] | None = None,
) -> Any:
    """Let instances of a class be stored where no annotation says what they are.

    Dataclasses, structs, attrs classes, named tuples, enums and pydantic models need nothing more; for any
    other class `encode(instance)` gives plain data and `decode(data)` an equal instance. `name` is what the
    journal holds (default: the qualified class name), so keep it when the class moves. `upcast(data)`
    turns data of an older shape into the current one before each decoding, so it must leave current data
    alone. Register before decorating functions that use the class.

        @storable
        @dataclass
        class Order: ...

        storable(Money, encode=lambda m: [m.cents, m.currency], decode=lambda d: Money(*d))

    Raises `NameClash` when another class has the name, `BadDefinition` when the class needs functions.
    """

    def register(target: Any) -> Any:
        _register(_registration(target, name, encode, decode, upcast))
        return target

    return register if cls is None else register(cls)


def _registration(
    cls: Any,
    name: str | None,
    encode: Callable[[Any], Any] | None,
    decode: Callable[[Any], Any] | None,
    upcast: Callable[[Any], Any] | None,
) -> Form:
    if not isinstance(cls, type):
        raise BadDefinition(f"`storable` takes a class, not {a_thing(type(cls))}.")
    if (encode is None) != (decode is None):
        raise BadDefinition(f"`storable` of {cls.__qualname__} needs both `encode` and `decode`, or neither.")
    stored_name = name if name is not None else cls.__qualname__
    if encode is not None and decode is not None:
        return Form(stored_name, cls, encode, decode, custom=True, upcast=upcast)
    form = form_of(cls, stored_name)
    if form is None:
        raise BadDefinition(
            f"`storable` cannot tell how to store {cls.__module__}.{cls.__qualname__}: it is not a "
            "dataclass, struct, attrs class, named tuple, enum or pydantic model. "
            "Pass `encode=` and `decode=`."
        )
    return msgspec.structs.replace(form, upcast=upcast)
