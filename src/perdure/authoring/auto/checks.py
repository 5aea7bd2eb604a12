"""What auto mode refuses, at decoration: each with file, line, reason and way out."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, NoReturn

from perdure.authoring.auto.names import Names, definitions_of
from perdure.authoring.auto.source import Source
from perdure.errors import NotRewritable, UnstorableType
from perdure.kernel.values import why_not_storable


def refuse(source: Source, node: ast.AST, what: str, instead: str) -> NoReturn:
    raise NotRewritable(f"auto workflow {source.node.name!r} {what} ({source.place(node)}). {instead}")


def check_syntax(source: Source, names: Names) -> None:
    """Raises `NotRewritable` for statements that no replay could repeat."""
    for node in definitions_of(source.node):
        match node:
            case ast.Yield() | ast.YieldFrom():
                refuse(source, node, "yields", "A workflow returns one value: collect a list, or `publish` each item.")
            case ast.Global(names=written):
                refuse(
                    source, node, f"writes the global {written[0]!r}",
                    "Memory is gone after a crash: keep it in a local variable, in `state`, or return it.",
                )  # fmt: skip
            case ast.Nonlocal(names=written):
                refuse(
                    source, node, f"writes {written[0]!r} of the function around it",
                    "That function is not called again after a crash: use a local variable, or return it.",
                )  # fmt: skip
            case ast.Call(func=function) if names.is_builtin(function, "open"):
                refuse(
                    source, node, "opens a file, which cannot be stored",
                    "Move what is done with it into a function and call that: it is recorded as a whole.",
                )  # fmt: skip
            case ast.Call(func=function) if names.is_builtin(function, "exec") or names.is_builtin(function, "eval"):
                refuse(
                    source, node, "calls exec or eval: what is in the text cannot be seen",
                    "Move it into a function and call that: it is recorded as a whole.",
                )  # fmt: skip
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                _check_nested(source, node, names)
            case _:
                pass


def _check_nested(source: Source, nested: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, names: Names) -> None:
    """Nested code may change variables of the workflow, which calls it again, but nothing outside."""
    for node in ast.walk(nested):
        match node:
            case ast.Global(names=written):
                refuse(
                    source, node, f"writes the global {written[0]!r} in {nested.name!r}",
                    "Memory is gone after a crash: keep it in a local variable of the workflow, or in `state`.",
                )  # fmt: skip
            case ast.Nonlocal(names=written) if names.free.intersection(written):
                name = min(names.free.intersection(written))
                refuse(
                    source, node, f"writes {name!r} of the function around it in {nested.name!r}",
                    "That function is not called again after a crash: use a variable of the workflow, or return it.",
                )  # fmt: skip
            case _:
                pass


def check_annotations(source: Source, function: FunctionType, local: dict[str, Any] | None) -> None:
    """Raises `UnstorableType` for `conn: Connection = ...`: the value could not outlive the process.

    An annotation that names something defined further down is not checked here; storing such a value then fails with
    its path.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure: dict[str, Any] = {}
    for name, cell in cells.items():
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # bound later
            continue
    for node in definitions_of(source.node):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        code = compile(ast.Expression(node.annotation), source.file, "eval", dont_inherit=True)
        try:
            annotation = eval(code, function.__globals__, {**(local or {}), **closure})  # noqa: S307  # as Python does
            if isinstance(annotation, str):
                annotation = eval(annotation, function.__globals__, {**(local or {}), **closure})  # noqa: S307
        except Exception:  # noqa: S112  # Python never evaluates it: what it cannot name yet is no error
            continue
        reason = why_not_storable(annotation)
        if reason is not None:
            raise UnstorableType(
                f"variable {node.target.id!r} of auto workflow {source.node.name!r} cannot be stored: {reason} "
                f"({source.place(node)}). Use plain data (dataclass, dict, str, ...), or use it inside a function "
                "of its own and keep what that returns."
            )
