"""`loop`: durable state per iteration, a journal that stays small, and nothing that leaks from one to the next."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Break,
    Engine,
    RunCancelled,
    RunFailed,
    continue_as,
    event,
    join,
    log,
    loop,
    now,
    patched,
    race,
    random,
    receive,
    sleep,
    start_child,
    state,
    status,
    step,
    uuid4,
    workflow,
)
from perdure.errors import BadArgument, NoNextState, UnstorableType
from perdure.types import Status
from support.effects import Effects
from support.lives import Lives, run_async, until


@event
@dataclass
class Item:
    number: int


@dataclass
class Progress:
    cursor: int
    total: int = 0
    seen: tuple[str, ...] = ()


@step
async def add(number: int, more: int) -> int:
    return number + more


@step
async def note(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


@step
async def how_many(path: str) -> int:
    return len(Effects(Path(path)).lines())


# -- state and result ----------------------------------------------------------------------------------------


@workflow
async def sum_up(count: int) -> Progress:
    async def body(progress: Progress) -> Progress | Break[Progress]:
        if progress.cursor == count:
            return Break(progress)
        return Progress(progress.cursor + 1, await add(progress.total, progress.cursor))

    return await loop(body, Progress(0))


@workflow
async def count_without_state(path: str) -> str:
    async def body() -> Break[str] | None:
        await note(path, "again")
        return Break("enough") if await how_many(path) >= 3 else None

    return await loop(body, name="poll")


def test_state_goes_from_iteration_to_iteration_and_break_ends_it(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C4: typed state; a loop may have none; locations carry the iteration."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(sum_up(5), id="run")).result() == Progress(5, 10)
            assert await (await engine.start(count_without_state(str(effects.path)), id="none")).result() == "enough"
            entries = [(e.kind, e.location) for e in await engine.admin.history("none")]
            assert entries[1:5] == [
                ("step_done", "poll~1/note"),
                ("step_done", "poll~1/how_many"),
                ("loop_state", "poll~1"),
                ("step_done", "poll~2/note"),
            ]

    run_async(main())


@workflow
async def bad_loop(which: str) -> Any:
    async def forgets(progress: Progress) -> Progress | None:
        await add(1, 1)
        return None if progress.cursor else Progress(1)

    async def returns_something() -> int:
        return 5

    def is_sync(number: int) -> int:
        return number

    async def unstorable(lock: asyncio.Lock) -> asyncio.Lock:
        return lock

    async def plain(number: int) -> int:
        return number

    async def surprise(number: Any) -> Any:
        return asyncio.Lock()

    count = 0

    async def hands_on(number: int) -> int:
        nonlocal count
        count += 1
        return number

    match which:
        case "forgets":
            return await loop(forgets, Progress(0))  # type: ignore[arg-type]
        case "something":
            return await loop(returns_something)  # type: ignore[arg-type]
        case "sync":
            return await loop(is_sync, 1)  # type: ignore[arg-type]
        case "unstorable":
            return await loop(unstorable, asyncio.Lock())
        case "surprise":
            return await loop(surprise, 1)
        case "nonlocal":
            return await loop(hands_on, 1)
        case "keep":
            return await loop(plain, 1, keep=-1)
        case "every":
            return await loop(plain, 1, commit_every=0)
        case "name":
            return await loop(plain, 1, name="a~1")
        case "body":
            return await loop(5, 1)  # type: ignore[call-overload]
    raise AssertionError


@pytest.mark.parametrize(
    ("which", "error", "says"),
    [
        ("forgets", NoNextState, "returned nothing in iteration 2, although the loop has state"),
        ("something", BadArgument, "returned int, but the loop has no state"),
        ("sync", BadArgument, "Write `async def`"),
        ("unstorable", UnstorableType, "cannot be stored"),
        ("surprise", Exception, "the state of loop 'loop' cannot be stored"),
        ("nonlocal", BadArgument, r"assigns to 'count' of the function around it \(test_loop.py:\d+\)"),
        ("keep", BadArgument, "keep is a whole number of at least 0"),
        ("every", BadArgument, "commit_every is a whole number of at least 1"),
        ("name", BadArgument, "the name of a loop"),
        ("body", BadArgument, "the body of a loop is an async function, not int"),
    ],
)
def test_a_wrong_loop_is_refused_with_what_to_do(lives: Lives, which: str, error: type[Exception], says: str) -> None:
    """A body that returns nothing although the loop has state."""

    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(RunFailed, match=says) as caught:
                await (await engine.start(bad_loop(which))).result()
            assert isinstance(caught.value.__cause__, error)

    run_async(main())


# -- over crashes --------------------------------------------------------------------------------------------


@workflow
async def everything(path: str, keep: int, commit_every: int) -> list[Any]:
    """Steps, a sleep, an event, a child, draws, time, state and status in every iteration."""

    async def body(seen: list[Any]) -> list[Any] | Break[list[Any]]:
        drawn = str(uuid4())
        began = now()
        number = len(seen)
        status(f"iteration {number}")
        state["iterations"] = number
        await note(path, f"{number} {drawn}")
        await sleep(0.001)
        assert now() > began
        item = await receive(Item)
        doubled = await twice(item.number)
        found = await join(a=add(number, 1), b=add(number, 2))
        following = [*seen, [drawn, item.number, doubled, found["b"], round(random(), 6)]]
        return Break(following) if len(following) == 4 else following

    before = str(uuid4())
    result = await loop(body, [], keep=keep, commit_every=commit_every)
    after = await note(path, "after")
    return [before, str(uuid4()), state["iterations"], after, *result]


@workflow
async def twice(number: int) -> int:
    return await add(number, number)


@pytest.mark.parametrize(("keep", "commit_every"), [(0, 1), (2, 1), (1, 2), (0, 3)])
def test_a_crash_at_every_record_repeats_no_finished_iteration(
    lives: Lives, tmp_path: Path, keep: int, commit_every: int
) -> None:
    """CONFORMANCE C4: what each iteration draws, receives and records is the same as without the crash."""
    seeds: dict[str, str] = {}

    async def drive(engine: Engine, _run: Any) -> None:
        for number in range(4):
            await engine.send("run", Item(number), key=f"item {number}")

    async def main() -> None:
        calm = lives.fresh()
        async with calm.engine() as engine:
            run = await engine.start(everything(str(tmp_path / "calm"), keep, commit_every), id="run")
            await drive(engine, run)
            expected = await run.result()
            view = await engine.status("run")
            total = view.records + view.pruned
            assert view.custom_status == "iteration 3"
        assert [row[1:4] for row in expected[4:]] == [[0, 0, 2], [1, 2, 3], [2, 4, 4], [3, 6, 5]]
        for limit in range(1, total + 1):
            other = lives.fresh()
            effects = Effects(tmp_path / f"{limit}")

            async def act(engine: Engine, path: str = str(effects.path)) -> list[Any]:
                run = await engine.start(everything(path, keep, commit_every), id="run")
                await drive(engine, run)
                return await run.result()

            await other.live_until(limit, act)
            noted = effects.counts()
            async with other.engine() as engine:
                result = await act(engine)
                assert [row[1:4] for row in result[4:]] == [row[1:4] for row in expected[4:]], f"crash at {limit}"
                assert result[2:4] == [3, "after"]
                view = await engine.status("run")
                assert view.custom_status == "iteration 3"
                assert view.state == {"iterations": 3}
            # One line for each iteration with one draw each: what was recorded has not run again.
            lines = effects.counts()
            drawn = [line for line in lines if line != "after"]
            assert len(drawn) == 4, f"an iteration drew something else after a crash at {limit}: {lines}"
            assert [line.split()[1] for line in sorted(drawn)] == [row[0] for row in result[4:]]
            assert sum(lines.values()) <= 5 + 1, f"{noted} then {lines}"
            seeds[result[0]] = result[1]

    run_async(main(), 120)
    assert len(seeds) > 1


# -- pruning -------------------------------------------------------------------------------------------------


@workflow
async def long_loop(count: int, keep: int, commit_every: int) -> int:
    async def body(number: int) -> int | Break[int]:
        number = await add(number, 1)
        return Break(number) if number == count else number

    return await loop(body, 0, keep=keep, commit_every=commit_every)


@pytest.mark.parametrize(
    ("keep", "commit_every", "steps", "records"),
    [(0, 1, 3, 8), (3, 1, 5, 12), (10, 1, 12, 26), (0, 7, 9, 14), (5, 7, 14, 18)],
)
def test_only_the_window_stays_in_the_journal(
    lives: Lives, keep: int, commit_every: int, steps: int, records: int
) -> None:
    """CONFORMANCE C4: the last `keep` iterations, the one under way, and what was not saved yet."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(long_loop(60, keep, commit_every), id="run")
            assert await run.result() == 60
            history = await engine.admin.history("run")
            done = [e.location for e in history if e.kind == "step_done"]
            assert done == [f"loop~{number}/add" for number in range(61 - len(done), 61)]
            assert keep + 1 <= len(done) <= steps
            assert len(history) <= records
            view = await run.status()
            assert view.records == len(history)
            assert view.records + view.pruned == 1 + 60 + 59 // commit_every + 1

    run_async(main())


@workflow
async def patched_loop() -> int:
    async def body(number: int) -> int | Break[int]:
        assert patched("new")
        async with asyncio.timeout(60):
            number = await add(number, 1)
        return Break(number) if number == 40 else number

    return await loop(body, 0, keep=1)


def test_marks_in_iterations_go_with_them(lives: Lives) -> None:
    """CONFORMANCE C4: patched() asks anew in each iteration, and its records are pruned too."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(patched_loop(), id="run")
            assert await run.result() == 40
            assert len(await engine.admin.history("run")) < 15

    run_async(main())


@workflow
async def nested(path: str) -> list[Any]:
    async def outer(rows: list[list[int]]) -> list[list[int]] | Break[list[list[int]]]:
        async def inner(row: list[int]) -> list[int] | Break[list[int]]:
            row = [*row, await add(len(rows), len(row))]
            await note(path, f"{len(rows)} {len(row)}")
            return Break(row) if len(row) == 3 else row

        rows = [*rows, await loop(inner, [], keep=0, name="inner")]
        return Break(rows) if len(rows) == 3 else rows

    return await loop(outer, [], keep=0, name="outer")


@workflow
async def side_by_side(path: str) -> list[Any]:
    async def counter(name: str, until: int) -> int:
        async def body(number: int) -> int | Break[int]:
            await note(path, f"{name} {number}")
            return Break(number) if number == until else number + 1

        return await loop(body, 0, keep=0)

    first = list(await asyncio.gather(counter("a", 3), counter("b", 2)))
    second = await join(c=counter("c", 2), d=counter("d", 1))
    third = await counter("e", 2)
    await sleep(0.001)
    return [*first, second, third, await counter("f", 1)]


@workflow
async def in_a_race(path: str) -> list[Any]:
    async def forever(number: int) -> int:
        await note(path, f"tick {number}")
        await receive(Item)
        return number + 1

    winner = await race(ticks=loop(forever, 0, keep=0), stop=sleep(0.2))
    return [winner.name, await note(path, "after")]


@pytest.mark.parametrize("program", [nested, side_by_side], ids=["nested", "side_by_side"])
def test_loops_in_loops_and_branches_survive_a_crash_at_every_record(
    lives: Lives, tmp_path: Path, program: Any
) -> None:
    """CONFORMANCE C3, C4: and no recorded step runs twice."""

    number = [0]

    def invocation() -> Any:
        number[0] += 1
        return program(str(tmp_path / "effects"))

    result = run_async(lives.crash_at_every_record(invocation), 120)
    expected = {
        nested: [[0, 1, 2], [1, 2, 3], [2, 3, 4]],
        side_by_side: [3, 2, {"c": 2, "d": 1}, 2, 1],
    }
    assert result == expected[program]


def test_a_loop_that_loses_a_race_ends(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C3: cancelled in a later iteration, after a restart too."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(in_a_race(str(effects.path)), id="run")
            await engine.send("run", Item(1))
            await until(lambda: "tick 1" in effects.lines())
            await lives.crash(engine)
        async with lives.engine() as engine:
            assert await engine.result("run") == ["stop", "after"]
            assert effects.counts()["tick 0"] == 1

    run_async(main())


@workflow
async def continues(rounds: int) -> int:
    async def body(number: int) -> int:
        number = await add(number, 1)
        if number == 5 and rounds:
            await continue_as(continues(rounds - 1))
        return number if number < 8 else await finish(number)

    async def finish(number: int) -> Any:
        return Break(number)

    return await loop(body, 0, keep=1)


def test_continue_as_inside_a_loop_starts_a_fresh_journal(lives: Lives) -> None:
    """CONFORMANCE C3, C6: and its count of pruned records."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(continues(2), id="run")
            assert await run.result() == 8
            view = await run.status()
            assert (view.generation, view.records + view.pruned) == (3, 17)

    run_async(main())
    assert run_async(lives.fresh().crash_at_every_record(lambda: continues(1))) == 8


# -- what an iteration leaves ----------------------------------------------------------------------------------


variable: ContextVar[str] = ContextVar("variable", default="clean")


@workflow
async def leaves_things() -> list[str]:
    async def body(seen: list[str]) -> list[str] | Break[list[str]]:
        seen = [*seen, variable.get()]
        variable.set("dirty")
        if len(seen) == 1:
            asyncio.create_task(sleep("1 day"))  # noqa: RUF006
            asyncio.get_running_loop().call_later(86400, print)
            await start_child(waits_for_ever())
        await add(1, 1)
        return Break(seen) if len(seen) == 3 else seen

    return [*await loop(body, []), variable.get()]


@workflow
async def waits_for_ever() -> None:
    await receive(Item)


@workflow
async def child_begins_late() -> int:
    async def ready() -> None:
        return None

    async def body(number: int) -> int | Break[int]:
        await race(child=start_child(waits_for_ever()), ready=ready())
        return Break(number) if number == 2 else number + 1

    return await loop(body, 0, keep=0)


def test_a_child_that_is_only_about_to_start_does_not_leak_either(lives: Lives) -> None:
    """CONFORMANCE C4: its handle was lost before the child was there."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(child_begins_late(), id="run")).result() == 2
            assert {view.status for view in await engine.list(workflow="waits_for_ever")} <= {Status.CANCELLED}

    run_async(main())
    assert run_async(lives.fresh().crash_at_every_record(child_begins_late)) == 2


def test_nothing_leaks_into_the_next_iteration(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """CONFORMANCE C4: tasks, timers, children and context variables stay inside; what was cancelled is reported."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(leaves_things(), id="run")
            assert await run.result() == ["clean"] * 4
            assert (await engine.status("run/loop~1/waits_for_ever")).status is Status.CANCELLED

    with caplog.at_level(logging.WARNING, "perdure.run"):
        run_async(main())
    assert "iteration 'loop~1' of run 'run' ended while this was still running; it was cancelled" in caplog.text
    assert "'loop~1/sleep', 'loop~1/waits_for_ever'" in caplog.text
    assert caplog.text.count("ended while") == 1
    assert run_async(lives.fresh().crash_at_every_record(leaves_things)) == ["clean"] * 4


@workflow
async def logs() -> None:
    async def body(number: int) -> int | Break[None]:
        log.info("iteration %d", number)
        await add(number, 1)
        await sleep(0.001)
        return Break(None) if number == 5 else number + 1

    await loop(body, 0, keep=0)


def test_a_log_line_of_an_iteration_is_not_repeated(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each iteration, with a crash at every record; the fatal turn's own lines may be lost, never doubled."""

    async def main() -> None:
        for limit in range(1, 20):
            other = lives.fresh()
            caplog.clear()

            async def act(engine: Engine) -> None:
                await (await engine.start(logs(), id="run")).result()

            await other.live_until(limit, act)
            async with other.engine() as engine:
                await act(engine)
            lines = [record.getMessage() for record in caplog.records if record.name == "perdure.run"]
            assert len(lines) == len(set(lines)) >= 5, lines

    with caplog.at_level(logging.INFO, "perdure.run"):
        run_async(main(), 60)


# -- cancel ----------------------------------------------------------------------------------------------------


@workflow
async def cancelled_in_a_loop(path: str) -> None:
    async def body(number: int) -> int:
        try:
            await receive(Item)
        except asyncio.CancelledError:
            await note(path, f"cancelled in {number}")
            raise
        return number + 1

    await loop(body, 0, keep=0)


@workflow
async def swallows(path: str) -> str:
    async def body(number: int) -> int | Break[str]:
        try:
            item = await receive(Item)
        except asyncio.CancelledError:
            await note(path, f"swallowed in {number}")
            return number + 1
        return Break(f"{number} {item.number}") if item.number < 0 else number + 1

    return await loop(body, 0, keep=0)


def test_a_cancel_reaches_the_iteration_under_way_also_after_a_restart(lives: Lives, effects: Effects) -> None:
    """The iteration that is rebuilt hears of it as the first one would have. CONFORMANCE C3."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(cancelled_in_a_loop(str(effects.path)), id="run")
            for number in range(3):
                await engine.send("run", Item(number))

            async def fourth() -> bool:
                view = await engine.status("run")
                return any(wait.location == "loop~4/receive" for wait in view.waiting)

            await until(fourth)
            await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.cancel("run")
            with pytest.raises(RunCancelled):
                await engine.result("run")
            assert effects.lines() == ["cancelled in 3"]

    run_async(main())


def test_a_cancel_that_an_earlier_iteration_swallowed_stays_swallowed(lives: Lives, effects: Effects) -> None:
    """A replay passes over that iteration, and must not give its cancel request to a later one."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(swallows(str(effects.path)), id="run")
            await engine.send("run", Item(1))
            await engine.cancel("run")
            await until(lambda: bool(effects.lines()))
            await engine.send("run", Item(2))

            async def later() -> bool:
                return any(wait.location == "loop~4/receive" for wait in (await engine.status("run")).waiting)

            await until(later)
            await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.send("run", Item(-1))
            assert await engine.result("run") == "3 -1"
            assert len(effects.lines()) == 1

    run_async(main())


# -- what a restart must not forget ----------------------------------------------------------------------------


@workflow
async def shows_seldom() -> list[Any]:
    status("before the loop")
    state["owner"] = "main"

    async def body(number: int) -> int | Break[int]:
        if number == 1:
            status("from iteration 1")
            state["owner"] = "iteration 1"
        item = await receive(Item)
        return Break(number) if item.number < 0 else number + 1

    count = await loop(body, 0, keep=0)
    return [count, state["owner"]]


def test_status_and_state_of_a_pruned_iteration_are_kept(lives: Lives) -> None:
    """CONFORMANCE C4: they are not derived from its records any more, and not taken back either."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(shows_seldom(), id="run")
            for number in range(4):
                await engine.send("run", Item(number))

            async def fifth() -> bool:
                return any(wait.location == "loop~5/receive" for wait in (await engine.status("run")).waiting)

            await until(fifth)
            await lives.crash(engine)
        async with lives.engine() as engine:
            await engine.send("run", Item(1))
            await engine.send("run", Item(-1))
            assert await engine.result("run") == [5, "iteration 1"]
            view = await engine.status("run")
            assert (view.custom_status, view.state) == ("from iteration 1", {"owner": "iteration 1"})

    run_async(main())
