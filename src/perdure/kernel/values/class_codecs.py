"""Classes as stored data: how to take an instance apart and put it together again.

A `ClassCodec` does both for one class. Dataclasses, msgspec structs, attrs classes, named tuples, enums and
pydantic models need no help; any other class is given two functions through `storable`. `kernel.values.tagged`
writes codecs by name, `kernel.values` uses them as hooks of msgspec. Nothing here imports a module
or looks a class up by a name found in data: a stored name means only what
`storable` or an annotation gave it.

To support one more kind of class, add its case to `fields_of` (classes with fields) or to `class_codec_of`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from perdure.errors import BadDefinition, NameClash
from perdure.given import an_instance, class_name, is_a, qualified_name, readable, shown, text_of
from perdure.kernel.values import models
from perdure.kernel.values.instances import (
    by_attributes,
    by_struct,
    by_tuple,
    fields_of,
    hook_of,
    is_pydantic,
    state_of,
)
from perdure.kernel.values.refusals import Refused, a_thing, brief

T = TypeVar("T")
C = TypeVar("C", bound=type)


class ClassCodec(msgspec.Struct, frozen=True):
    """How instances of one class are stored under one name.

    `take_apart` gives the data of an instance, and `rest` what it holds besides, or None. `put_together` makes an
    instance from the data alone, `restore` from both.
    """

    name: str
    cls: type
    take_apart: Callable[[Any], Any]
    put_together: Callable[[Any], Any]
    custom: bool = False  # by functions of the user
    upcast: Callable[[Any], Any] | None = None
    rest: Callable[[Any], dict[str, Any] | None] | None = None
    restore: Callable[[Any, dict[str, Any]], Any] | None = None

    def build(self, payload: Any, rest: dict[str, Any] | None = None) -> Any:
        """An instance from what `take_apart` gave, now or in an earlier release. Raises `Refused`."""
        try:
            payload = self.upcast(payload) if self.upcast is not None else payload
            if rest is None or self.restore is None:
                return self.put_together(payload)
            return self.restore(payload, rest)
        except Refused:
            raise
        except Exception as error:
            reason = f"does not make {a_thing(self.cls)}: {class_name(type(error))}: {brief(error)}"
            raise Refused(reason) from None

    def apart(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        """The data of an instance, and what it holds besides. Raises `Refused`."""
        try:
            rest = self.rest(value) if self.rest is not None else None
            if rest is not None and is_pydantic(self.cls):
                return models.fields(value), rest
            return self.take_apart(value), rest
        except Refused:
            raise
        except Exception as error:
            reason = f"is {a_thing(self.cls)} that cannot be taken apart: {class_name(type(error))}: {brief(error)}"
            raise Refused(reason) from None


def _fields_apart(names: list[str]) -> Callable[[Any], Any]:
    def take_apart(value: Any) -> dict[str, Any]:
        # A field may be unset (`del self.x`, or init=False and never assigned): it is then left out.
        return {name: getattr(value, name) for name in names if hasattr(value, name)}

    return take_apart


def _codec_by_fields(cls: type, name: str) -> ClassCodec | None:
    fields = fields_of(cls)
    if fields is None:
        return None
    by_kind = by_struct if is_a(cls, (msgspec.Struct,)) else by_tuple if is_a(cls, (tuple,)) else by_attributes
    base = tuple if by_kind is by_tuple else None
    put_together, names = by_kind(cls, fields), [field.name for field in fields]
    hook = hook_of(cls) if base is None else None
    made = hook.makes if hook is not None else frozenset[str]()

    def rest(value: Any) -> dict[str, Any] | None:
        state = state_of(value, base)
        return {key: item for key, item in state.items() if key not in names and key not in made} or None

    def restore(payload: Any, rest: dict[str, Any]) -> Any:
        built = put_together(payload)
        for key, item in rest.items():
            object.__setattr__(built, key, item)
        return built

    return ClassCodec(name, cls, _fields_apart(names), put_together, rest=rest, restore=restore)


def class_codec_of(cls: type, name: str) -> ClassCodec | None:
    """The codec of a class that needs no help, or None."""
    if is_a(cls, (enum.Enum,)):
        return ClassCodec(name, cls, lambda member: member.value, cls)
    if is_pydantic(cls):
        return ClassCodec(name, cls, models.dump, models.validate(cls), rest=models.rest, restore=models.restore(cls))
    return _codec_by_fields(cls, name)


# -- registered classes ----------------------------------------------------------------------------------

#: By the id of the class, which its codec keeps alive: the hash of a class may be the user's.
_by_class: dict[int, ClassCodec] = {}
_by_name: dict[str, ClassCodec] = {}
_listeners: list[Callable[[], object]] = []


def registered(cls: type) -> ClassCodec | None:
    """The codec `storable` gave this class."""
    return _by_class.get(id(cls))


def registered_name(name: str) -> ClassCodec | None:
    """The codec stored under `name`."""
    return _by_name.get(name)


def on_registration(listener: Callable[[], object]) -> None:
    """Call `listener` after each registration (the codec cache forgets what it derived from annotations)."""
    _listeners.append(listener)


def _same_source(one: type, other: type) -> bool:
    return _full_name(one) == _full_name(other)


def _full_name(cls: type) -> str:
    try:
        module = str(cls.__module__)
    except Exception:  # a metaclass may do anything
        module = "?"
    return f"{readable(module)}.{qualified_name(cls)}"


def _register(codec: ClassCodec) -> None:
    known = _by_name.get(codec.name)
    if known is not None and not _same_source(known.cls, codec.cls):
        raise NameClash(
            f"two classes want to be stored as {codec.name!r}: "
            f"{_full_name(known.cls)} and {_full_name(codec.cls)}. Give one of them `name=...`."
        )
    if known is not None:
        _by_class.pop(id(known.cls), None)
    _by_name[codec.name] = codec
    _by_class[id(codec.cls)] = codec
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
) -> ClassCodec:
    if not an_instance(cls, type):
        raise BadDefinition(f"`storable` takes a class, not {a_thing(type(cls))}.")
    if (encode is None) != (decode is None):
        raise BadDefinition(f"`storable` of {qualified_name(cls)} needs both `encode` and `decode`, or neither.")
    stored_name = text_of(name) if name is not None else qualified_name(cls)
    if not stored_name or stored_name != readable(stored_name):
        raise BadDefinition(f"the name under which a class is stored is text, not {shown(name)}.")
    if encode is not None and decode is not None:
        return ClassCodec(stored_name, cls, encode, decode, custom=True, upcast=upcast)
    codec = class_codec_of(cls, stored_name)
    if codec is None:
        raise BadDefinition(
            f"`storable` cannot tell how to store {_full_name(cls)}: it is not a "
            "dataclass, struct, attrs class, named tuple, enum or pydantic model. "
            "Pass `encode=` and `decode=`."
        )
    return msgspec.structs.replace(codec, upcast=upcast)
