"""The way of a step in C: twins of Python functions that every step passes, for the usual case.

A twin has the name of a Python function or method, which is its definition and does whatever is unusual. It takes
that one's place when its module is imported, if it was built (which needs a C compiler when perdure is installed) and
the environment variable PERDURE_NATIVE is not "off". Nothing else changes: the same objects, the same journal, the same
errors. `kernel.c`, `store.c` and `engine.c` hold the twins of those layers, `fields.h` and `json.h` what they need.
"""

from __future__ import annotations

import importlib
import os
from collections import ChainMap
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _built(name: str) -> ModuleType | None:
    if os.environ.get("PERDURE_NATIVE", "") == "off":
        return None
    try:
        return importlib.import_module(f"perdure.native.{name}")
    except ImportError:
        return None


_kernel, _store, _engine = _built("_kernel"), _built("_store"), _built("_engine")

#: Whether twins are in use.
IN_USE = None not in (_kernel, _store, _engine)

#: The Python functions whose places twins have taken, by qualified name.
definitions: Mapping[str, Callable[..., Any]] = ChainMap(
    *(getattr(module, "definitions", {}) for module in (_kernel, _store, _engine))
)


def in_c(function: F) -> F:
    """The twin of a function of the kernel, or the function itself."""
    if _kernel is None:
        return function
    _kernel.keep_definition(function)
    twin: F = getattr(_kernel, function.__name__)
    return twin


def context_calls() -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    """Enter and leave a context of `contextvars` without calling a function in it, which Python does not offer."""
    if _kernel is not None:
        return _kernel.enter_context, _kernel.exit_context
    import ctypes  # slow to import, and not needed with the accelerated functions

    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)  # raises what the function set
    return call(("PyContext_Enter", ctypes.pythonapi)), call(("PyContext_Exit", ctypes.pythonapi))


def bind_kernel(given: Mapping[str, Any]) -> None:
    """Let twins take the places of methods of the kernel's classes."""
    if _kernel is not None:
        _kernel.bind_kernel(given)


def bind_step(given: Mapping[str, Any]) -> None:
    """The same for `authoring.step`."""
    if _kernel is not None:
        _kernel.bind_step(given)


def bind_bulk(given: Mapping[str, Any]) -> None:
    """The same for `store.sqlite.bulk`."""
    if _store is not None:
        _store.bind_bulk(given)


def bind_steps(given: Mapping[str, Any]) -> None:
    """The same for `engine.steps`."""
    if _engine is not None:
        _engine.bind_steps(given)


def bind_turns(given: Mapping[str, Any]) -> None:
    """The same for `engine.turns`."""
    if _engine is not None and _kernel is not None:
        _engine.bind_turns({**given, "step_row": _kernel.step_row})
