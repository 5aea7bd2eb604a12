"""Saying no to a value, with the path to it; and asking a class what it is without running any code of it.

A class may be an instance of a metaclass of the user, so its hash, its equality, its `__name__` and even `issubclass`
are code of the user, which may raise or lie (tests/values/test_odd_classes.py).
"""

from __future__ import annotations

from typing import Any, Final

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
    if type(key) in (str, int, float, bytes, type(None)):
        text = ascii(key) if type(key) is not int or -(10**40) < key < 10**40 else hex(key)
        return f"[{text if len(text) <= 40 else text[:37] + '...'}]"
    return f"[<{class_name(type(key))}>]"


_NAME: Final[Any] = type.__dict__["__name__"]
_QUALNAME: Final[Any] = type.__dict__["__qualname__"]
_MRO: Final[Any] = type.__dict__["__mro__"]
_DERIVES: Final[Any] = type.__subclasscheck__


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


def a_thing(cls: type) -> str:
    """`a socket`, `an Order`."""
    name = class_name(cls)
    return f"{'an' if name[:1] in 'aeiouAEIO' else 'a'} {name}"


def brief(error: BaseException) -> str:
    """The message of an error in at most 300 characters; never raises an `Exception`."""
    try:
        return readable(" ".join(str.__str__(str(error)).split())[:300])
    except Exception:
        return "<its message could not be read>"
