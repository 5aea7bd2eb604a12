"""Reading plain JSON by an annotation without running code of the classes in it.

msgspec runs `__post_init__` and the validators of attrs classes whenever it makes an instance. So for an annotation
with such a class it reads structs of the same fields instead (`Reader` makes the annotation for that), and from these
the instances are made as `kernel.values.instances` does it. Names, defaults and errors stay the same.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any

import msgspec
from msgspec import UNSET

from perdure.given import class_name, is_a
from perdure.kernel.values.annotations import is_open, survey, unwrapped
from perdure.kernel.values.instances import by_attributes, by_struct, by_tuple, fields_of

_Maker = Callable[[Any], Any]


class Reader:
    """One annotation as msgspec shall read it, and how what it read becomes the values of the annotation."""

    def __init__(self, annotation: Any) -> None:
        self._makers: dict[int, tuple[Any, _Maker]] = {}
        self._structs: dict[Any, Any] = {}
        self.annotation = self._rewritten(annotation, {})

    # -- the annotation ----------------------------------------------------------------------------------

    def _rewritten(self, annotation: Any, bound: Mapping[Any, Any]) -> Any:
        if isinstance(annotation, typing.TypeVar):
            return self._rewritten(bound[annotation], {}) if annotation in bound else annotation
        if typing.get_origin(annotation) is typing.Annotated:
            inner, *notes = typing.get_args(annotation)
            return typing.Annotated[(self._rewritten(inner, bound), *notes)]
        annotation = unwrapped(annotation)
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in (typing.Union, UnionType):
            return typing.Union[tuple(self._rewritten(member, bound) for member in arguments)]  # noqa: UP007
        if origin is None:
            return self._class(annotation, {}) if isinstance(annotation, type) else annotation
        if origin is typing.Literal or not arguments:
            return annotation
        if isinstance(origin, type) and _has_hints(origin):
            given = [bound.get(argument, argument) for argument in arguments]
            return self._class(origin, dict(zip(origin.__parameters__, given, strict=False)))  # type: ignore[attr-defined]
        rewritten: Any = tuple(item if item is Ellipsis else self._rewritten(item, bound) for item in arguments)
        generic: Any = origin
        return generic[rewritten] if len(rewritten) > 1 else generic[rewritten[0]]

    def _class(self, cls: Any, bound: Mapping[Any, Any]) -> Any:
        whole = cls[tuple(bound.values())] if bound else cls
        if is_open(cls) or not _has_hints(cls) or not survey(whole).runs_code:
            return whole
        known = (id(cls), tuple(map(repr, bound.values())))
        if known not in self._structs:
            self._structs[known] = None  # replaced at once: a class may hold itself
            self._dictionary(known, cls, bound) if typing.is_typeddict(cls) else self._struct(known, cls, bound)
        return self._structs[known]

    def _dictionary(self, known: Any, cls: Any, bound: Mapping[Any, Any]) -> None:
        made: Any = typing.TypedDict(class_name(cls), {})  # type: ignore[misc]
        self._structs[known] = made
        hints = {name: self._rewritten(hint, bound) for name, hint in typing.get_type_hints(cls).items()}
        made.__annotations__ = hints
        made.__required_keys__, made.__optional_keys__ = cls.__required_keys__, cls.__optional_keys__

    def _struct(self, known: Any, cls: Any, bound: Mapping[Any, Any]) -> None:
        fields = fields_of(cls) or ()
        made: Any = msgspec.defstruct(
            class_name(cls),
            [(f.name, Any) if f.default is None else (f.name, Any, UNSET) for f in fields],
            **_settings(cls),
        )
        self._structs[known] = made
        hints = typing.get_type_hints(cls, include_extras=True)
        made.__annotations__ = {field.name: self._rewritten(hints[field.name], bound) for field in fields}
        by_kind = by_struct if is_a(cls, (msgspec.Struct,)) else by_tuple if is_a(cls, (tuple,)) else by_attributes
        self._makers[id(made)] = (made, by_kind(cls, fields))

    # -- the values --------------------------------------------------------------------------------------

    def restored(self, read: Any) -> Any:
        """The value that was read, with instances of the real classes."""
        kind = type(read)
        if kind is list:
            read[:] = map(self.restored, read)
        elif kind is dict:
            read.update({key: self.restored(item) for key, item in read.items()})
        elif kind is tuple:
            return tuple(map(self.restored, read))
        elif id(kind) in self._makers:
            values = {name: getattr(read, name) for name in kind.__struct_fields__}
            given = {name: self.restored(item) for name, item in values.items() if item is not UNSET}
            return self._makers[id(kind)][1](given)
        return read


def _has_hints(cls: Any) -> bool:
    return typing.is_typeddict(cls) or fields_of(cls) is not None


def _settings(cls: Any) -> dict[str, Any]:
    if is_a(cls, (tuple,)):
        return {"array_like": True, "kw_only": False}
    if not is_a(cls, (msgspec.Struct,)):
        return {"kw_only": True}
    config = cls.__struct_config__
    names = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    return {
        "array_like": config.array_like,
        "tag": config.tag,
        "tag_field": config.tag_field,
        "forbid_unknown_fields": config.forbid_unknown_fields,
        "rename": names,
        "kw_only": not config.array_like,
    }
