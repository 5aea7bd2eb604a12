"""What is known about an operation or a record is known by its class: few files have to name one."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import perdure
from perdure.kernel import effects
from perdure.kernel.journal import BODIES, Body
from perdure.kernel.operations.base import KINDS, EffectOperation, Operation

PACKAGE = Path(perdure.__path__[0])

RECORD_FILES_MAX = 3
EFFECT_FILES_MAX = 9
#: Steps and timers are what the engine itself deals with: attempts, deadlines, the loop of a run.
OPERATION_FILES_MAX = 12

#: What an operation asks of the store, where that has a class of its own.
EFFECTS = {"child": "Spawn", "send": "Send", "publish": "Publish", "reply": "Reply", "wait_for_run": "Watch"}


@cache
def _named() -> dict[tuple[str, str], set[str]]:
    """The classes of modules that each file names: by importing them, or as an attribute of their module."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        file = str(path.relative_to(PACKAGE))
        modules: dict[str, str] = {}
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    found.setdefault((node.module, alias.name), set()).add(file)
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                found.setdefault((modules[node.value.id], node.attr), set()).add(file)
    return found


def files_of(cls: type) -> set[str]:
    """The files that name a class, with the one that defines it."""
    own = cls.__module__.removeprefix("perdure.").replace(".", "/") + ".py"
    return _named().get((cls.__module__, cls.__name__), set()) | {own}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_kind_of_record_is_named_in_few_files(body: type[Body]) -> None:
    """Whatever is true of a record, and what it does to a run, is said by its class."""
    files = {file for file in files_of(body) if not file.startswith("testing/")}
    assert len(files) <= RECORD_FILES_MAX, sorted(files)


@pytest.mark.parametrize("operation", KINDS.values(), ids=KINDS)
def test_an_operation_is_named_in_few_files(operation: type[Operation]) -> None:
    """A verb with an effect is its verb, its operation, its effect, and what a store does for that."""
    files = files_of(operation)
    if not issubclass(operation, EffectOperation):
        assert len(files) <= OPERATION_FILES_MAX, sorted(files)
        return
    effect: type = getattr(effects, EFFECTS[operation.kind])
    for cls in (effect, operation.answered_by):
        if cls is not None:
            files |= files_of(cls)
    # The model of turns hands the effects on to the stores under its own name.
    files |= _named().get(("perdure.store.turn", effect.__name__), set())
    files -= {file for file in files if file.startswith("testing/")}
    assert len(files) <= EFFECT_FILES_MAX, sorted(files)


def test_every_effect_is_looked_at() -> None:
    """A new verb with an effect has to be in the table above."""
    assert {kind for kind, cls in KINDS.items() if issubclass(cls, EffectOperation)} == set(EFFECTS)


def test_the_count_would_find_a_name() -> None:
    """The law's test can fail."""
    assert "kernel/run.py" in files_of(BODIES["step_done"])
