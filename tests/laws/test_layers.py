"""Imports point down only: cli, ui, testing -> engine -> admin -> store, authoring -> kernel -> errors, limits.

`fastlane` stands beside the engine and can be deleted: one module of the engine names it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure

PACKAGE = Path(perdure.__path__[0])

#: What each part may import, besides itself. `engine` offers `admin`, which
#: needs nothing of the engine.
BELOW = {
    "errors": {"limits"},
    "limits": set[str](),
    "kernel": {"errors", "limits"},
    "authoring": {"kernel", "errors", "limits"},
    "store": {"kernel", "errors", "limits"},
    "engine": {"store", "authoring", "kernel", "errors", "limits", "admin"},
    "fastlane": {"engine", "store", "kernel", "limits"},
    "admin": {"store", "authoring", "kernel", "errors", "limits"},
    "testing": {"admin", "engine", "store", "authoring", "kernel", "errors", "limits"},
    "cli": {"admin", "engine", "store", "authoring", "kernel", "errors", "limits", "ui", "testing"},
    "ui": {"admin", "engine", "store", "authoring", "kernel", "errors", "limits"},
    "types": {"admin", "engine", "store", "authoring", "kernel"},
    "moved": set[str](),
    "otel": {"engine", "store", "authoring", "kernel", "errors", "limits"},
}

#: The one module that names `fastlane`, in a function that its switch guards.
FAST_PATH = PACKAGE / "engine" / "fast_path.py"

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in BELOW)


def _imported(path: Path) -> Iterator[str]:
    """Names below `perdure.` that a module imports, dotted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name.removeprefix("perdure.") for a in node.names if a.name.startswith("perdure."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "perdure":
                yield from (alias.name for alias in node.names)
            elif node.module is not None and node.module.startswith("perdure."):
                yield node.module.removeprefix("perdure.")


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def upward(part: str, imported: str) -> bool:
    top = imported.partition(".")[0]
    return not (top == part or top in BELOW[part] or imported in BELOW[part] or top not in BELOW)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_only(path: Path) -> None:
    """No module imports from a layer above its own."""
    part = _part(path)
    assert part in BELOW, f"say in this test where {part!r} stands"
    above = {"fastlane"} if path == FAST_PATH else set[str]()
    assert {name for name in _imported(path) if upward(part, name)} == above


@pytest.mark.parametrize("path", [p for p in MODULES if _part(p) not in ("cli", "ui", "testing")])
def test_no_layer_uses_the_public_facade(path: Path) -> None:
    """Importing `perdure` itself from inside would be a cycle: only names of modules are allowed."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "perdure":
            assert {alias.name for alias in node.names} <= {"limits", "errors"} | set(BELOW)


def test_the_rule_would_catch_a_violation() -> None:
    """The law's test can fail."""
    assert upward("kernel", "engine.clock")
    assert upward("admin", "engine.worker")
    assert upward("engine", "cli.session")
    assert upward("store", "authoring.step")
    assert not upward("engine", "admin.views")
    assert not upward("kernel", "limits")
