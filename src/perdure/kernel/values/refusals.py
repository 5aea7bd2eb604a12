"""Saying no to a value, with the path to it."""

from __future__ import annotations

from perdure.given import class_name, readable

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
    if any(type(key) is kind for kind in (str, int, float, bytes, type(None))):
        text = ascii(key) if type(key) is not int or -(10**40) < key < 10**40 else hex(key)
        return f"[{text if len(text) <= 40 else text[:37] + '...'}]"
    return f"[<{class_name(type(key))}>]"


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
