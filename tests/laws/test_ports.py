"""`testing`, `cli` and the pytest plugin use what other packages offer: no private attribute of an object of theirs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure

PACKAGE = Path(perdure.__path__[0])
PLUGIN = PACKAGE.parent / "perdure_pytest.py"
FOLDERS = [PACKAGE / "testing", PACKAGE / "cli"]
MODULES = [*(path for folder in FOLDERS for path in sorted(folder.rglob("*.py"))), PLUGIN]

#: Public in spite of their names: of named tuples, and of Python itself.
OFFERED = {"_replace", "_asdict", "os._exit", "sys._getframe"}
#: Nobody offers these, and there is no other way: how an event loop of asyncio waits, what pytest calls a test with,
#: and the one source of random numbers behind the functions of `random`.
UNAVOIDABLE = {
    "testing/time.py": {"_selector", "_clock_resolution", "_scheduled", "_ready", "_cancelled", "_when"},
    "testing/strict.py": {"_inst"},
    "perdure_pytest.py": {"_fixtureinfo"},
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.AST) -> Iterator[str]:
    """Private names that a module defines: functions, classes, and attributes that it gives to `self` or a class."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def foreign_privates(source: str, own: set[str]) -> list[str]:
    """Where a module reaches into an object of another package. `own`: what its package defines.

    `self._x` must be defined in the package: a subclass does not own what its base in another package has. Any other
    `a._x` is refused, unless `a` is a class of the module itself.
    """
    tree = ast.parse(source)
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            is_own = _is_self(node.value) or (isinstance(node.value, ast.Name) and node.value.id in classes)
            if not (is_own and node.attr in own):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if is_private(alias.name)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr", "delattr"):
            found += [
                f"x.{arg.value}"
                for arg in node.args[1:2]
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and is_private(arg.value)
            ]
    return found


def _own(path: Path) -> set[str]:
    folder = next((one for one in FOLDERS if one in path.parents), None)
    files = [path] if folder is None else list(folder.rglob("*.py"))
    return {name for file in files for name in defined(ast.parse(file.read_text()))}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_no_private_attribute_of_another_package_is_used(path: Path) -> None:
    """The engine offers ports instead: `engine.parts`, `engine.admin`, `worker.attempts`, `engine.moments`."""
    name = path.name if path == PLUGIN else str(path.relative_to(PACKAGE))
    unavoidable = UNAVOIDABLE.get(name, set())
    found = [
        one
        for one in foreign_privates(path.read_text(), _own(path))
        if one not in OFFERED and one.rpartition(".")[2] not in OFFERED | unavoidable
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n    def f(self): self._x = 1; return self._x", []),
        ("class A(Engine):\n    def f(self): return self._client", ["self._client"]),
        ("def f(engine): return engine._worker.steps", ["engine._worker"]),
        ("def f(self): return self._engine._worker\nself._engine = self._worker = 1", ["self._engine._worker"]),
        ("from perdure.engine.worker import _reason", ["_reason"]),
        ("getattr(worker, '_steps')", ["x._steps"]),
        ("class A:\n    _known = {}\nA._known", []),
    ],
)
def test_the_rule_would_catch_a_violation(source: str, found: list[str]) -> None:
    """The law's test can fail."""
    assert foreign_privates(source, set(defined(ast.parse(source)))) == found
