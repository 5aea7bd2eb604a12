"""Which names a function binds itself, and which calls can be seen to compute only.

A method called on a value of the workflow is executed again on replay; a function found through a module, a global or
a closure is recorded. So the question for `a.b.c(...)` is where `a` comes from.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any

from perdure.authoring.auto.source import Definition, Source

#: Built-in functions that only compute from their arguments, or belong to the frame they are called in.
PURE_BUILTINS = frozenset({
    "abs", "aiter", "all", "anext", "any", "ascii", "bin", "breakpoint", "callable", "chr", "delattr", "dir", "divmod",
    "format", "getattr", "globals", "hasattr", "hex", "isinstance", "issubclass", "iter", "len", "locals", "max",
    "min", "next", "oct", "ord", "pow", "repr", "round", "setattr", "sorted", "sum", "super", "vars",
}) | {name for name, value in vars(builtins).items() if isinstance(value, type)}  # fmt: skip

#: Built-ins that call a function given to them: where it is among their arguments.
CALLERS: dict[str, int | str] = {"map": 0, "filter": 0, "sorted": "key", "min": "key", "max": "key"}
#: Those of them whose result is made while it is read.
LAZY = frozenset({"map", "filter", "zip", "enumerate", "reversed", "iter"})
#: Built-ins that read what they are given from first to last, and the first argument that they read so.
READERS: dict[str, int] = {
    "dict": 0, "enumerate": 0, "filter": 1, "iter": 0, "list": 0, "map": 1, "sum": 0, "tuple": 0, "zip": 0,
}  # fmt: skip

_Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class _Bound(ast.NodeVisitor):
    """Names bound in a function's own scope."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.imported: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            self.names.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.names.add(node.arg)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.imported |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.names.add(node.rest)
        self.generic_visit(node)

    def visit_scope(self, node: Any) -> None:
        if not isinstance(node, ast.Lambda):
            self.names.add(node.name)
        for outside in evaluated_outside(node):
            self.visit(outside)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_scope

    def visit_comprehension_scope(self, node: Any) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name):
                self.names.add(inner.target.id)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_scope


class Names:
    """What the names in one function mean, as far as that can be read off the source."""

    def __init__(self, source: Source, module: dict[str, Any], free: tuple[str, ...]) -> None:
        bound = _Bound()
        for part in (source.node.args, *source.node.body):
            bound.visit(part)
        #: Variables of the functions around it.
        self.free = frozenset(free)
        self._values = bound.names - bound.imported
        self._known = bound.names | bound.imported | set(free) | source.module_names | module.keys()

    def is_pure(self, function: ast.expr) -> bool:
        """Whether a call of this can only compute, as it is a built-in under its own name."""
        return isinstance(function, ast.Name) and function.id in PURE_BUILTINS and function.id not in self._known

    def is_builtin(self, function: ast.expr, name: str) -> bool:
        return isinstance(function, ast.Name) and function.id == name and name not in self._known

    def is_value_method(self, function: ast.expr, inner: frozenset[str] = frozenset()) -> bool:
        """Whether this is a method of a value that the workflow holds: `items.append`, `fetch(url).strip`."""
        if not isinstance(function, ast.Attribute):
            return False
        root = _root(function)
        return not isinstance(root, ast.Name) or root.id in self._values or root.id in inner

    def is_value(self, function: ast.expr, inner: frozenset[str] = frozenset()) -> bool:
        """Whether what is called is itself a value of the workflow: `act = order.ship; act()`."""
        root = _root(function)
        return not isinstance(root, ast.Name) or root.id in self._values or root.id in inner


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def definitions_of(node: Definition) -> Iterator[ast.AST]:
    """Every node of a function's own code. The code of nested functions, lambdas and classes is left out."""
    waiting: list[ast.AST] = [*reversed(node.body)]
    while waiting:
        found = waiting.pop()
        yield found
        inside = evaluated_outside(found) if isinstance(found, _Scope) else ast.iter_child_nodes(found)
        waiting += reversed(list(inside))


def evaluated_outside(node: Any) -> Iterator[ast.expr]:
    """Parts of a nested function, lambda or class that the code around it evaluates: decorators, defaults, bases."""
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.ClassDef):
        yield from node.bases
        yield from (keyword.value for keyword in node.keywords)
    else:
        yield from (default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None)


def inner_names(node: ast.AST) -> frozenset[str]:
    """Names that comprehensions and lambdas inside an expression bind for themselves."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.comprehension):
            found |= {name.id for name in ast.walk(inner.target) if isinstance(name, ast.Name)}
        elif isinstance(inner, ast.arg):
            found.add(inner.arg)
    return frozenset(found)
