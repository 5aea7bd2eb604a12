"""What an annotation says about its values: can they be stored, and does plain JSON carry them exactly?

`survey` walks a type once and answers everything the codec wants to know. It never guesses: a type that can
hold anything (`Any`, a bare `list`, an unbound type variable) makes the annotation *loose*, and loose values
are stored as tagged JSON; a class nobody knows how to store is *refused*, with the path to it.
"""

from __future__ import annotations

import collections
import collections.abc as abc
import enum
import inspect
import numbers
import types
import typing
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from perdure.given import an_instance, class_name, is_ordinary, qualified_name, readable
from perdure.given import shown as shown_value
from perdure.kernel.values import lazy_types
from perdure.kernel.values.class_codecs import registered
from perdure.kernel.values.instances import fields_of, is_pydantic, runs_code

NONE = type(None)

#: Immutable, and unchanged by a trip through JSON.
SCALARS: Final[frozenset[Any]] = frozenset({str, int, float, bool, NONE})

_LEAVES: Final[frozenset[Any]] = frozenset(
    {
        *SCALARS,
        bytes,
        bytearray,
        memoryview,
        datetime,
        date,
        time,
        timedelta,
        Decimal,
        UUID,
        complex,
    }
)
_LISTS: Final[frozenset[Any]] = frozenset({list, abc.Sequence, abc.MutableSequence, abc.Collection})
_SETS: Final[frozenset[Any]] = frozenset({set, frozenset, abc.Set, abc.MutableSet})
_DICTS: Final[frozenset[Any]] = frozenset({dict, abc.Mapping, abc.MutableMapping})
#: These say nothing about what their values are.
_OPEN: Final[frozenset[Any]] = frozenset(
    {
        Any,
        object,
        inspect.Parameter.empty,
        abc.Iterable,
        abc.Hashable,
        abc.Sized,
        abc.Container,
        abc.Reversible,
    }
    | {numbers.Number, numbers.Complex, numbers.Real, numbers.Rational, numbers.Integral}
    | {collections.OrderedDict, collections.defaultdict, collections.Counter, collections.deque}
)
#: msgspec sorts members of a set by `<`; only for these is that one order in every process.
_ORDERED: Final[frozenset[Any]] = frozenset({str, int, float, bytes, date, datetime, timedelta, Decimal, UUID})
_WRAPPERS: Final[frozenset[Any]] = frozenset(
    {typing.Annotated, typing.Final, typing.ClassVar, typing.Required, typing.NotRequired}
)
_VARIABLES: Final = (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple, typing.ForwardRef, str)


class Survey:
    """The answers about one annotation."""

    def __init__(self) -> None:
        self.refused: str | None = None  # "$[] is socket.socket"
        self.loose = False
        self.opaque = False  # loose, and holding something that msgspec cannot decode at all
        self.classes: set[type] = set()
        self.has_set = False
        self.has_dict = False
        self.recursive = False
        #: Some class here has code that msgspec would run at every decoding (`__post_init__`, validators).
        self.runs_code = False

    @property
    def plain(self) -> bool:
        """Whether `msgspec` alone carries the values."""
        # Sorting the members of sets would sort the keys of dicts too, and their order is part of a value.
        return not (self.loose or self.refused or (self.has_set and self.has_dict))


def is_open(annotation: Any) -> bool:
    """Whether this is no annotation at all, or one that allows everything."""
    return any(annotation is known for known in (None, inspect.Parameter.empty, Any, object))


def is_cacheable(annotation: Any) -> bool:
    """Whether this can be a key: no class in it has a metaclass that says itself what it is equal to. Raises what the
    code of something raises that is no annotation at all."""
    if an_instance(annotation, type):
        metaclass: Any = type(annotation)
        return metaclass.__eq__ is type.__eq__ and metaclass.__hash__ is type.__hash__
    return all(map(is_cacheable, typing.get_args(annotation)))


def union_members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; of anything else, the thing itself."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def scalar_types(annotation: Any) -> frozenset[Any]:
    """The exact types whose values need no decoding to be what a replay will see."""
    if is_open(annotation):
        return SCALARS
    members = union_members(annotation)
    if all(is_ordinary(member) and member in SCALARS for member in members):
        return frozenset(members)
    return frozenset({NONE}) if any(member is NONE for member in members) else frozenset()


def survey(annotation: Any) -> Survey:
    """Walk `annotation` once."""
    result = Survey()
    try:
        _Surveyor(result).visit(annotation, "$", {})
    except RecursionError:
        raise
    except Exception as error:  # of a metaclass: nothing can be known about such a class
        result.loose = result.opaque = True
        result.refused = f"$ is a class that cannot be looked at ({class_name(type(error))} was raised)"
    return result


def shown(annotation: Any) -> str:
    """`list[socket.socket]`, as people write it."""
    if annotation is NONE:
        return "None"
    if an_instance(annotation, type):
        try:
            module = str(annotation.__module__)
        except Exception:  # a metaclass may do anything
            module = "?"
        name = qualified_name(annotation)
        return name if module == "builtins" else readable(f"{module}.{name}")
    return shown_value(annotation, 200).replace("typing.", "")


class _Surveyor:
    def __init__(self, result: Survey) -> None:
        self.result = result
        self.open: list[Any] = []  # classes being walked: meeting one again means the type is recursive
        self.done: set[Any] = set()

    def open_up(self) -> None:
        self.result.loose = self.result.opaque = True

    def refuse(self, annotation: Any, path: str) -> None:
        if self.result.refused is None:
            self.result.refused = f"{path} is {shown(annotation)}"

    def visit(self, annotation: Any, path: str, bound: Mapping[Any, Any]) -> None:
        annotation = unwrapped(annotation)
        if isinstance(annotation, _VARIABLES):
            # A name that cannot be resolved yet says nothing; the values themselves will.
            if annotation in bound:
                self.visit(bound[annotation], path, {})
            else:
                self.result.loose = True
        elif _hashable(annotation) and (annotation in _LEAVES or annotation in lazy_types.leaves()):
            return
        elif (origin := typing.get_origin(annotation)) is not None:
            if not typing.get_args(annotation):
                self.visit(origin, path, bound)  # typing.List and its like
                return
            self.visit_generic(annotation, origin, path, bound)
        elif annotation in _LISTS | _SETS | _DICTS or annotation in (
            Any,
            inspect.Parameter.empty,
            tuple,
        ):
            self.result.loose = True
        elif annotation in _OPEN:
            self.open_up()
        elif isinstance(annotation, type):
            self.visit_class(annotation, path, {})
        else:
            self.refuse(annotation, path)

    def visit_generic(self, annotation: Any, origin: Any, path: str, bound: Mapping[Any, Any]) -> None:
        arguments = typing.get_args(annotation)
        if origin in (typing.Union, types.UnionType):
            for member in arguments:
                self.visit(member, path, bound)
        elif origin is typing.Literal:
            self.visit_literal(arguments)
        elif origin is tuple:
            self.visit_tuple(arguments, path, bound)
        elif origin in _LISTS:
            self.visit(arguments[0], f"{path}[]", bound)
        elif origin in _SETS:
            self.result.has_set = True
            self.result.loose = self.result.loose or unwrapped(arguments[0]) not in _ORDERED
            self.visit(arguments[0], f"{path}[]", bound)
        elif origin in _DICTS:
            self.result.has_dict = True
            # JSON keys are strings: `str | int` could not tell "1" from 1.
            self.result.loose = self.result.loose or len(union_members(unwrapped(arguments[0]))) > 1
            self.visit(arguments[0], f"{path}[key]", bound)
            self.visit(arguments[1], f"{path}[]", bound)
        elif origin in _OPEN or getattr(origin, "_is_protocol", False):
            self.open_up()
            for argument in arguments:
                self.visit(argument, f"{path}[]", bound)
        elif isinstance(origin, type) and hasattr(origin, "__parameters__"):
            given = [bound.get(argument, argument) if _hashable(argument) else argument for argument in arguments]
            parameters: tuple[Any, ...] = origin.__parameters__
            self.visit_class(origin, path, dict(zip(parameters, given, strict=False)))
        else:
            self.refuse(annotation, path)

    def visit_literal(self, values: tuple[Any, ...]) -> None:
        """msgspec knows literal strings, ints and None; others are stored as what they are."""
        if not all(type(value) in (str, int, NONE) for value in values):
            self.open_up()
        self.result.classes |= {type(value) for value in values if isinstance(value, enum.Enum)}

    def visit_tuple(self, arguments: tuple[Any, ...], path: str, bound: Mapping[Any, Any]) -> None:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            self.visit(arguments[0], f"{path}[]", bound)
            return
        for index, argument in enumerate(arguments):
            self.visit(argument, f"{path}[{index}]", bound)

    def visit_class(self, cls: type, path: str, bound: Mapping[Any, Any]) -> None:
        mark = (cls, tuple(bound.items())) if all(map(_hashable, bound.values())) else (cls, id(bound))
        if mark in self.open:
            self.result.recursive = True
        if mark in self.open or mark in self.done:
            return
        self.open.append(mark)
        self.visit_members(cls, path, bound)
        self.open.pop()
        self.done.add(mark)

    def visit_members(self, cls: type, path: str, bound: Mapping[Any, Any]) -> None:
        codec = registered(cls)
        if codec is not None and codec.custom:
            # msgspec would write a dataclass its own way and never ask the user's functions.
            native = fields_of(cls) is not None or issubclass(cls, (enum.Enum, *_NATIVE))
            self.result.loose = self.result.loose or native
        elif issubclass(cls, enum.Enum):
            self.result.classes.add(cls)
        elif is_pydantic(cls):
            self.visit_pydantic(cls)
        elif typing.is_typeddict(cls):
            self.result.has_dict = True
            self.visit_hints(cls, None, path, bound)
        elif (fields := fields_of(cls)) is not None:
            self.result.classes.add(cls)
            self.result.runs_code = self.result.runs_code or runs_code(cls)
            self.visit_hints(cls, {field.name for field in fields}, path, bound)
        elif issubclass(cls, _NATIVE):
            if not issubclass(cls, (str, int, float)):
                self.open_up()
        elif not lazy_types.is_path(cls) and not getattr(cls, "_is_protocol", False):
            self.refuse(cls, path)
        elif not lazy_types.is_path(cls):
            self.open_up()

    def visit_hints(self, cls: type, names: set[str] | None, path: str, bound: Mapping[Any, Any]) -> None:
        try:
            hints = typing.get_type_hints(cls)
        except Exception:
            self.result.loose = True  # a forward reference that does not resolve (yet)
            return
        for name, hint in hints.items():
            if names is None or name in names:
                self.visit(hint, f"{path}.{name}", bound)

    def visit_pydantic(self, cls: type) -> None:
        """A model answers for its own fields; only what changes our encoding is looked for in them."""
        self.result.classes.add(cls)
        self.result.has_dict = True
        inner = Survey()
        surveyor = _Surveyor(inner)
        surveyor.open = self.open
        fields: Mapping[str, Any] = getattr(cls, "model_fields", {})
        for field in fields.values():
            surveyor.visit(field.annotation, "$", {})
        self.result.has_set = self.result.has_set or inner.has_set
        self.result.recursive = self.result.recursive or inner.recursive
        self.result.classes |= inner.classes


#: Subclasses of these are stored as what they are built on (FAULTS E14).
_NATIVE: Final = (str, int, float, bytes, dict, list, set, frozenset, tuple, datetime, date, time, Decimal)


def _hashable(thing: Any) -> bool:
    try:
        hash(thing)
    except TypeError:
        return False
    return True


def unwrapped(annotation: Any) -> Any:
    """The type inside `Annotated`, `Final`, `NewType` and `type X = ...`; `None` means `NoneType`."""
    while True:
        if annotation is None:
            return NONE
        if typing.get_origin(annotation) in _WRAPPERS:
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation
