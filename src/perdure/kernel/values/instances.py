"""Instances of classes with fields: their state, and how one is made again without running `__init__`.

The state of an instance is all that it holds, in its `__dict__` and in its slots, whether a field or not; values that
a `cached_property` has left there are not part of it, they can be computed again.

An instance is made by setting what was stored. `__init__`, `__post_init__`, converters and validators ran when the
value was made, and running them once more would change it, or refuse it because the clock has moved on. There are two
exceptions, both for what no data can bring back: a hook that gives its instance attributes that are no fields (a lock,
a cache) runs, and the fields are set again after it; and so does a hook that makes a field which the data, written by
an older release of the class, does not have. See docs/decisions/0107.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from types import CodeType, MemberDescriptorType
from typing import Any, Final

import msgspec

from perdure.given import class_name, is_a, mro_of
from perdure.kernel.values.refusals import Refused, a_thing

_MISSING: Final = object()


class Field(msgspec.Struct, frozen=True):
    """One field of a class. `default` makes the value of a field the data does not have."""

    name: str
    default: Callable[[Any], Any] | None
    by_hook: bool = False  # `__init__` does not take it, so a hook makes it


def is_named_tuple(cls: type) -> bool:
    return is_a(cls, (tuple,)) and isinstance(getattr(cls, "_fields", None), tuple)


def is_pydantic(cls: type) -> bool:
    """Whether `cls` is a pydantic model. Does not import pydantic: nobody has a model who has not."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return isinstance(base, type) and is_a(cls, (base,))


# -- fields ----------------------------------------------------------------------------------------------


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
    return Field(field.name, None if field.init else _constant(None), by_hook=not field.init)


def _struct_field(field: msgspec.structs.FieldInfo) -> Field:
    if field.default is not msgspec.NODEFAULT:
        return Field(field.name, _constant(field.default))
    if field.default_factory is not msgspec.NODEFAULT:
        return Field(field.name, _calling(field.default_factory))
    return Field(field.name, None)


def _attrs_field(attribute: Any) -> Field:
    default = attribute.default
    if default is getattr(sys.modules.get("attr"), "NOTHING", None):
        return Field(attribute.name, None if attribute.init else _constant(None), by_hook=not attribute.init)
    if hasattr(default, "factory") and hasattr(default, "takes_self"):
        return Field(attribute.name, default.factory if default.takes_self else _calling(default.factory))
    return Field(attribute.name, _constant(default))


def fields_of(cls: type) -> tuple[Field, ...] | None:
    """The fields of a dataclass, struct, attrs class or named tuple; None for any other class."""
    if is_a(cls, (msgspec.Struct,)):
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


# -- state -----------------------------------------------------------------------------------------------


class _Layout(msgspec.Struct, frozen=True):
    """Where the instances of a class keep their state."""

    cls: type
    slots: tuple[Any, ...]
    cached: frozenset[str]  # names that a `cached_property` writes to
    is_only_dict: bool  # no slots, no state in C: all is in the `__dict__`


#: By the ids of a class and its base. Classes may be made without end, so this is emptied when it is full.
_layouts: dict[tuple[int, int], _Layout] = {}
_LAYOUTS_MAX: Final = 1024

_POINTER_BYTES: Final = tuple.__itemsize__
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _layout(cls: type, base: type | None) -> _Layout:
    """The slots of a class and its parents, as far as `base`, which is left out."""
    key = (id(cls), id(base))
    known = _layouts.get(key)
    if known is not None:
        return known
    slots: dict[str, Any] = {}
    cached: set[str] = set()
    for parent in mro_of(cls):
        if parent is base or parent is BaseException:
            break
        slots = {name: slot for name, slot in vars(parent).items() if type(slot) is MemberDescriptorType} | slots
        cached |= {name for name, found in vars(parent).items() if type(found) is cached_property}
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
    made = _layouts[key] = _Layout(cls, tuple(slots.values()), frozenset(cached), _is_only_dict(cls))
    return made


def _is_only_dict(cls: Any) -> bool:
    pointers = (cls.__weakrefoffset__ > 0) + (cls.__dictoffset__ > 0)
    size: int = object.__basicsize__ + pointers * _POINTER_BYTES
    return bool(
        cls.__dictoffset__ and cls.__basicsize__ <= size and not cls.__itemsize__ and cls.__flags__ & _HEAP_TYPE
    )


def simple_state(value: Any) -> dict[str, Any] | None:
    """The `__dict__` of an instance that holds nothing else; None for any other value."""
    return _own_dict(value) if _layout(type(value), None).is_only_dict else None


def _own_dict(value: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def state_of(value: Any, base: type | None = None) -> dict[str, Any]:
    """All that an instance holds in attributes, by name; of a built-in type that it derives from, what it has added."""
    layout = _layout(type(value), base)
    own = _own_dict(value)
    if layout.cached:
        own = {name: item for name, item in own.items() if name not in layout.cached}
    if not layout.slots:
        return own
    state = dict(own)
    for slot in layout.slots:
        item = _slot(slot, value)
        if item is not _MISSING:
            state[slot.__name__] = item
    return state


def _slot(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _MISSING


# -- hooks -----------------------------------------------------------------------------------------------


class Hook(msgspec.Struct, frozen=True):
    """What a class runs after its `__init__`, and the attributes that it makes beside the fields."""

    run: Callable[[Any], object]
    makes: frozenset[str]


def hook_of(cls: type) -> Hook | None:
    """The post-init hook of a class with fields, unless it wants arguments that nobody has any more."""
    run: Any = getattr(cls, "__post_init__", None) or getattr(cls, "__attrs_post_init__", None)
    fields = fields_of(cls)
    if run is None or fields is None or _takes_more(cls):
        return None
    return Hook(run, frozenset(_attributes_set(cls, run, set()) - {field.name for field in fields}))


def runs_code(cls: type) -> bool:
    """Whether msgspec would run code of the class when it makes an instance."""
    if any(hasattr(cls, name) for name in ("__post_init__", "__attrs_post_init__", "__attrs_pre_init__")):
        return True
    return any(getattr(attribute, "validator", None) is not None for attribute in vars(cls).get("__attrs_attrs__", ()))


def _takes_more(cls: type) -> bool:
    """Whether there are parameters of `__init__` that no field keeps (`InitVar`)."""
    fields: Mapping[str, Any] = getattr(cls, "__dataclass_fields__", {})
    return any(getattr(field._field_type, "name", "") == "_FIELD_INITVAR" for field in fields.values())


def _attributes_set(cls: type, function: Any, seen: set[CodeType]) -> set[str]:
    """The attributes that a method assigns, and the other methods of its class that it calls."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or code in seen or not code.co_argcount:
        return set()
    import dis

    seen.add(code)
    found: set[str] = set()
    loaded: Any = None  # what the instruction before has put on top of the stack
    for step in dis.get_instructions(code):
        if step.opname == "STORE_ATTR" and loaded == code.co_varnames[0]:
            found.add(str(step.argval))
        loaded = step.argval[-1] if isinstance(step.argval, tuple) and step.argval else step.argval
    if "__setattr__" in code.co_names or "setattr" in code.co_names:  # how a frozen class sets its own
        found |= {text for text in code.co_consts if isinstance(text, str) and text.isidentifier()}
    for name in code.co_names:
        for parent in mro_of(cls):
            found |= _attributes_set(cls, vars(parent).get(name), seen)
    return found


# -- making ----------------------------------------------------------------------------------------------


def given_fields(cls: type, fields: tuple[Field, ...], payload: Any) -> dict[str, Any]:
    """The fields that `payload` has; fields it has too many are ignored, they belong to an older class."""
    if type(payload) is not dict:
        raise Refused(f"is {a_thing(type(payload))} where the fields of {class_name(cls)} are expected")
    for field in fields:
        if field.name not in payload and field.default is None:
            raise Refused(f"lacks the field {field.name!r} of {class_name(cls)}")
    return {field.name: payload[field.name] for field in fields if field.name in payload}


def by_attributes(cls: type, fields: tuple[Field, ...]) -> Callable[[Any], Any]:
    """Makes instances of a dataclass or attrs class: no `__init__`, fields set directly, frozen or not."""
    hook = hook_of(cls)

    def put_together(payload: Any) -> Any:
        values = given_fields(cls, fields, payload)
        built: Any = object.__new__(cls)
        complete = True
        for field in fields:
            if field.name in values:
                object.__setattr__(built, field.name, values[field.name])
            elif field.default is not None:
                object.__setattr__(built, field.name, field.default(built))
                complete = complete and not field.by_hook
        if hook is not None and (hook.makes or not complete):
            hook.run(built)
            for name, value in values.items():
                object.__setattr__(built, name, value)
        return built

    return put_together


def by_tuple(cls: type, fields: tuple[Field, ...]) -> Callable[[Any], Any]:
    """Makes named tuples, not through a `__new__` that the class may have."""

    def put_together(payload: Any) -> Any:
        values = given_fields(cls, fields, payload)
        ordered = [values[field.name] if field.name in values else _filled(field, None) for field in fields]
        return tuple.__new__(cls, ordered)

    return put_together


def _filled(field: Field, owner: Any) -> Any:
    return None if field.default is None else field.default(owner)


def by_struct(cls: Any, fields: tuple[Field, ...]) -> Callable[[Any], Any]:
    """Makes msgspec structs. One with a hook is made as an instance of a class of the same layout without it."""
    if not hasattr(cls, "__post_init__"):
        return lambda payload: cls(**given_fields(cls, fields, payload))
    hook = hook_of(cls)
    plain = _without_hook(cls)

    def put_together(payload: Any) -> Any:
        values = given_fields(cls, fields, payload)
        if plain is None or (hook is not None and hook.makes):
            built = cls(**values)
        else:
            full = {
                field.name: values[field.name] if field.name in values else _filled(field, None) for field in fields
            }
            built = plain(**full)
            built.__class__ = cls
        for name, value in values.items():
            msgspec.structs.force_setattr(built, name, value)
        return built

    return put_together


def _without_hook(cls: Any) -> Any:
    """A struct class whose instances can become instances of `cls`; None if there can be none."""
    config: Any = cls.__struct_config__
    made: Any = msgspec.Struct
    try:
        for parent in reversed([parent for parent in mro_of(cls) if is_a(parent, (msgspec.Struct,))][:-1]):
            made = msgspec.defstruct(
                class_name(parent), _added(parent, made), bases=(made,), kw_only=True, gc=config.gc
            )
        sample = made(**dict.fromkeys(cls.__struct_fields__))
        sample.__class__ = cls
    except (TypeError, AttributeError):  # several parents, weak references: another layout
        return None
    return made


def _added(parent: Any, made: Any) -> list[tuple[str, Any]]:
    known = getattr(made, "__struct_fields__", ())
    return [(name, Any) for name in parent.__struct_fields__ if name not in known]
