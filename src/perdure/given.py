"""What callers give, in a form that is safe to handle: no code of a value or of its class is run.

An argument may be of a subclass of `str` or `int` whose methods raise, of a class whose metaclass says it is equal to
everything, or an object whose `repr` raises or cannot be printed. Code that checks an argument takes the exact value
with `text_of` or `whole_of` first, and writes it into a message with `shown` (tests/fuzz gives such values to every
call).
"""

from __future__ import annotations

from typing import Any, Final

_NAME: Final[Any] = type.__dict__["__name__"]
_QUALNAME: Final[Any] = type.__dict__["__qualname__"]
_MRO: Final[Any] = type.__dict__["__mro__"]
_DERIVES: Final[Any] = type.__subclasscheck__

#: Characters of a value in a message.
SHOWN_CHARS_MAX: Final = 60


def readable(text: str) -> str:
    """The text with its lone surrogates written out, so that it can be printed and stored."""
    return text.encode("utf-8", "backslashreplace").decode()


def class_name(cls: type) -> str:
    """The name a class was made with, whatever its metaclass says."""
    return readable(str.__str__(_NAME.__get__(cls)))


def qualified_name(cls: type) -> str:
    """`Outer.Inner`, as the class was made."""
    return readable(str.__str__(_QUALNAME.__get__(cls)))


def mro_of(cls: type) -> tuple[type, ...]:
    """The class and its parents, whatever its metaclass says."""
    found: tuple[type, ...] = _MRO.__get__(cls)
    return found


def is_a(cls: type, bases: tuple[type, ...]) -> bool:
    """`issubclass` of real inheritance: no `__subclasscheck__` of a metaclass, no registration."""
    for base in bases:  # noqa: SIM110 - a generator takes three times as long
        if _DERIVES(base, cls):
            return True
    return False


def is_ordinary(cls: type) -> bool:
    """Whether the class can be a key of a dictionary without running code of a metaclass."""
    return type(cls) is type


def an_instance(value: Any, *bases: type) -> bool:
    """`isinstance` by the real class of a value: what its `__class__` says does not count."""
    return is_a(type(value), bases)


def text_of(value: Any) -> str | None:
    """An exact `str`, also of a subclass; None if the value is no text."""
    if type(value) is str:
        return value
    return str.__str__(value) if an_instance(value, str) else None


def whole_of(value: Any) -> int | None:
    """An exact `int`, also of a subclass; None if the value is no whole number, or a bool."""
    if type(value) is int:
        return value
    return int.__index__(value) if an_instance(value, int) and type(value) is not bool else None


def number_of(value: Any) -> float | None:
    """A number as a float, infinite if it is too large for one; None if it is no number, or a bool."""
    whole = whole_of(value)
    if whole is not None:
        try:
            return float(whole)
        except OverflowError:
            return float("inf") if whole > 0 else float("-inf")
    return float.__float__(value) if an_instance(value, float) else None


def shown(value: Any, chars_max: int = SHOWN_CHARS_MAX) -> str:
    """A value in the text of an error: short, printable, whatever its `repr` does."""
    text = text_of(value)
    try:
        shown = readable(str.__str__(repr(value if text is None else text)))
    except Exception:
        shown = f"<{class_name(type(value))}>"
    return shown if len(shown) <= chars_max else f"{shown[:chars_max]}..."
