"""Modules and classes stay small, or say in one sentence of their header why they are one thing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import perdure

PACKAGE = Path(perdure.__path__[0])
LINES_MAX, METHODS_MAX = 450, 25
#: The whole protocol of a store in one class: what can be asked, a line or two each.
FACADES = {"MemoryStore", "SQLiteStore"}


def large(source: str) -> list[str]:
    """What is larger than usual about a module."""
    lines = len(source.splitlines())
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    methods = {
        one.name: sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in one.body) for one in classes
    }
    found = [f"{lines} lines"] if lines > LINES_MAX else []
    return found + [f"{name} has {count} methods" for name, count in methods.items() if count > METHODS_MAX]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_small_or_says_why_not(path: Path) -> None:
    source = path.read_text()
    found = [each for each in large(source) if each.split(" ")[0] not in FACADES]
    header = ast.get_docstring(ast.parse(source)) or ""
    assert not found or f"{LINES_MAX} lines" in header or f"{METHODS_MAX} methods" in header, found


def test_the_rule_would_notice_a_large_class() -> None:
    body = "\n".join(f"    def method_{number}(self): ..." for number in range(METHODS_MAX + 1))
    assert large(f"class Large:\n{body}\n") == [f"Large has {METHODS_MAX + 1} methods"]
    assert large("value = 1\n" * (LINES_MAX + 1)) == [f"{LINES_MAX + 1} lines"]
