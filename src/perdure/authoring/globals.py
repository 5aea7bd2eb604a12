"""Lets a workflow function see deterministic stand-ins (`kernel.shims`) for clock and chance through its globals.

Only functions that actually name one of them are touched; every other keeps its own globals and full speed.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from perdure.kernel.shims import stand_in


class ShimmedGlobals(dict[str, Any]):
    """Holds the stand-ins; every other name is looked up live in the module's own globals."""

    def __init__(self, real: dict[str, Any], replaced: dict[str, Any]) -> None:
        super().__init__(replaced)
        self._real = real

    def __missing__(self, name: str) -> Any:
        return self._real[name]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _import(name: str, *args: Any, **kwargs: Any) -> Any:
    """`import time` inside the function sees the stand-in too."""
    module = __import__(name, *args, **kwargs)
    shim = stand_in(module)
    return module if shim is None else shim


def with_stand_ins(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, seeing stand-ins where its globals hold a clock or a source of chance."""
    if not isinstance(function, FunctionType):
        return function
    module = function.__globals__
    replaced: dict[str, Any] = {}
    for name in _names(function.__code__):
        shim = stand_in(module[name]) if name in module else None
        if shim is not None:
            replaced[name] = shim
    imports = sys.modules.keys() & set(_names(function.__code__))
    if not replaced and not any(stand_in(sys.modules[name]) is not None for name in imports):
        return function
    # Read by the interpreter without asking __missing__: builtins for LOAD_GLOBAL, the rest for imports.
    for name in ("__builtins__", "__name__", "__package__", "__spec__", "__loader__", "__file__"):
        if name in module:
            replaced[name] = module[name]
    replaced["__builtins__"] = {**vars(builtins), "__import__": _import}
    copied = FunctionType(
        function.__code__,
        ShimmedGlobals(module, replaced),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__dict__.update(function.__dict__)
    copied.__qualname__ = function.__qualname__
    copied.__module__ = function.__module__
    return copied
