"""From the rewritten tree to a function that stands in for the original: same file, lines, closure and defaults."""

from __future__ import annotations
import __future__

import ast
from types import CellType, CodeType, FunctionType
from typing import Any

from perdure.authoring.auto.checks import check_annotations, check_syntax
from perdure.authoring.auto.names import Names
from perdure.authoring.auto.runtime import AutoRuntime
from perdure.authoring.auto.source import source_of
from perdure.authoring.auto.transform import RUNTIME, Rewriter
from perdure.authoring.options import StepOptions
from perdure.errors import NotRewritable

_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_AROUND = "auto.around"
_INNER = "auto.function"


def made_durable(function: FunctionType, settings: StepOptions, local: dict[str, Any] | None) -> FunctionType:
    """The function with its calls recorded. Raises `NotRewritable` or `UnstorableType`, with file and line."""
    if hasattr(function, "__wrapped__"):
        raise NotRewritable(
            f"auto workflow {function.__qualname__!r} has another decorator below @workflow, whose code would be left "
            f"out ({function.__code__.co_filename}:{function.__code__.co_firstlineno}). Put it above, or call what it "
            "does in the workflow."
        )
    source = source_of(function)
    code = function.__code__
    names = Names(source, function.__globals__, code.co_freevars)
    check_syntax(source, names)
    check_annotations(source, function, local)
    plain = isinstance(source.node, ast.FunctionDef)
    last = source.node.end_lineno or code.co_firstlineno
    runtime = AutoRuntime(function.__name__, code.co_filename, (code.co_firstlineno, last), settings, plain=plain)
    body = Rewriter(source, names, plain=plain).rewrite()
    try:
        made = _compiled(body, code)
    except SyntaxError as error:
        raise NotRewritable(
            f"auto workflow {function.__name__!r} has an expression that can be neither recorded whole nor call by "
            f"call ({code.co_filename}:{error.lineno}: {error.msg}). Assign its parts to variables first."
        ) from None
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    cells[RUNTIME] = CellType(runtime)
    closure = tuple(cells[name] for name in made.co_freevars)
    copied = FunctionType(made, function.__globals__, function.__name__, function.__defaults__, closure)
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__annotations__ = dict(function.__annotations__)
    copied.__dict__.update(function.__dict__)
    copied.__qualname__ = function.__qualname__
    copied.__module__ = function.__module__
    copied.__doc__ = function.__doc__
    return copied


def _compiled(body: ast.AsyncFunctionDef, original: CodeType) -> CodeType:
    """Compiled inside a function whose parameters are what the original closes over."""
    _without_defaults(body)
    body.name = _INNER  # under its own name it would hide the global or the variable that recursion means
    parameters = [ast.arg(name) for name in (RUNTIME, *original.co_freevars)]
    around: Any = ast.FunctionDef(
        name=_AROUND,
        args=ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=[body],
        decorator_list=[],
    )
    around.type_params = []  # asked for by Python 3.12
    module = ast.Module([ast.fix_missing_locations(ast.copy_location(around, body))], [])
    flags = original.co_flags & _FUTURES
    compiled = compile(module, original.co_filename, "exec", flags=flags, dont_inherit=True)
    for constant in compiled.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == _AROUND:
            inner = next(c for c in constant.co_consts if isinstance(c, CodeType) and c.co_name == _INNER)
            inner = inner.replace(co_name=original.co_name)
            return _renamed(inner, f"{_AROUND}.<locals>.{_INNER}", original.co_qualname)
    raise AssertionError("the function that was compiled is in the code")


def _without_defaults(body: Any) -> None:
    """Defaults, annotations and type parameters were evaluated when the original was defined, and are taken over."""
    arguments = body.args
    arguments.defaults = [ast.copy_location(ast.Constant(None), default) for default in arguments.defaults]
    arguments.kw_defaults = [
        None if default is None else ast.copy_location(ast.Constant(None), default) for default in arguments.kw_defaults
    ]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in every:
        if argument is not None:
            argument.annotation = None
    body.returns = None
    body.type_params = []


def _renamed(code: CodeType, old: str, new: str) -> CodeType:
    constants = tuple(_renamed(c, old, new) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_qualname=code.co_qualname.replace(old, new, 1), co_consts=constants)
