"""What stands around nested functions and classes (decorators, defaults, bases) is evaluated by the workflow itself, so
what is called there is recorded as anywhere else."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import RunFailed, workflow
from perdure.errors import NotRewritable, RunParked
from perdure.testing import VirtualEngine
from support.lives import run_async

done: list[str] = []


def charge(n: int) -> int:
    done.append(f"charge {n}")
    return n


def key(name: str) -> str:
    done.append(f"key {name}")
    return name


def decorating(n: int) -> Callable[[Any], Any]:
    done.append(f"decorating {n}")
    return lambda function: function


class Counted:
    """Takes a number as a keyword of its subclasses."""

    number = 0

    def __init_subclass__(cls, number: int = 0, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        cls.number = number


@workflow(auto=True)
def nested_definitions() -> list[Any]:
    def adding(n: int) -> Any:
        return lambda function: lambda m: function(m) + n

    @adding(charge(1))
    @adding(n=charge(2))
    def function(m: int, more: int = charge(3)) -> int:
        return m + more

    @{key("some"): adding(10)}["some"]
    async def coroutine(m: int) -> int:
        return m

    @functools.total_ordering
    class Nested(*[Counted for _ in range(charge(1))], number=charge(5)):  # type: ignore[misc]
        def __lt__(self, other: object) -> bool:
            return True

    class Pair(namedtuple("Pair", ["a", key("b")])):
        pass

    first = charge(7)
    return [function(first), coroutine.__name__, Nested.number, list(Pair(a=1, b=charge(8)))]


EXPECTED = ["charge 1", "charge 2", "charge 3", "key some", "charge 1", "charge 5", "key b", "charge 7", "charge 8"]


@pytest.mark.parametrize("always_replay", [False, True])
def test_what_definitions_call_is_called_once(always_replay: bool) -> None:
    async def main() -> None:
        done.clear()
        async with VirtualEngine(strict=False, always_replay=always_replay) as engine:
            result = await (await engine.start(nested_definitions())).result()
        assert result == [13, "<lambda>", 5, [1, 8]]
        assert done == EXPECTED

    run_async(main())


@workflow(auto=True)
def decorates_with_something_else() -> int:
    charge(1)

    @decorating(charge(2))
    def function() -> int:
        return 3

    return function()


@workflow(auto=True)
async def derives_from_something_else() -> int:
    charge(1)

    class Nested(decorating(charge(2))):  # type: ignore[misc]
        pass

    return Nested().number  # type: ignore[no-any-return]


@pytest.mark.parametrize("flow", [decorates_with_something_else, derives_from_something_else])
def test_a_call_that_could_only_be_repeated_is_refused(flow: Any) -> None:
    """What it gives cannot be stored: it is not called, not even once."""

    async def main() -> None:
        done.clear()
        async with VirtualEngine(strict=False) as engine:
            run = await engine.start(flow())
            with pytest.raises((RunFailed, RunParked)) as caught:
                await run.result()
        assert "'decorating'" in str(caught.value)
        assert "outside of the workflow" in str(caught.value)
        assert done == ["charge 1", "charge 2"]

    run_async(main())


def opens_in_a_decorator() -> None:
    @functools.partial(print, open("x"))  # noqa: SIM115
    def function() -> None:
        pass

    function()


def opens_in_a_default() -> None:
    def function(file: Any = open("x")) -> None:  # noqa: B008, SIM115
        pass

    function()


def opens_for_a_class() -> None:
    class Nested(Counted, number=open("x")):  # type: ignore[arg-type]  # noqa: SIM115
        pass

    Nested()


@pytest.mark.parametrize("function", [opens_in_a_decorator, opens_in_a_default, opens_for_a_class])
def test_what_is_refused_in_a_workflow_is_refused_there(function: Any) -> None:
    with pytest.raises(NotRewritable, match="opens a file"):
        workflow(auto=True, name="refused")(function)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_a_call_in_the_bases_of_a_generic_class_is_refused(tmp_path: Path) -> None:
    """Python evaluates those in a scope that cannot await."""
    file = tmp_path / "generic.py"
    file.write_text("def flow():\n    class Nested[T](charge(1)):\n        pass\n    return Nested\n")
    names: dict[str, Any] = {"charge": charge}
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(NotRewritable, match=r"in the bases of 'Nested'.*generic\.py:2.*assign"):
        workflow(auto=True, name="refused")(names["flow"])


# -- arguments that cannot be unpacked ---------------------------------------------------------------------------


@workflow(auto=True)
async def unpacks(what: str) -> str:
    nothing: Any = None
    try:
        match what:
            case "positional":
                charge(*nothing)
            case "by name":
                charge(**nothing)
            case "twice":
                charge(**{"n": 1}, **{"n": 2})  # noqa: PIE804
            case "of a value":
                Counted(*nothing)
            case _:
                return str(charge(*[charge(1)], **dict[str, int]()))
    except TypeError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("positional", "{name}() argument after * must be an iterable, not NoneType"),
        ("by name", "{name}() argument after ** must be a mapping, not NoneType"),
        ("twice", "{name}() got multiple values for keyword argument 'n'"),
        ("of a value", "{counted}() argument after * must be an iterable, not NoneType"),
        ("nothing", "1"),
    ],
)
def test_a_type_error_names_what_the_code_calls(what: str, expected: str) -> None:
    """As in plain Python, and not a part of perdure."""

    async def main() -> None:
        async with VirtualEngine(strict=False) as engine:
            text = await (await engine.start(unpacks(what))).result()
        assert text == expected.format(name=f"{__name__}.charge", counted=f"{__name__}.Counted")

    run_async(main())


# -- other tasks ---------------------------------------------------------------------------------------------------


@workflow(auto=True)
async def writes_in_turns() -> list[str]:
    written: list[str] = []

    async def other() -> None:
        written.append("other")

    task = asyncio.create_task(other())
    written.append("before")
    charge(1)
    written.append("after")
    await task
    return written


@pytest.mark.parametrize("always_replay", [False, True])
def test_a_recorded_call_lets_other_tasks_run(always_replay: bool) -> None:
    """Also one of a sync function: docs/how-to/auto-mode.md says so, since in plain Python none would."""

    async def main() -> None:
        async with VirtualEngine(strict=False, always_replay=always_replay) as engine:
            assert await (await engine.start(writes_in_turns())).result() == ["before", "other", "after"]

    run_async(main())
