"""A lint of workflow code: what would differ on a replay, or be done again by it. Reads source, runs nothing.

Names are resolved as the function would resolve them, so aliases do not hide anything. Plain functions of the same
project that a workflow calls are part of it and are followed; steps and other workflows are not: they are recorded.
In auto mode what the workflow calls is recorded, so only the code it leaves alone is looked at.
"""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import os
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from perdure.authoring.auto.names import Names
from perdure.authoring.auto.source import Source, parsed, source_of
from perdure.authoring.lint_tables import BARE, FORBIDDEN, MUTATORS, ORDERLESS, PATH_METHODS, SHIMMED, instead_of
from perdure.authoring.workflow import Workflow
from perdure.errors import NotRewritable
from perdure.kernel.guard import is_library

_UNKNOWN: Any = object()
#: A comment that takes its line out of the lint.
EXCUSED = "# perdure: ignore"
_CHANGEABLE = (list, dict, set, int, float, str, type(None))
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Finding(NamedTuple):
    """One place that would not survive a replay."""

    file: str
    line: int
    what: str
    instead: str
    #: The workflow it is part of, and the helpers through which that gets there.
    workflow: str
    through: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All but the place."""
        way = f", through {' and '.join(repr(name) for name in self.through)}" if self.through else ""
        return f"workflow {self.workflow!r}{way} {self.what}: {self.instead}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def lint(workflow: Workflow[..., Any]) -> list[Finding]:
    """What is wrong with a workflow, in the order of its source; helpers come after the code that calls them."""
    search = _Search(workflow.name, auto=workflow.is_auto)
    search.look_at(workflow.function, ())
    return search.found


class _Search:
    def __init__(self, workflow: str, *, auto: bool) -> None:
        self.found: list[Finding] = []
        self._workflow = workflow
        self._auto = auto
        self._seen: set[int] = set()

    def look_at(self, function: FunctionType, through: tuple[str, ...]) -> None:
        if id(function.__code__) in self._seen:
            return
        self._seen.add(id(function.__code__))
        try:
            source = source_of(function)
        except NotRewritable:  # no source, nothing to say
            return
        code = _Code(function, source, is_helper=bool(through), auto=self._auto)
        for node, what, instead in code.findings():
            line = getattr(node, "lineno", source.node.lineno)
            if EXCUSED in linecache.getline(source.file, line):
                continue
            self.found.append(Finding(source.file, line, what, instead, self._workflow, through))
        for helper in code.helpers:
            self.look_at(helper, (*through, helper.__name__))


class _Code:
    """One function: the workflow's own, or a helper's."""

    def __init__(self, function: FunctionType, source: Source, *, is_helper: bool, auto: bool) -> None:
        self._source = source
        self._is_helper = is_helper
        self._auto = auto
        self._names = Names(source, function.__globals__, function.__code__.co_freevars)
        self._globals = function.__globals__
        self._closure = _cells(function)
        self._local = _bound(source.node) - set(function.__code__.co_freevars)
        self._imported = _imported(source.node)
        self._sets = _set_variables(source.node)
        self.helpers: list[FunctionType] = []

    def findings(self) -> Iterator[tuple[ast.AST, str, str]]:
        for statement in self._source.node.body:
            yield from self._walk(statement, inside=False)

    def _walk(self, node: ast.AST, *, inside: bool, orderless: bool = False) -> Iterator[tuple[ast.AST, str, str]]:
        """`inside`: in a nested function or lambda, which auto mode leaves alone."""
        match node:
            case ast.Call():
                yield from self._call(node, recorded=self._auto and not inside)
            case ast.For(iter=iterable) if not self._auto or inside:
                yield from self._order(iterable)
            case ast.comprehension(iter=iterable) if not orderless:
                yield from self._order(iterable)
            case ast.Attribute() | ast.Name():
                yield from self._reading(node)
            case ast.Global(names=names):
                yield node, f"writes the global {names[0]!r}", "memory is gone after a crash: use `state`, or return it"
            case _:
                pass
        calm = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDERLESS
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.AnnAssign) and child is node.annotation):
                keeps = calm or (orderless and isinstance(node, ast.GeneratorExp | ast.SetComp))
                yield from self._walk(child, inside=inside or isinstance(node, _SCOPES), orderless=keeps)

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, *, recorded: bool) -> Iterator[tuple[ast.AST, str, str]]:
        if isinstance(node.func, ast.Attribute) and node.func.attr in PATH_METHODS and self._is_path(node.func.value):
            yield node, f"calls {ast.unparse(node.func)}() of a path", "move it into a step"
            return
        if isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "enumerate", "iter", "next", "map"):
            for argument in node.args:
                yield from self._order(argument)
        if recorded and not self._names.is_value_method(node.func):
            return
        target = self._resolved(node.func)
        if target is _UNKNOWN:
            return
        if isinstance(target, FunctionType) and _is_of_the_project(target):
            self.helpers.append(target)
            return
        name = _qualified(target)
        instead = instead_of(name, FORBIDDEN) or (instead_of(name, SHIMMED) if self._is_helper else None)
        if instead is not None and not (name in BARE and len(node.args) >= BARE[name]):
            yield node, f"calls {ast.unparse(node.func)}()", instead

    def _is_path(self, node: ast.expr) -> bool:
        """Whether an expression is a path, as far as one can see: `Path(...)`, with operators and parents."""
        match node:
            case ast.Call(func=function):
                return _qualified(self._resolved(function)).startswith("pathlib.")
            case ast.BinOp(left=left, op=ast.Div()):
                return self._is_path(left)
            case ast.Attribute(value=value):
                return self._is_path(value)
            case ast.Name():
                return type(self._resolved(node)).__module__.startswith("pathlib")
            case _:
                return False

    def _resolved(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                if name in self._local:
                    return _loaded(*self._imported[name]) if name in self._imported else _UNKNOWN
                for names in (self._closure, self._globals, vars(builtins)):
                    if name in names:
                        return names[name]
                return _UNKNOWN
            case ast.Attribute(value=value, attr=name):
                owner = self._resolved(value)
                # Only what can be asked without running anybody's code.
                return getattr(owner, name, _UNKNOWN) if isinstance(owner, (ModuleType, type)) else _UNKNOWN
            case _:
                return _UNKNOWN

    # -- values --------------------------------------------------------------------------------------------------

    def _order(self, node: ast.expr) -> Iterator[tuple[ast.AST, str, str]]:
        if _is_set(node) or (isinstance(node, ast.Name) and node.id in self._sets):
            yield node, "depends on the order of a set, which differs from process to process", "use `sorted(...)`"

    def _reading(self, node: ast.expr) -> Iterator[tuple[ast.AST, str, str]]:
        if isinstance(node, ast.Attribute):
            if node.attr == "environ" and self._resolved(node) is os.environ and not self._is_recorded_read(node):
                yield node, "reads the environment", "pass what it needs as an argument, or read it in a step"
            return
        if not isinstance(node, ast.Name) or node.id in self._local or node.id not in self._globals:
            return
        value = self._globals[node.id]
        # Asked last: it means reading all of the file.
        if isinstance(value, _CHANGEABLE) and node.id in _mutated_globals(self._source.file):
            yield (
                node,
                f"uses the global {node.id!r}, which code of its module changes",
                "pass it as an argument, keep it in `state`, or read it in a step",
            )

    def _is_recorded_read(self, node: ast.AST) -> bool:
        """In auto mode `os.environ.get(...)` is recorded; a subscript is not a call."""
        return self._auto and any(
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.value is node
            for call in ast.walk(self._source.node)
        )


def _qualified(target: Any) -> str:
    """`time.time`, `datetime.datetime.now`, `random.random`: what something is called where it is defined."""
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", "")
    owner = getattr(target, "__self__", None)
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}.{target.__name__}"
    module = getattr(target, "__module__", None) or (type(owner).__module__ if owner is not None else "")
    if owner is not None and not isinstance(owner, ModuleType):  # the functions of `random` are methods
        return f"{type(owner).__module__}.{target.__name__}"
    return f"{'os' if module in ('posix', 'nt') else module}.{name}"


def _is_of_the_project(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    return not file.startswith("<") and not is_library(file)


def _cells(function: FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # bound later
            continue
    return found


def _bound(node: ast.AST) -> set[str]:
    """Every name that is bound anywhere inside: none of them is surely the module's."""
    found: set[str] = set()
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                found |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if inner is not node:
                found.add(name)
            case ast.Global(names=names):
                found -= set(names)
            case _:
                pass
    return found


def _imported(node: ast.AST) -> dict[str, tuple[str, str]]:
    """Names that are imported inside the function: of which module, and what of it. The first of a name counts."""
    found: dict[str, tuple[str, str]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                top = alias.name.partition(".")[0]
                found.setdefault(alias.asname or top, (alias.name if alias.asname else top, ""))
        elif isinstance(inner, ast.ImportFrom) and inner.module and not inner.level:
            for alias in inner.names:
                found.setdefault(alias.asname or alias.name, (inner.module, alias.name))
    return found


def _loaded(module: str, attribute: str) -> Any:
    """What such a name stands for, if that module is loaded already."""
    found = sys.modules.get(module, _UNKNOWN)
    return getattr(found, attribute, _UNKNOWN) if attribute else found


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left) or _is_set(right)
        case _:
            return False


def _set_variables(node: ast.AST) -> frozenset[str]:
    """Variables that only ever hold a set."""
    held: dict[str, bool] = {}
    for inner in ast.walk(node):
        targets: list[ast.expr] = []
        if isinstance(inner, ast.Assign):
            targets = inner.targets
        elif isinstance(inner, ast.AnnAssign) and inner.value is not None:
            targets = [inner.target]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(inner, ast.Assign | ast.AnnAssign) and inner.value:
                held[target.id] = held.get(target.id, True) and _is_set(inner.value)
    return frozenset(name for name, always in held.items() if always)


@functools.lru_cache(maxsize=128)
def _mutated_globals(file: str) -> frozenset[str]:
    """Top-level names of a file that its functions assign, or call a changing method of."""
    try:
        tree, _ = parsed("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return frozenset()
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        local = _bound(function)
        for node in ast.walk(function):
            match node:
                case ast.Global(names=names):
                    found |= set(names)
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name not in local:
                    found.add(name)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if (
                    method in MUTATORS and name not in local
                ):
                    found.add(name)
                case _:
                    pass
    return frozenset(found)
