"""Types of modules that are slow to import and that few workflows use: paths, fractions, IP addresses.

A value or an annotation of such a type can only be there if somebody has imported its module. So nothing here imports
one before a stored value of it has to be brought back.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from perdure.given import is_a

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "pathlib": ("PurePath",),
    "fractions": ("Fraction",),
    "ipaddress": (
        "IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface",
    ),
}  # fmt: skip


def loaded(module: str) -> list[Any]:
    """The classes of one of these modules, as far as it is imported by now."""
    found = [getattr(sys.modules.get(module), name, None) for name in _NAMES[module]]
    return [cls for cls in found if cls is not None]


def leaves() -> tuple[Any, ...]:
    """Those that stand for a single value each; a path's class is chosen by the machine."""
    return (*loaded("fractions"), *loaded("ipaddress"))


def is_path(cls: type) -> bool:
    return is_a(cls, tuple(loaded("pathlib")))


def classes() -> tuple[Any, ...]:
    """All of them that could have instances."""
    return tuple(cls for module in _NAMES for cls in loaded(module))


def fetch(module: str, name: str) -> Any:
    """A class by its name, importing its module now. Raises `LookupError` if it is none that is stored."""
    found: Any
    match module:
        case "pathlib" if name in ("Path", "PurePath", "PurePosixPath", "PureWindowsPath"):
            import pathlib as found
        case "fractions" if name in _NAMES[module]:
            import fractions as found
        case "ipaddress" if name in _NAMES[module]:
            import ipaddress as found
        case _:
            raise LookupError(name)
    return getattr(found, name)
