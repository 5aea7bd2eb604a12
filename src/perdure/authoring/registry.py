"""Names of workflows and events, to their definitions. One registry per process, filled by the decorators.

Redecorating the same source (a module reload) replaces; two different sources under one name are refused,
and the error names both files.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import msgspec

from perdure import limits
from perdure.errors import BadDefinition, NameClash, UnknownWorkflow
from perdure.given import shown, text_of
from perdure.kernel.definitions import EventSpec, WorkflowSpec
from perdure.kernel.versions import newest, version_order

T = TypeVar("T")

_NAME = r"[^\s/#~\x00-\x1f\x7f\ud800-\udfff]+"  # compiled at first use, as every pattern that an import can do without


class Place(msgspec.Struct, frozen=True):
    """Where something was defined."""

    file: str
    line: int
    qualname: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def same_source(self, other: Place) -> bool:
        return self.file == other.file and self.qualname == other.qualname


def check_name(name: str, what: str) -> str:
    """Names become parts of locations, where '/', '#' and '~' have a meaning."""
    exact = text_of(name)
    if exact is None or not re.fullmatch(_NAME, exact) or len(exact.encode()) > limits.NAME_BYTES_MAX:
        raise BadDefinition(
            f"{shown(name)} cannot name {what}: a name has no spaces, control or half characters, '/', '#' or '~', "
            f"and at most {limits.NAME_BYTES_MAX} bytes."
        )
    return exact


class _Table(Generic[T]):
    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, tuple[T, Place]] = {}

    def add(self, key: str, value: T, place: Place) -> None:
        known = self._entries.get(key)
        if known is not None and not known[1].same_source(place):
            raise NameClash(
                f"two different functions or classes claim to be {self._what} {key!r}: {known[1]} and {place}. "
                "Give one of them another name with name=..., or another version."
            )
        self._entries[key] = (value, place)

    def get(self, key: str) -> T | None:
        entry = self._entries.get(key)
        return entry[0] if entry is not None else None

    def __getitem__(self, key: str) -> T:
        return self._entries[key][0]

    def keys(self) -> list[str]:
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Definition(Protocol):
    """A decorated workflow. Its spec is built on first use, when every name in its annotations exists."""

    name: str
    version: str

    @property
    def place(self) -> Place: ...

    @property
    def spec(self) -> WorkflowSpec: ...


class Registry:
    """Workflow versions and event types: `Registry(fulfil, refund)` has these workflows and no others, and
    `Engine(..., registry=...)` runs nothing else. Decorators add to the one of this process (`registry`)."""

    def __init__(self, *workflows: Definition) -> None:
        self._workflows: dict[str, _Table[Definition]] = {}
        self._events: _Table[EventSpec] = _Table("event")
        self._served: tuple[tuple[str, str], ...] = ()
        self._served_marks = (0, -1)
        for one in workflows:
            self.add_workflow(one, one.place)

    @contextmanager
    def replaced(self, by: Registry) -> Generator[None]:
        """For as long as the block lasts this registry is another one: its names, and where new ones go."""
        before = self._workflows, self._events
        self.become(by)
        try:
            yield
        finally:
            self._workflows, self._events = before

    def become(self, other: Registry) -> None:
        """The same without an end. What was here before is forgotten here."""
        self._workflows, self._events = other._workflows, other._events

    def add_workflow(self, definition: Definition, place: Place) -> None:
        name = definition.name
        # The clash inside a name is per version; two functions may be two versions of one workflow.
        table = self._workflows.get(name)
        if table is None:
            table = _Table[Definition](f"workflow {name!r} version")
        table.add(definition.version, definition, place)
        self._workflows[name] = table

    def add_event(self, spec: EventSpec, place: Place) -> None:
        self._events.add(spec.name, spec, place)

    def workflow(self, name: str, version: str) -> WorkflowSpec | None:
        definition = self.definition(name, version)
        return definition.spec if definition is not None else None

    def definition(self, name: str, version: str) -> Definition | None:
        table = self._workflows.get(name)
        return table.get(version) if table is not None else None

    def latest(self, name: str) -> WorkflowSpec:
        """The newest version of a workflow. Raises `UnknownWorkflow`, listing close names."""
        table = self._workflows.get(name)
        if table is None:
            import difflib  # only for the rare mistake, not for every start

            close = difflib.get_close_matches(name, self._workflows, n=3)
            hint = f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
            raise UnknownWorkflow(
                f"no workflow is called {name!r} in this process.{hint} Import the module that defines it."
            )
        return table[newest(table.keys())].spec

    def served(self) -> tuple[tuple[str, str], ...]:
        """Name and version of every workflow, in their order: what a worker says that it runs."""
        # Asked for at each sweep: sorting a thousand of them takes longer than to see that there is nothing new.
        marks = id(self._workflows), sum(map(len, self._workflows.values()))
        if marks != self._served_marks:
            names = self.workflow_names()
            self._served = tuple((name, version) for name in sorted(names) for version in names[name])
            self._served_marks = marks
        return self._served

    def workflow_names(self) -> Mapping[str, list[str]]:
        return {name: sorted(table.keys(), key=version_order) for name, table in self._workflows.items()}

    def definitions(self) -> list[Definition]:
        """Every version of every workflow, in the order of names and versions."""
        names = self.workflow_names()
        return [self._workflows[name][version] for name in sorted(names) for version in names[name]]

    def event(self, name: str) -> EventSpec | None:
        return self._events.get(name)

    def event_names(self) -> list[str]:
        return self._events.keys()


registry = Registry()
