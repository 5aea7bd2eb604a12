"""Dropping a run from memory closes its coroutines there and then, with commands disabled."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass

import pytest

from kernel.kernel_kit import Drive
from perdure import Engine, event, receive, sleep, step, workflow
from perdure.errors import Stuck
from support.lives import Lives, run_async, until

_ran: list[str] = []


@event
@dataclass
class NeverSent:
    pass


@event
@dataclass
class Finish:
    pass


@pytest.fixture(autouse=True)
def _nothing_ran_before() -> None:
    _ran.clear()


@step
async def clean_up(label: str) -> None:
    _ran.append(label)


async def helper() -> None:
    await clean_up("helper")


@workflow
async def evicted_cleanup() -> str:
    try:
        await receive(Finish)
    finally:
        await clean_up("finally")
    return "finished"


@workflow
async def cleans_up_in_tasks() -> None:
    try:
        await receive(NeverSent)
    finally:
        await asyncio.gather(helper(), helper())


@workflow
async def cleans_up_twice() -> None:
    try:
        try:
            await receive(NeverSent)
        finally:
            await asyncio.sleep(0)
    finally:
        await clean_up("outer")


async def cleans_up_below() -> None:
    try:
        try:
            await receive(NeverSent)
        finally:
            await asyncio.sleep(0)
    finally:
        await clean_up("below")


@workflow
async def cleans_up_in_a_helper() -> None:
    await cleans_up_below()


@workflow
async def swallows_everything() -> int:
    rounds = 0
    while rounds < 5_000:
        rounds += 1
        _ran.append("round")
        try:
            await receive(NeverSent)
        except BaseException:
            continue
    return rounds


@workflow
async def leaves_a_stubborn_task() -> str:
    async def stubborn() -> None:
        for _ in range(5_000):
            _ran.append("round")
            try:
                await receive(NeverSent)
            except asyncio.CancelledError:
                continue

    asyncio.create_task(stubborn())  # noqa: RUF006
    await sleep(1)
    return "ended"


@workflow
async def stuck_at_once() -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await clean_up("after being stuck")


@workflow
async def many_tasks() -> None:
    async def waiting(number: int) -> None:
        try:
            await receive(NeverSent)
        finally:
            await clean_up(str(number))

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(waiting(number))


def test_eviction_runs_no_step_of_a_finally_block(lives: Lives) -> None:
    """FAULTS D29: waiting runs leave memory one after another; their cleanup runs once, at their real end."""

    async def main() -> None:
        async with lives.engine(residents_max=1) as engine:
            for number in range(6):
                await engine.start(evicted_cleanup(), id=f"run-{number}")

            async def all_waiting() -> bool:
                return all(view.status == "waiting" for view in await engine.list())

            await until(all_waiting)
            worker = engine.worker
            assert worker is not None
            await until(lambda: len(worker.residents) <= 1)
            assert _ran == []
            for number in range(6):
                await engine.send(f"run-{number}", Finish())
            for number in range(6):
                assert await engine.result(f"run-{number}") == "finished"

    run_async(main())
    gc.collect()
    assert _ran == ["finally"] * 6


@pytest.mark.parametrize(
    "described", [evicted_cleanup, cleans_up_in_tasks, cleans_up_twice, many_tasks], ids=lambda w: w.name
)
def test_closing_asks_for_nothing(described: type[evicted_cleanup]) -> None:  # type: ignore[valid-type]
    """FAULTS D29: what a closed run's cleanup asks for is neither carried out nor left behind."""
    with Drive(described()) as drive:  # type: ignore[operator]
        run = drive.run
        waiting = [""] if described is not many_tasks else ["waiting/", *(f"waiting#{n}/" for n in range(2, 6))]
        assert drive.pending() == [f"receive {branch}receive" for branch in waiting]
        run.close()
        assert run.take_commands() == []
        assert list(run.pending) == []
    gc.collect()
    assert _ran == []


def test_tasks_made_by_cleanup_are_closed_too() -> None:
    """FAULTS 3.22: a task that a closing coroutine creates is not left to the garbage collector."""
    drive = Drive(cleans_up_in_tasks())
    assert drive.pending() == ["receive receive"]
    drive.close()
    assert drive.run.loop.unfinished_tasks() == []
    del drive
    gc.collect()  # an unstarted coroutine would warn here, and warnings are errors
    assert _ran == []


def test_nested_cleanup_that_waits_runs_no_step() -> None:
    """FAULTS 3.22: a coroutine that waits in `finally` is closed again until it is really over."""
    drive = Drive(cleans_up_twice())
    assert drive.pending() == ["receive receive"]
    main = drive.run.main
    assert main is not None
    drive.close()
    assert main.get_coro().cr_frame is None, "it is still suspended"
    del drive, main
    gc.collect()
    assert _ran == []


def test_cleanup_in_a_helper_that_waits_is_closed_without_noise() -> None:
    """FAULTS 3.22: closing goes through the whole chain of awaits; nothing is "ignored in" a coroutine."""
    drive = Drive(cleans_up_in_a_helper())
    assert drive.pending() == ["receive receive"]
    drive.close()
    del drive
    gc.collect()  # "coroutine ignored GeneratorExit" would be an unraisable error, and those are errors here
    assert _ran == []


def test_code_that_swallows_everything_can_still_be_closed() -> None:
    """FAULTS D22, D29: `except BaseException: continue` around a wait does not hang the worker on eviction."""
    drive = Drive(swallows_everything())
    assert drive.pending() == ["receive receive"]
    drive.close()
    assert len(_ran) < 1_000
    del drive
    gc.collect()  # nor does it when the garbage collector gets to it, where every verb raises at once
    assert len(_ran) < 1_000


def test_a_stubborn_task_does_not_keep_a_run_from_ending() -> None:
    """FAULTS D18, D22: a leftover task that swallows its cancellation over and over does not hang the worker."""
    with Drive(leaves_a_stubborn_task()) as drive:
        drive.fire("sleep")
        assert type(drive.run.outcome).__name__ == "Complete"
    del drive
    gc.collect()
    assert len(_ran) < 1_000


def test_a_run_refused_in_its_first_turn_runs_no_step(lives: Lives) -> None:
    """FAULTS D16, D29: a run that is stuck at once is refused at start, nothing is written, nothing leaks."""

    async def main() -> None:
        async with lives.engine() as engine:
            await _start_refused(engine)
            gc.collect()
            await asyncio.sleep(0)
            assert await engine.list() == []

    run_async(main())
    gc.collect()
    assert _ran == []


async def _start_refused(engine: Engine) -> None:
    with pytest.raises(Stuck):
        await engine.start(stuck_at_once(), id="run")
