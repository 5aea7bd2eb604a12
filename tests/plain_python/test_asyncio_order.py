"""Everything in asyncio happens in the same order on every replay and in every process."""

from __future__ import annotations

import ast
import asyncio
from typing import Any

import pytest

import perdure
from kernel.kernel_kit import Drive
from perdure import workflow
from perdure.errors import Forbidden
from plain_python import early
from plain_python.orders import WIDTH, WORKFLOWS, record, replay
from support.processes import Process


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_the_order_is_the_same_on_every_replay(name: str) -> None:
    """CONFORMANCE P3, FAULTS D8, D11: begin, end and cancellation of every task, in the same order."""
    drive, lines = record(name)
    try:
        assert lines
        for _ in range(3):
            run, again = replay(drive)
            assert again == lines
            assert run.outcome == drive.run.outcome
    finally:
        drive.close()


def test_the_order_is_the_same_under_three_hash_seeds() -> None:
    """CONFORMANCE P3, FAULTS D7, D8: processes differ in hash seed and in addresses, journals and orders do not."""
    processes = [Process("plain_python.orders:digests", env={"PYTHONHASHSEED": s}) for s in ("0", "1", "4711")]
    try:
        outputs = [[process.line() for _ in WORKFLOWS] for process in processes]
    finally:
        for process in processes:
            process.__exit__(None, None, None)
    for first, second, third in zip(*outputs, strict=True):
        assert first.startswith("order_of_")
        assert first == second == third


def test_the_order_does_not_depend_on_addresses() -> None:
    """FAULTS D8: `wait` over gathers goes by creation, wherever in memory each of them happens to be."""
    loop = asyncio.new_event_loop()
    keep: list[object] = []
    try:
        drive, lines = record("order_of_waiting_for_gathers")
        assert sorted(ast.literal_eval(lines[-1])) == [[100 + 2 * n, 200 + 2 * n] for n in range(WIDTH)]
        for number in range(20):
            # Futures of other sizes of history leave holes; the next ones land in other places.
            junk = [asyncio.gather(loop.create_future(), loop.create_future()) for _ in range(number * 7)]
            keep.append(junk[:: number % 5 + 2])
            del junk
            assert replay(drive)[1] == lines
        drive.close()
    finally:
        loop.close()


@workflow
async def waits_for_a_set_of_plain_futures() -> None:
    await asyncio.wait({early.make_future() for _ in range(3)})


def test_an_order_that_cannot_be_kept_is_refused() -> None:
    """A set that code filled with futures of classes which it had before perdure was imported."""
    with pytest.raises(Forbidden, match="a set of plain futures"), Drive(waits_for_a_set_of_plain_futures()):
        pass


def test_other_loops_make_what_they_made() -> None:
    """The stand-ins for `asyncio.Future` and `asyncio.Task` are only seen by runs."""

    class Own(asyncio.Task[int]):
        pass

    async def one() -> int:
        return 1

    async def main() -> None:
        future, task = asyncio.Future[int](), asyncio.Task(one(), name="a name")
        assert type(future) is asyncio.futures.Future
        assert type(task) is asyncio.tasks.Task
        assert task.get_name() == "a name"
        assert isinstance(task, asyncio.Task)
        assert isinstance(task, asyncio.Future)
        assert issubclass(Own, asyncio.Task)
        assert issubclass(Own, asyncio.Future)
        assert not isinstance(future, asyncio.Task)
        own = Own(one())
        assert isinstance(own, Own)
        assert not isinstance(task, Own)
        assert {task, own} <= asyncio.all_tasks()
        assert hash(future) == object.__hash__(future)
        done, pending = await asyncio.wait([task, own])
        assert (type(done), done, pending) == (set, {task, own}, set())

    asyncio.run(main())


def test_a_task_that_runs_cannot_be_initialised_again() -> None:
    """Python 3.12 would crash, others leave the task hanging."""

    @workflow
    async def again() -> str:
        async def other() -> None: ...

        task: Any = asyncio.current_task()
        coroutine = other()
        try:
            task.__init__(coroutine, asyncio.get_running_loop(), task.branch, None)
        except RuntimeError as error:
            return str(error)
        finally:
            coroutine.close()
        return "initialised"

    assert perdure.run(again()) == "a task is initialised once."


def test_scopes_of_anyio_are_cancelled_in_the_order_in_which_they_were_entered() -> None:
    """A set of scopes would go by their addresses."""
    drive, lines = record("order_of_cancelled_scopes")
    drive.close()
    begun = [line.split()[1] for line in lines if line.startswith("begin ")]
    cancelled = [line.split()[1] for line in lines if line.startswith("cancelled ")]
    assert begun[0] == "0"
    assert len(cancelled) > 6
    assert cancelled == [number for number in begun if number in cancelled]
