"""What a called object is to auto mode. Decided when it is called: only then is it known."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from perdure.kernel.shims import REAL


class Kind(Enum):
    #: Its result is recorded, and it is never called again.
    RECORDED = "recorded"
    #: It only computes, builds a value or belongs to the workflow: called in place, and again on replay.
    INLINE = "inline"
    #: A verb of perdure or a part of asyncio: called in place, durable by itself.
    DURABLE = "durable"
    #: It reads something of this process and changes nothing: recorded with the next commit, without one of its own.
    READ = "read"


#: Modules whose functions only compute from their arguments.
PURE_MODULES = frozenset({
    "_abc", "_bisect", "_collections", "_collections_abc", "_datetime", "_decimal", "_functools", "_heapq", "_json",
    "_operator", "_pydatetime", "_pydecimal", "_sre", "_statistics", "_string", "_struct", "abc", "array", "base64",
    "binascii", "bisect", "calendar", "cmath", "collections", "collections.abc", "colorsys", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "heapq", "html", "ipaddress",
    "itertools", "json", "json.decoder", "json.encoder", "keyword", "math", "msgspec", "msgspec._core",
    "msgspec.json", "msgspec.structs", "numbers", "operator", "pprint", "re", "shlex", "statistics", "string", "struct",
    "textwrap", "types", "typing", "unicodedata", "urllib.parse", "warnings", "weakref", "zlib", "zoneinfo",
    "builtins",
})  # fmt: skip

#: Libraries whose classes hold data.
_DATA_LIBRARIES = frozenset({"attr", "attrs", "enum", "msgspec", "pydantic"})

#: Functions of other modules that only compute.
_PURE: frozenset[Any] = frozenset({
    os.fspath, os.path.join, os.path.basename, os.path.dirname, os.path.isabs,
    os.path.normpath, os.path.split, os.path.splitext, os.path.commonpath, sys.exc_info, sys.exception,
    logging.getLogger,
})  # fmt: skip

#: Built-in functions that do something, although their module is one that computes.
_EFFECTS = frozenset({"print", "input", "open", "exec", "eval", "compile", "__import__"})
#: Built-in functions whose answer belongs to the process.
_READS: frozenset[Any] = frozenset({
    hash, id, os.urandom, os.getenv, os.getpid, os.getppid, os.cpu_count, os.getcwd, os.getlogin, os.uname,
    sys.getrefcount, sys.getsizeof,
})  # fmt: skip
#: `traceback` is about the failure that is being handled, which only the workflow's own frame can see. So is a line of
#: `logging`, which must not be written again by a replay and need not be durable before the next one.
_READ_MODULES = frozenset({"secrets", "platform", "traceback", "logging"})
#: What writes a line of a log, and what asks whether it would.
_LINES = frozenset({
    "critical", "debug", "error", "exception", "fatal", "getEffectiveLevel", "info", "isEnabledFor", "log", "warn",
    "warning",
})  # fmt: skip


def kind_of(callee: Any, file: str, lines: tuple[int, int]) -> Kind:
    """`file` and `lines` say where the workflow is: its own nested functions are part of it."""
    if isinstance(callee, type) or is_nested(callee, file, lines):
        return Kind.INLINE
    if isinstance(callee, FunctionType):
        return _function_kind(callee)
    if isinstance(callee, BuiltinFunctionType):
        return _builtin_kind(callee)
    if isinstance(callee, MethodType):
        owner = callee.__self__
        if isinstance(owner, type(os.environ)):
            return Kind.READ if callee.__name__ in ("get", "copy", "items", "keys", "values") else Kind.RECORDED
        if callee.__func__.__module__ == "logging":  # also of a class of the user's own
            return Kind.READ if callee.__name__ in _LINES else Kind.RECORDED
        if callee.__func__.__module__.partition(".")[0] in _DATA_LIBRARIES:
            return Kind.INLINE  # Model.model_validate(...): another way to make a value
        return _module_kind(owner.__module__ if isinstance(owner, type) else type(owner).__module__)
    inner = callee.func if isinstance(callee, functools.partial) else getattr(callee, "__wrapped__", None)
    if inner is not None:  # a partial, or a function with a cache around it: what counts is what it calls
        return kind_of(inner, file, lines)
    return _module_kind(type(callee).__module__)


def is_nested(callee: Any, file: str, lines: tuple[int, int]) -> bool:
    """Whether it is written inside the workflow, also under a decorator, as a method or as a class to be called."""
    while isinstance(callee, functools.partial):
        callee = callee.func
    inner = getattr(callee, "__func__", callee)
    if not isinstance(inner, FunctionType | BuiltinFunctionType) and not hasattr(inner, "__wrapped__"):
        inner = getattr(type(inner), "__call__", None)  # noqa: B004  # the function itself is wanted
    code = getattr(inspect.unwrap(inner), "__code__", None) if inner is not None else None
    return code is not None and code.co_filename == file and lines[0] <= code.co_firstlineno <= lines[1]


def _function_kind(function: FunctionType) -> Kind:
    if REAL in function.__dict__:  # a stand-in: seeded, or recorded by itself
        return Kind.INLINE
    return Kind.INLINE if function in _PURE else _real_kind(function)


def _real_kind(function: Any) -> Kind:
    if function in _READS or function.__module__ in _READ_MODULES:
        return Kind.READ
    owner = getattr(function, "__self__", None)  # secrets.randbits is a method of a source of randomness
    if owner is not None and type(owner).__name__ == "SystemRandom":
        return Kind.READ
    return _module_kind(function.__module__)


def _builtin_kind(function: BuiltinFunctionType) -> Kind:
    owner = function.__self__
    if function in _READS or type(owner).__name__ == "SystemRandom":
        return Kind.READ
    if isinstance(owner, ModuleType) or owner is None:
        if function.__module__ == "builtins" and function.__name__ in _EFFECTS:
            return Kind.RECORDED
        return Kind.INLINE if function in _PURE else _module_kind(function.__module__ or "builtins")
    # A method of a value: of a built-in type, or of a class such as dict.fromkeys.
    return _module_kind((owner if isinstance(owner, type) else type(owner)).__module__)


def _module_kind(module: str | None) -> Kind:
    name = module or ""
    if name == "perdure" or name.startswith(("perdure.", "asyncio.")) or name == "asyncio":
        return Kind.DURABLE
    return Kind.INLINE if name in PURE_MODULES else Kind.RECORDED


def is_async(function: Any) -> bool:
    inner: Any = getattr(function, "func", function)  # of a partial
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def makes_a_generator(function: Any) -> bool:
    """Whether calling it gives a generator, or a context manager made from one: nothing that could be stored."""
    return any(
        inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one)
        for one in (function, getattr(function, "__wrapped__", None))
    )
