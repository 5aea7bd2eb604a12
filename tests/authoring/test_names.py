"""Names of workflows, steps and events: which are allowed, and what happens when two are the same."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import event, step, workflow
from perdure.authoring.registry import registry
from perdure.errors import BadDefinition, NameClash, UnknownWorkflow

SOURCE = """
from dataclasses import dataclass
from perdure import event, workflow

@workflow
async def {name}_flow() -> int:
    return {value}

@event
@dataclass
class {name}Event:
    number: int
"""


def _module(directory: Path, module: str, name: str, value: int = 1) -> Any:
    (directory / f"{module}.py").write_text(SOURCE.format(name=name, value=value))
    importlib.invalidate_caches()
    return importlib.import_module(module)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def test_two_functions_under_one_name_are_refused_naming_both_files(modules: Path) -> None:
    """FAULTS F4: the error says where both are."""
    _module(modules, "clash_one", "Clashing")
    with pytest.raises(NameClash) as clash:
        _module(modules, "clash_two", "Clashing")
    assert "clash_one.py" in str(clash.value)
    assert "clash_two.py" in str(clash.value)
    assert "Clashing_flow" in str(clash.value)


def test_two_events_under_one_name_are_refused(modules: Path) -> None:
    """FAULTS F4, for events."""

    @event(name="TwiceTold")
    @dataclass
    class First:
        number: int

    @dataclass
    class Second:
        number: int

    with pytest.raises(NameClash, match="TwiceTold"):
        event(name="TwiceTold")(Second)


def test_reloading_a_module_replaces_its_definitions(modules: Path) -> None:
    """FAULTS F4: the same source again is a reload, not a clash, also when its lines moved."""
    module = _module(modules, "reloaded", "Reloaded", 1)
    (modules / "reloaded.py").write_text("\n\n\n" + SOURCE.format(name="Reloaded", value=2))
    module = importlib.reload(module)
    spec = registry.workflow("Reloaded_flow", "1")
    assert spec is module.Reloaded_flow.spec


BAD_NAMES = ["a b", "a/b", "a#2", "a~1", "tab\t", "null\0", "", " ", "x" * 201, "ü" * 101]


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if name])
@pytest.mark.parametrize("kind", ["workflow", "step", "event"])
def test_names_that_would_break_locations_are_refused(kind: str, name: str) -> None:
    """'/', '#' and '~' have a meaning in locations; control characters break terminals."""

    async def function() -> None: ...

    @dataclass
    class Thing:
        number: int

    decorate: Any = {"workflow": workflow, "step": step, "event": event}[kind]
    target: Any = Thing if kind == "event" else function
    with pytest.raises(BadDefinition, match="cannot name"):
        decorate(name=name)(target)


def test_the_name_of_one_call_is_checked_too() -> None:
    """`.options(name=...)` becomes a location as well."""

    @step
    async def renamed() -> None: ...

    with pytest.raises(BadDefinition, match="cannot name"):
        renamed.options(name="a/b")
    assert renamed.options(name="other").name == "other"
    assert renamed.name == "renamed"


@pytest.mark.parametrize("name", ["fulfil-order", "module.fulfil", "größe", "支払い", "v2:charge", "x" * 200])
def test_readable_names_are_accepted(name: str) -> None:
    """Unicode, dots and dashes are fine."""

    @step(name=name)
    async def anything() -> None: ...

    assert anything.name == name


def test_versions_live_side_by_side_and_the_latest_is_the_highest() -> None:
    """CONFORMANCE V4: numbers are compared as numbers; the order of registration does not matter."""
    for version in ["1.10", "1.9", "2", "1.2", "2.0.1"]:

        async def versioned() -> None: ...

        versioned.__qualname__ = f"versioned_{version}"
        workflow(name="versioned-flow", version=version)(versioned)
    assert registry.workflow_names()["versioned-flow"] == ["1.2", "1.9", "1.10", "2", "2.0.1"]
    assert registry.latest("versioned-flow").version == "2.0.1"
    assert registry.workflow("versioned-flow", "1.9") is not None
    assert registry.workflow("versioned-flow", "3") is None


@pytest.mark.parametrize("version", ["", "  ", "x" * 51, None, 2])
def test_a_version_that_makes_no_sense_is_refused(version: Any) -> None:
    async def function() -> None: ...

    with pytest.raises(BadDefinition, match="version"):
        workflow(name="odd-version", version=version)(function)


def test_an_unknown_workflow_lists_close_names() -> None:
    """A typing error in a name is answered with the names that look like it. FAULTS F3."""

    @workflow(name="fulfil-the-order")
    async def fulfil() -> None: ...

    with pytest.raises(UnknownWorkflow, match="fulfil-the-order"):
        registry.latest("fulfil-the-ordr")
