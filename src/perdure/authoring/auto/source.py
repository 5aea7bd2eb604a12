"""The tree of a function, parsed from its whole file so that every line and column stays what it was."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
from types import FunctionType
from typing import NamedTuple, TypeAlias

from perdure.errors import NotRewritable

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """A function as it is written."""

    file: str
    #: A copy that may be changed.
    node: Definition
    #: Names that the module binds at its top level, also further down.
    module_names: frozenset[str]

    def place(self, node: ast.AST) -> str:
        return f"{self.file}:{getattr(node, 'lineno', self.node.lineno)}"


def source_of(function: FunctionType) -> Source:
    """Raises `NotRewritable` if the text of the function cannot be found, or is not this function's."""
    code = function.__code__
    if code.co_name == "<lambda>":
        raise NotRewritable(
            f"an auto workflow cannot be a lambda ({code.co_filename}:{code.co_firstlineno}). Write it with `def`."
        )
    file = inspect.getsourcefile(function) or code.co_filename
    # Newer Pythons find the text of `python -c` under "<string>", whatever other text was compiled under that name.
    lines = [] if file == "<string>" else linecache.getlines(file, function.__globals__)
    if not lines:
        raise NotRewritable(
            f"auto mode needs the source of {function.__qualname__!r}, and {code.co_filename!r} cannot be read. "
            "Define it in a file, or write `@workflow` with steps."
        )
    try:
        tree, names = parsed("".join(lines))
    except (SyntaxError, ValueError) as error:
        raise NotRewritable(f"the source of {function.__qualname__!r} in {file} cannot be parsed: {error}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return Source(code.co_filename, copy.deepcopy(node), names)
    raise NotRewritable(
        f"auto mode found no function {code.co_name!r} at line {code.co_firstlineno} of {file}: the file changed after "
        "it was imported, or the function was made by other code. Restart the process, or write `@workflow` with steps."
    )


@functools.lru_cache(maxsize=32)
def parsed(text: str) -> tuple[ast.Module, frozenset[str]]:
    tree = ast.parse(text)
    names: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case _:
                stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
                names |= {node.id for node in stored if isinstance(node.ctx, ast.Store)}
    return tree, frozenset(names)
