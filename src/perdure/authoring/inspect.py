"""What decoration reads off a function: its place, signature and types; and the checks that come with it."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.authoring.registry import Place
from perdure.errors import BadDefinition, PerdureError, UnstorableType, describe_line
from perdure.given import an_instance, class_name
from perdure.kernel.values import ArgumentsCodec, ValueCodec, codec_for, why_not_storable

T = TypeVar("T")


def place_of(target: Any) -> Place:
    """File, line and qualified name, as well as they can be known."""
    target = inspect.unwrap(target)
    if isinstance(target, functools.partial):
        target = target.func
    if inspect.ismethod(target):
        target = target.__func__
    code = getattr(target, "__code__", None)
    qualname = getattr(target, "__qualname__", type(target).__qualname__)
    if code is not None:
        return Place(code.co_filename, code.co_firstlineno, qualname)
    cls = target if isinstance(target, type) else type(target)
    try:
        return Place(inspect.getsourcefile(cls) or "?", inspect.getsourcelines(cls)[1], qualname)
    except (OSError, TypeError):
        return Place(getattr(cls, "__module__", "?"), 0, qualname)


def defined(what: str, make: Callable[[], T]) -> T:
    """What `make` makes of something that is decorated. An error of its own code, when it is looked at, is a
    `BadDefinition`; what Python or perdure say about it stays."""
    try:
        return make()
    except (PerdureError, TypeError, ValueError, SyntaxError, Warning):
        raise
    except Exception as error:
        raise BadDefinition(f"{what} cannot be looked at: {describe_line(error)}.") from error


def name_of(target: Any) -> str:
    if an_instance(target, functools.partial):
        return name_of(target.func)
    try:
        return str.__str__(getattr(target, "__name__", None) or class_name(type(target)))
    except Exception:  # code of what was given, or a name that is no text
        return class_name(type(target))


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def caller_locals() -> dict[str, Any] | None:
    """Names local to the function that decorates, for annotations that use a class defined beside it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return dict(frame.f_locals) if frame.f_code.co_flags & inspect.CO_OPTIMIZED else None


class Signature:
    """Signature and types of a function, with the codecs built from them.

    Annotations that name things defined further down in the module cannot be resolved at decoration; they are
    resolved, and checked, at the first call instead.
    """

    def __init__(self, target: Callable[..., Any], what: str) -> None:
        self._target = target
        self.what = what
        self.place = place_of(target)
        self._locals = caller_locals()
        try:
            self.signature = inspect.signature(target)
        except (TypeError, ValueError) as error:
            raise BadDefinition(f"{what} ({self.place}) has no readable signature: {error}.") from None
        self._hints = self._resolve()
        if self._hints is not None:
            self._check(self._hints)

    def _resolve(self) -> dict[str, Any] | None:
        function = self._target.func if isinstance(self._target, functools.partial) else self._target
        if not inspect.isroutine(function):
            function = type(function).__call__
        try:
            return typing.get_type_hints(function, localns=self._locals, include_extras=True)
        except NameError:
            return None
        except Exception as error:  # also of the code of an object that is no annotation
            raise BadDefinition(
                f"the annotations of {self.what} ({self.place}) cannot be read: {describe_line(error)}."
            ) from None

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        if self._hints is None:
            self._hints = self._resolve()
            if self._hints is None:
                raise BadDefinition(f"an annotation of {self.what} ({self.place}) names something that does not exist.")
            self._check(self._hints)
        return self._hints

    def _check(self, hints: dict[str, Any]) -> None:
        for name in self.signature.parameters:
            self._check_type(hints.get(name, Any), f"parameter {name!r}")
        self._check_type(hints.get("return", Any), "the return value")

    def _check_type(self, annotation: Any, role: str) -> None:
        reason = why_not_storable(annotation)
        if reason is not None:
            raise UnstorableType(
                f"{role} of {self.what} cannot be stored: {reason} ({self.place}). "
                "Use plain data (dataclass, dict, str, ...), or register the class with `perdure.storable`."
            )

    def arguments(self, *, with_defaults: bool = False) -> ArgumentsCodec:
        return ArgumentsCodec(self.signature, self.hints, self.what, with_defaults=with_defaults)

    def result(self) -> ValueCodec[Any]:
        return codec_for(self.hints.get("return", Any))
