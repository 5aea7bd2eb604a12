"""`async with branch("agent"):` keeps the private names of library code out of the locations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from kernel.kernel_kit import Drive
from perdure import Break, branch, join, loop, sleep, step, workflow
from perdure.errors import BadArgument, Diverged, NotInWorkflow
from perdure.kernel.outcomes import Complete


@step
async def tool(number: int) -> int:
    return number


class Library:
    """Somebody else's code. A release renames its private functions."""

    def __init__(self, renamed: str = "") -> None:
        self._renamed = renamed

    def _private(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        function.__name__ = function.__qualname__ = name + self._renamed
        return function

    async def run(self) -> int:
        async def call(number: int) -> int:
            return await tool(number)

        async def collect() -> int:
            made = [asyncio.create_task(self._private(call, "_call")(number)) for number in range(2)]
            await asyncio.sleep(1)
            return sum([await task for task in made])

        return await asyncio.create_task(self._private(collect, "_collect")())


library = Library()


@workflow
async def agent_in_a_branch() -> int:
    async with branch("agent"):
        first = await library.run()
    async with branch("agent"):
        return first + await library.run()


@workflow
async def agent_by_itself() -> int:
    return await library.run()


def _to_the_end(drive: Drive) -> list[str]:
    """Finish whatever it waits for, timers last; the locations, in order."""
    met: list[str] = []
    while drive.run.outcome is None:
        operation = min(drive.run.pending, key=lambda pending: pending.kind == "timer")
        met.append(operation.location)
        if operation.kind == "timer":
            drive.fire(operation.location)
        else:
            drive.finish(operation.location, 1)
    assert isinstance(drive.run.outcome, Complete), drive.run.outcome
    return met


@pytest.fixture(autouse=True)
def _first_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.library", Library())


def test_locations_name_the_branch_and_number_its_tasks() -> None:
    with Drive(agent_in_a_branch()) as drive:
        assert sorted(_to_the_end(drive)) == [
            "agent#2/task/sleep",
            "agent#2/task/task#2/tool",
            "agent#2/task/task/tool",
            "agent/task/sleep",
            "agent/task/task#2/tool",
            "agent/task/task/tool",
        ]
        assert bytes(drive.run.outcome.value) == b"4"  # type: ignore[union-attr]


def test_a_library_that_renames_its_tasks_leaves_open_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point of the run is replayed with the next release, and ends alike."""
    with Drive(agent_in_a_branch()) as drive:
        _to_the_end(drive)
        monkeypatch.setattr(f"{__name__}.library", Library("_v2"))
        for count in range(1, len(drive.records) + 1):
            run, _ = drive.rebuilt(count)
            for record in drive.records[count:]:
                run.deliver(record)
            assert run.outcome == drive.run.outcome


def test_without_a_branch_the_renaming_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `branch` is for."""
    with Drive(agent_by_itself()) as drive:
        assert "_collect/_call#2/tool" in _to_the_end(drive)
        monkeypatch.setattr(f"{__name__}.library", Library("_v2"))
        with pytest.raises(Diverged, match="_collect_v2"):
            drive.rebuilt()


@workflow
async def verbs_in_a_branch() -> str:
    async def private() -> None:
        await asyncio.gather(tool(1), tool(2), asyncio.create_task(own()))
        await asyncio.wait_for(tool(3), 5)

    async def own() -> None:
        async with branch("inner"):
            await tool(4)
        await tool(5)

    async def body(number: int) -> Break[str]:
        await asyncio.create_task(own())
        return Break("done")

    async with branch("agent"):
        await join(one=private())
        await loop(body, 1)
    await tool(6)
    return "done"


def test_verbs_and_nested_branches_keep_their_names() -> None:
    """Only names of tasks are left out: those of steps, verbs and branches are the user's own."""
    with Drive(verbs_in_a_branch()) as drive:
        assert _to_the_end(drive) == [
            "agent/join/one/task/inner/tool",
            "agent/join/one/tool",
            "agent/join/one/tool#2",
            "agent/join/one/task/tool",
            "agent/join/one/tool#3",
            "agent/loop~1/task/inner/tool",
            "agent/loop~1/task/tool",
            "tool",
        ]


@workflow
async def raises_in_a_branch() -> str:
    with contextlib.suppress(ValueError):
        async with branch("agent"):
            raise ValueError
    await tool(1)
    entered = branch("again")
    async with entered:
        await sleep(1)
    try:
        async with entered:
            pass
    except BadArgument as error:
        return str(error)
    return "entered twice"


def test_a_block_that_raises_is_left() -> None:
    with Drive(raises_in_a_branch()) as drive:
        assert _to_the_end(drive) == ["tool", "again/sleep"]
        assert b"a branch is entered once" in bytes(drive.run.outcome.value)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a#2", "a~1", 7])
def test_a_name_that_no_location_could_have_is_refused(name: Any) -> None:
    with pytest.raises(BadArgument, match="name of a branch"):
        branch(name)


def test_outside_of_a_workflow_it_says_so() -> None:
    async def main() -> None:
        async with branch("agent"):
            pass

    with pytest.raises(NotInWorkflow, match="branch"):
        asyncio.run(main())
