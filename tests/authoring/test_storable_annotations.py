"""Annotated types are checked at decoration: the nearest thing Python has to a compile-time check."""

from __future__ import annotations

import inspect
import socket
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import PerdureError, event, step, workflow
from perdure.errors import UnstorableType


@dataclass
class Connection:
    raw: socket.socket


def _line_of(function: Any) -> int:
    return inspect.getsourcelines(function)[1]


def test_a_workflow_parameter_that_cannot_be_stored_is_refused() -> None:
    """With file, line, parameter and type."""

    async def takes_a_socket(order: str, conn: socket.socket) -> None: ...

    with pytest.raises(UnstorableType) as refused:
        workflow(takes_a_socket)
    message = str(refused.value)
    assert f"{__file__}:{_line_of(takes_a_socket)}" in message
    assert "'conn'" in message
    assert "socket" in message
    assert "takes_a_socket" in message


def test_a_step_result_that_cannot_be_stored_is_refused() -> None:
    """At decoration, with file, line, function and type of the result."""

    async def opens() -> list[threading.Lock]: ...

    with pytest.raises(UnstorableType, match="return value") as refused:
        step(opens)
    assert "'opens'" in str(refused.value)
    assert "lock" in str(refused.value).lower()
    assert f"{__file__}:{_line_of(opens)}" in str(refused.value)


def test_an_unstorable_field_inside_a_class_is_named() -> None:
    """The path leads to the field."""

    async def uses(connection: Connection) -> None: ...

    with pytest.raises(UnstorableType, match="raw"):
        step(uses)


def test_an_event_that_cannot_be_stored_is_refused() -> None:
    """At decoration, with file, line, field and type."""

    @dataclass
    class Opened:
        connection: socket.socket

    with pytest.raises(UnstorableType, match="Opened"):
        event(Opened)


def test_a_name_defined_further_down_is_resolved_at_the_first_call() -> None:
    """Forward references: accepted at decoration, checked when first used."""
    assert later_step.name == "later_step"
    assert takes_later(Later(3)).data == b'{"value":{"number":3}}'
    with pytest.raises(UnstorableType, match="LaterSocket"):
        takes_a_later_socket(None)


def test_a_forward_reference_that_never_comes_is_refused_at_the_first_call() -> None:
    """The message says which function, and that the name does not exist."""
    with pytest.raises(PerdureError, match="takes_nothing_known"):
        takes_nothing_known(1)


@workflow
async def takes_later(value: Later) -> None: ...


@step
async def later_step(value: Later) -> Later:
    return value


@workflow
async def takes_a_later_socket(value: LaterSocket) -> None: ...


@workflow
async def takes_nothing_known(value: NoSuchName) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Later:
    number: int


class LaterSocket(socket.socket):
    pass
