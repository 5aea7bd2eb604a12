"""`join`: all branches to their end, results or errors by name. `attempt`: failure as data. `traverse`: one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    ChildFailed,
    Critical,
    Err,
    JoinFailed,
    Ok,
    Rollback,
    RunCancelled,
    RunFailed,
    StepTimeout,
    attempt,
    join,
    sleep,
    step,
    traverse,
    workflow,
)
from perdure.types import Status
from support.effects import Effects
from support.lives import Lives, run_async, until


class Refused(Exception):
    pass


@step
async def value(given: Any) -> Any:
    return given


@step(max_attempts=2, initial_delay=0.001)
async def fail(given: str) -> str:
    raise Refused(given)


@step
async def note(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


_tries: dict[str, int] = {}


@step(max_attempts=3, initial_delay=0.001, jitter=0)
async def third_time(name: str) -> str:
    _tries[name] = _tries.get(name, 0) + 1
    if _tries[name] < 3:
        raise Refused(f"try {_tries[name]}")
    return name


async def two(path: str, name: str) -> str:
    return await note(path, f"{name} 1") + await note(path, f"{name} 2")


@workflow
async def results(path: str) -> dict[str, str]:
    return await join("fetch-all", late=third_time("late"), user=two(path, "user"), posts=two(path, "posts"))


def test_results_come_by_name_in_the_order_of_the_arguments(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C2: whatever the order of their ends; a branch that is retried does not fail the join."""

    async def main() -> None:
        _tries.clear()
        async with lives.engine() as engine:
            run = await engine.start(results(str(effects.path)), id="run")
            found = await run.result()
            assert list(found.items()) == [("late", "late"), ("user", "user 1user 2"), ("posts", "posts 1posts 2")]
            locations = {entry.location for entry in await engine.admin.history("run")}
            assert locations >= {"fetch-all/user/note", "fetch-all/user/note#2", "fetch-all/late/third_time"}

    run_async(main())


@workflow
async def failures(path: str) -> list[Any]:
    try:
        await join(bad=fail("a"), good=two(path, "good"), worse=fail("b"))
    except JoinFailed as failed:
        return [list(failed.errors), [str(error) for error in failed.exceptions], failed.message]
    return []


def test_a_failure_waits_for_the_others_and_all_errors_are_told(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C2: waits for all, errors by branch, in argument order."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(failures(str(effects.path)), id="run")
            assert await run.result() == [
                ["bad", "worse"],
                ["a", "b"],
                "2 of 3 branches failed: bad (Refused), worse (Refused).",
            ]
            assert effects.lines() == ["good 1", "good 2"]

    run_async(main())


@workflow
async def settled() -> list[Any]:
    found = await join(settle=True, ok=value(None), bad=fail("x"))
    match found["bad"]:
        case Err(kind=kind, attempts=attempts, error=error):
            return [found["ok"] == Ok(None), kind, attempts, repr(error)]
    return []


def test_settled_outcomes_are_values(lives: Lives) -> None:
    """CONFORMANCE C2: settle mode; None is a result."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(settled())).result() == [True, "failed", 2, "Refused('x')"]

    run_async(main())


@workflow
async def group_outside() -> None:
    await join(a=fail("x"), b=value(1))


@workflow
async def parent_of_group() -> list[str]:
    try:
        await group_outside()
    except ChildFailed as failed:
        cause = failed.__cause__
        return [f"{name} {error!r}" for name, error in cause.errors.items()] if isinstance(cause, JoinFailed) else []
    return []


def test_a_recorded_group_keeps_its_class_and_names(lives: Lives) -> None:
    """Law 9: out of a child, and out of the store."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(parent_of_group())).result() == ["a Refused('x')"]
            with pytest.raises(RunFailed) as caught:
                await (await engine.start(group_outside())).result()
            assert isinstance(caught.value.__cause__, JoinFailed)
            assert list(caught.value.__cause__.errors) == ["a"]

    run_async(main())


@workflow
async def cancelled_join(path: str) -> None:
    async def branch(name: str) -> None:
        try:
            await sleep("1 day")
        finally:
            await note(path, f"{name} cleaned up")

    await join(a=branch("a"), b=branch("b"))


def test_cancelling_a_join_cancels_its_branches_and_waits_for_their_cleanup(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C3: cancel goes down, cleanup is durable."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(cancelled_join(str(effects.path)), id="run")

            async def waits() -> bool:
                return (await engine.status("run")).status is Status.WAITING

            await until(waits)
            await run.cancel("enough")
            with pytest.raises(RunCancelled):
                await run.result()
            assert sorted(effects.lines()) == ["a cleaned up", "b cleaned up"]

    run_async(main())


# -- attempt -------------------------------------------------------------------------------------------------


@step(timeout=0.01, max_attempts=2, initial_delay=0.001)
async def slow() -> None:
    await asyncio.sleep(60)


@step(max_attempts=5)
async def hopeless() -> None:
    raise Critical("no use")


@step(max_attempts=5)
async def back() -> None:
    raise Rollback("undo it")


@workflow
async def failing_child() -> None:
    await fail("inside")


@workflow
async def attempts() -> list[Any]:
    shown: list[Any] = []
    for tried in (value(5), fail("x"), slow(), hopeless(), back(), failing_child()):
        match await attempt(tried):
            case Ok(given):
                shown.append(given)
            case Err(kind, count, error):
                inner = f" of {type(error.__cause__).__name__}" if isinstance(error, ChildFailed) else ""
                shown.append([kind, count, type(error).__name__ + inner])
    return shown


def test_an_attempt_gives_failure_as_data(lives: Lives) -> None:
    """CONFORMANCE C5 for Critical and Rollback: never retried. The kind says what happened, attempts how often."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert StepTimeout.__name__ == "StepTimeout"
            assert await (await engine.start(attempts())).result() == [
                5,
                ["failed", 2, "Refused"],
                ["timeout", 2, "StepTimeout"],
                ["critical", 1, "Critical"],
                ["rollback", 1, "Rollback"],
                ["failed", 1, "ChildFailed of Refused"],
            ]

    run_async(main())


@workflow
async def attempted_wait() -> str:
    return repr(await attempt(sleep("1 day")))


def test_a_cancelled_attempt_is_cancelled(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(attempted_wait(), id="run")
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result()

    run_async(main())


# -- traverse ------------------------------------------------------------------------------------------------

CALLS: list[int] = []


def double(number: int) -> int:
    CALLS.append(number)
    return number * 2


@step
async def add(number: int, more: int) -> int:
    return number + more


def forgot_async(number: int) -> Any:
    return twice(number)


@workflow
async def bad_traverse(which: str) -> Any:
    match which:
        case "lambda":
            return await traverse([1], lambda number: number + 1)
        case "coroutine":
            return await traverse([1], forgot_async)
        case "limit":
            return await traverse([1], twice, limit=0)
        case "function":
            return await traverse([1], 5)  # type: ignore[call-overload]
    raise AssertionError


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("lambda", "the lambda given to traverse returned int"),
        ("coroutine", "'forgot_async' returned something to be awaited"),
        ("limit", "limit is a whole number of at least 1"),
        ("function", "traverse needs a function of one item, not int"),
    ],
)
def test_a_wrong_traverse_is_refused(lives: Lives, which: str, says: str) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(RunFailed, match=says):
                await (await engine.start(bad_traverse(which))).result()

    run_async(main())


async def twice(number: int) -> int:
    return await value(await value(number)) * 2  # type: ignore[no-any-return]


@workflow
async def traversed() -> list[list[int]]:
    return [
        await traverse(range(3), value),
        await traverse([1, 2, 3], double),
        await traverse([1, 2, 3], twice, limit=2),
        await traverse([], double),
        await traverse([4], lambda number: add(number, 1), name="plus"),
    ]


def test_each_item_is_recorded_by_itself(lives: Lives) -> None:
    """A plain function becomes a step; with a limit several run at once, results keep the order of the items."""

    async def main() -> None:
        CALLS.clear()
        async with lives.engine() as engine:
            run = await engine.start(traversed(), id="run")
            assert await run.result() == [[0, 1, 2], [2, 4, 6], [2, 4, 6], [], [5]]
            assert sorted(CALLS) == [1, 2, 3]
            locations = [entry.location for entry in await engine.admin.history("run")]
            assert {"traverse~1/value", "traverse#2~3/double", "traverse#3~2/value#2", "plus~1/add"} <= set(locations)

    run_async(main())


@workflow
async def traverse_fails(path: str) -> Any:
    async def one(number: int) -> str:
        if number == 2:
            return await fail("two")
        try:
            await sleep("1 day")
        finally:
            await note(path, f"{number} let go")
        return ""

    try:
        return await traverse([1, 2, 3], one, limit=3)
    except Refused as error:
        return str(error)


def test_the_first_failure_cancels_the_rest(lives: Lives, effects: Effects) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(traverse_fails(str(effects.path)))).result() == "two"
            assert sorted(effects.lines()) == ["1 let go", "3 let go"]

    run_async(main())


def upper(line: str) -> str:
    return line.upper()


@workflow
async def all_of_it(path: str) -> list[Any]:
    found = await join(a=two(path, "a"), b=join(c=note(path, "c"), d=third_time("d")))
    await sleep(0.001)
    tried = await attempt(join(bad=fail("x"), good=note(path, "good")))
    many = await traverse(["x", "y", "z"], upper, limit=2)
    return [found, isinstance(tried, Err), many]


def test_a_crash_at_every_record_changes_nothing(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE C2, C3: join in join, a suspension after it, attempt, traverse."""
    _tries.clear()
    path = str(tmp_path / "effects.txt")
    result = run_async(lives.crash_at_every_record(lambda: all_of_it(path)))
    assert result == [{"a": "a 1a 2", "b": {"c": "c", "d": "d"}}, True, ["X", "Y", "Z"]]
