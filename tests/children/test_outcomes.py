"""What a parent hears of its child: a result, a failure, a cancel."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note, Stop
from perdure import (
    ChildCancelled,
    ChildFailed,
    Engine,
    RunCancelled,
    RunFailed,
    info,
    receive,
    sleep,
    start_child,
    step,
    workflow,
)
from perdure.types import Status
from support.effects import Effects
from support.lives import Lives, run_async, until


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubling(number: int) -> int:
    return await double(number)


@workflow
async def returns_nothing() -> None:
    return None


@workflow
async def returns(value: str) -> str | int | list[int] | bool | None:
    return {"none": None, "zero": 0, "empty": "", "list": [], "false": False}[value]  # type: ignore[return-value]


@workflow
async def failing(text: str) -> None:
    raise LookupError(text)


@workflow
async def endless(effects_path: str = "") -> None:
    await receive(Stop)


@workflow
async def ask_a_child(number: int) -> int:
    return await doubling(number) + 1


@workflow
async def collect_odd_results() -> list[object]:
    return [await returns(value) for value in ("none", "zero", "empty", "list", "false")]


@workflow
async def survive_a_failing_child() -> list[str]:
    try:
        await failing("lost it")
    except ChildFailed as error:
        await double(1)
        return [type(error.__cause__).__name__, str(error.__cause__), str(error)]
    return []


@workflow
async def fail_with_the_child() -> None:
    await failing("deep")


@workflow
async def survive_a_cancelled_child() -> str:
    try:
        await endless()
    except ChildCancelled as error:
        await double(1)
        return str(error)
    return "not cancelled"


@workflow
async def wait_for_a_child() -> None:
    await endless()


@workflow
async def top(levels: int) -> list[str]:
    if levels == 0:
        return [info().id]
    return [info().id, *await top(levels - 1)]


def test_the_result_of_a_child_arrives(lives: Lives) -> None:
    """CONFORMANCE C7, with a crash after every record."""
    assert run_async(lives.crash_at_every_record(lambda: ask_a_child(4))) == 9


def test_empty_results_of_children_are_results(lives: Lives) -> None:
    """CONFORMANCE C7, law 9: None, 0, "", [] and False are values, not "missing"."""
    assert run_async(lives.crash_at_every_record(collect_odd_results)) == [None, 0, "", [], False]


def test_the_failure_of_a_child_arrives_with_its_cause(lives: Lives) -> None:
    """CONFORMANCE C7: ChildFailed, whose cause is the child's own error; the same on replay."""
    kind, text, message = run_async(lives.crash_at_every_record(survive_a_failing_child))
    assert (kind, text) == ("LookupError", "lost it")
    assert message.startswith("child 'run/failing' failed: LookupError: lost it")


def test_the_failure_of_a_child_that_nobody_catches_fails_the_parent(lives: Lives) -> None:
    """CONFORMANCE C7: the parent's error is ChildFailed, and its cause goes down to the first error."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(fail_with_the_child(), id="run")
            with pytest.raises(RunFailed) as caught:
                await run.result()
            assert isinstance(caught.value.__cause__, ChildFailed)
            assert isinstance(caught.value.__cause__.__cause__, LookupError)
            assert (await engine.status("run/failing")).status is Status.FAILED

    run_async(main())


def test_a_child_cancelled_by_somebody_is_heard_as_child_cancelled(lives: Lives) -> None:
    """CONFORMANCE C7: not CancelledError, which would say that the parent itself is cancelled."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(survive_a_cancelled_child(), id="run")
            await until(lambda: exists(engine, "run/endless"))
            await engine.cancel("run/endless", "not needed")
            assert (await run.result()).startswith("child 'run/endless' was cancelled: not needed")
            assert (await engine.status("run/endless")).status is Status.CANCELLED

    run_async(main())


def test_a_terminated_child_is_heard_as_child_cancelled(lives: Lives) -> None:
    """CONFORMANCE C7: terminate tells the parent in the same change."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(survive_a_cancelled_child(), id="run")
            await until(lambda: exists(engine, "run/endless"))
            await engine.admin.terminate("run/endless", "stuck")
            assert "stuck" in await run.result()

    run_async(main())


async def exists(engine: Engine, run_id: str) -> bool:
    return bool(await engine.list(id_prefix=run_id))


async def ended(engine: Engine, run_id: str) -> bool:
    return (await engine.status(run_id)).status.terminal


def test_cancelling_the_parent_cancels_the_child(lives: Lives) -> None:
    """CONFORMANCE C7: the cascade."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(wait_for_a_child(), id="run")
            await until(lambda: exists(engine, "run/endless"))
            await run.cancel("enough")
            with pytest.raises(RunCancelled):
                await run.result()
            await until(lambda: ended(engine, "run/endless"))
            assert (await engine.status("run/endless")).status is Status.CANCELLED

    run_async(main())


def test_cancelling_cascades_three_levels_down(lives: Lives) -> None:
    """CONFORMANCE C7: grandparent, parent, child."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(nest(2), id="run")
            await until(lambda: exists(engine, "run/nest/nest/endless"))
            await run.cancel("enough")
            for run_id in ("run", "run/nest", "run/nest/nest", "run/nest/nest/endless"):
                await until(lambda run_id=run_id: ended(engine, run_id))  # type: ignore[misc]
                assert (await engine.status(run_id)).status is Status.CANCELLED

    run_async(main())


@workflow
async def nest(levels: int) -> None:
    if levels == 0:
        await endless()
    else:
        await nest(levels - 1)


def test_terminating_the_parent_cancels_the_child(lives: Lives) -> None:
    """CONFORMANCE C7: the parent's code does not run, its children are asked all the same."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(wait_for_a_child(), id="run")
            await until(lambda: exists(engine, "run/endless"))
            assert await engine.admin.terminate("run")
            with pytest.raises(RunCancelled):
                await run.result()
            await until(lambda: ended(engine, "run/endless"))
            assert (await engine.status("run/endless")).status is Status.CANCELLED

    run_async(main())


def test_three_levels_over_a_crash_at_every_record(lives: Lives) -> None:
    """CONFORMANCE C7: ids are the parent's id, a slash, and the location."""
    result = run_async(lives.crash_at_every_record(lambda: top(3)))
    assert result == ["run", "run/top", "run/top/top", "run/top/top/top"]


@workflow
async def children_everywhere() -> list[int]:
    first = await doubling(1)
    both = await asyncio.gather(doubling(2), doubling(3))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(doubling(number)) for number in (4, 5)]
    task = asyncio.create_task(doubling(6))
    limited = await asyncio.wait_for(doubling(7), 3600)
    async with asyncio.timeout(3600):
        under = await doubling(8)
    return [first, *both, *(t.result() for t in tasks), await task, limited, under]


def test_children_in_every_kind_of_task(lives: Lives) -> None:
    """CONFORMANCE C7: await, gather, TaskGroup, create_task, wait_for, timeout; with a crash at every record."""
    result = run_async(lives.crash_at_every_record(children_everywhere), patience=90)
    assert result == [2, 4, 6, 8, 10, 12, 14, 16]


def test_child_ids_are_readable(lives: Lives) -> None:
    """CONFORMANCE C7: parent id + "/" + location, with "#n" from the second use in a branch."""

    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(children_everywhere(), id="run")).result()
            ids = sorted(view.id for view in await engine.list(id_prefix="run/"))
            assert ids == sorted(["run/doubling", *(f"run/doubling#{n}" for n in range(2, 9))])

    run_async(main())


@workflow
async def give_up_on_a_child() -> str:
    try:
        await asyncio.wait_for(endless(), 0.01)
    except TimeoutError:
        return "gave up"
    return "not"


def test_a_child_whose_wait_times_out_is_cancelled(lives: Lives) -> None:
    """CONFORMANCE C7: awaiting a child is like awaiting a task; the one who gives up cancels it."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(give_up_on_a_child(), id="run")).result() == "gave up"
            await until(lambda: ended(engine, "run/endless"))
            assert (await engine.status("run/endless")).status is Status.CANCELLED

    run_async(main())


@step
async def note(path: str, text: str) -> None:
    from pathlib import Path

    Effects(Path(path)).add(text)


@workflow
async def cleans_up(path: str) -> None:
    try:
        await receive(Note)
    finally:
        await note(path, "cleaned up")


@workflow
async def parent_of_one_that_cleans_up(path: str) -> None:
    await cleans_up(path)


def test_a_child_cleans_up_when_its_parent_is_cancelled(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C7, L2: the cascade is a cancel request, not a kill."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(parent_of_one_that_cleans_up(str(effects.path)), id="run")
            await until(lambda: exists(engine, "run/cleans_up"))
            await run.cancel()
            await until(lambda: ended(engine, "run/cleans_up"))

    run_async(main())
    assert effects.lines() == ["cleaned up"]


@workflow
async def sleeping_child() -> str:
    await sleep(0.01)
    return "slept"


@workflow
async def handles() -> list[str]:
    handle = await start_child(sleeping_child())
    await double(1)
    return [handle.id, await handle, await handle.result()]


def test_a_handle_is_awaited_later_and_more_than_once(lives: Lives) -> None:
    """CONFORMANCE C7: start_child, with a crash after every record."""
    assert run_async(lives.crash_at_every_record(handles)) == ["run/sleeping_child", "slept", "slept"]


@workflow
async def cancel_by_handle() -> str:
    handle = await start_child(endless())
    handle.cancel()
    try:
        await handle
    except ChildCancelled:
        await double(1)
        return "cancelled"
    return "not"


def test_a_handle_cancels_its_child_and_hears_of_it(lives: Lives) -> None:
    """CONFORMANCE C7: ChildHandle.cancel; the end still arrives."""
    assert run_async(lives.crash_at_every_record(cancel_by_handle)) == "cancelled"


@workflow
async def never_awaits() -> str:
    await start_child(endless())
    return "left"


@workflow
async def fails_with_a_child_open() -> None:
    await start_child(endless())
    raise LookupError("parent failed")


def test_a_child_nobody_awaited_is_cancelled_at_its_parents_end(lives: Lives) -> None:
    """CONFORMANCE C7, P6: however the parent ends."""

    async def main() -> None:
        for invocation in (never_awaits(), fails_with_a_child_open()):
            async with lives.fresh().engine() as engine:
                run = await engine.start(invocation, id="run")
                if invocation.spec.name == "never_awaits":
                    assert await run.result() == "left"
                else:
                    with pytest.raises(RunFailed):
                        await run.result()
                await until(lambda: ended(engine, "run/endless"))
                assert (await engine.status("run/endless")).status is Status.CANCELLED

    run_async(main())
