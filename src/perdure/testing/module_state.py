"""What a process keeps in memory is gone after a crash: module globals go back to what they were.

Only plain data is put back (numbers, texts, lists, dicts, sets, deques, counters); functions, classes, locks and
connections stay. What changed while a workflow ran is worth a line in a report: it was state that no journal holds.
"""

from __future__ import annotations

import ast
import copy
import itertools
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from perdure.authoring.step import Step
from perdure.authoring.workflow import Workflow

_SCALARS = (int, float, complex, str, bytes, bool, tuple, frozenset, type(None), itertools.count)
_CONTAINERS = (list, dict, set, deque, bytearray)
PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple(
    str(Path(path)) for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))
)


def is_users(file: str | None) -> bool:
    """Whether a file belongs to the program under test: not to Python, to installed packages or to perdure."""
    return file is not None and not file.startswith(("<", PACKAGE, *_LIBRARIES))


class ModuleState:
    """The globals of the modules that a workflow's code can reach, as they were when this was made."""

    def __init__(self, function: Callable[..., Any], keep: Iterable[object] = ()) -> None:
        self._kept = {id(each) for each in keep}
        self._modules = [module for module in _reachable(function) if module is not None]
        self._saved: dict[tuple[str, str], Any] = {}
        for module in self._modules:
            for name, value in vars(module).items():
                if self._is_memory(name, value) and (saved := _copied(value)) is not _UNSAVED:
                    self._saved[module.__name__, name] = saved

    def changed(self) -> list[str]:
        """What differs from then, in words: "orders.cache was {} and is {'a': 1}"."""
        found: list[str] = []
        for module in self._modules:
            for name, value in vars(module).items():
                if not self._is_memory(name, value):
                    continue
                before = self._saved.get((module.__name__, name), _UNSAVED)
                if before is not _UNSAVED and _text(before) != _text(value):
                    found.append(f"{module.__name__}.{name} was {_text(before)} and became {_text(value)}")
        return found

    def restore(self) -> None:
        """Back to then. Containers are refilled in place: others may refer to them."""
        for module in self._modules:
            names = vars(module)
            for name, value in list(names.items()):
                before = self._saved.get((module.__name__, name), _UNSAVED)
                if before is _UNSAVED or not self._is_memory(name, value) or _text(before) == _text(value):
                    continue
                fresh: Any = _copied(before)
                if isinstance(value, _CONTAINERS) and type(value) is type(fresh):
                    value.clear()
                    refill: Any = value.update if isinstance(value, (dict, set)) else value.extend
                    refill(fresh)
                else:
                    names[name] = fresh

    def _is_memory(self, name: str, value: object) -> bool:
        return not name.startswith("__") and isinstance(value, _SCALARS + _CONTAINERS) and id(value) not in self._kept


_UNSAVED: Any = object()


def _copied(value: Any) -> Any:
    if isinstance(value, itertools.count):  # which newer Pythons do not copy; its text says all there is
        at = ast.literal_eval(repr(value).removeprefix("count"))
        return itertools.count(*at) if isinstance(at, tuple) else itertools.count(at)
    try:
        return copy.deepcopy(value)
    except Exception:  # a container of something that cannot be copied: left alone
        return _UNSAVED


def _text(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:79] + "…"


def _reachable(function: Callable[..., Any]) -> Iterator[ModuleType]:
    """The module of a function and the user's modules it names, directly or through others."""
    seen: set[str] = set()
    left = [getattr(function, "__module__", "")]
    while left:
        name = left.pop()
        module = sys.modules.get(name)
        if name in seen or module is None:
            continue
        seen.add(name)
        yield module
        for value in list(vars(module).values()):
            left += [found for found in _modules_of(value) if is_users(_file_of(found))]


def _modules_of(value: Any) -> list[str]:
    if isinstance(value, ModuleType):
        return [value.__name__]
    if isinstance(value, (Step, Workflow)):
        return [value.function.__module__]
    return [value.__module__] if isinstance(value, FunctionType) else []


def _file_of(name: str) -> str | None:
    return getattr(sys.modules.get(name), "__file__", None)
