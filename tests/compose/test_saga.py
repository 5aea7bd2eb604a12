"""`saga`: what was done is undone in reverse when the block fails, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    Break,
    Critical,
    Engine,
    JoinFailed,
    Rollback,
    RunCancelled,
    RunFailed,
    continue_as,
    event,
    join,
    loop,
    race,
    receive,
    saga,
    sleep,
    step,
    workflow,
)
from perdure.errors import BadArgument, BadDefinition, CompensationFailed, SagaClosed
from perdure.types import Status
from support.effects import Effects
from support.lives import Lives, run_async, until


@event
@dataclass
class Go:
    pass


class Refused(Exception):
    pass


@step
async def note(path: str, line: str) -> str:
    Effects(Path(path)).add(line)
    return line


@step
async def undo(output: list[str]) -> None:
    path, line = output
    Effects(Path(path)).add(f"undo {line}")


@step(undo=undo)
async def book(path: str, line: str) -> list[str]:
    Effects(Path(path)).add(line)
    return [path, line]


@step
async def plain(path: str, line: str) -> list[str]:
    Effects(Path(path)).add(line)
    return [path, line]


@step(max_attempts=1)
async def fail(why: str = "no") -> None:
    raise Refused(why)


GATES: dict[str, asyncio.Event] = {}


@step(undo=undo)
async def gated(path: str, line: str) -> list[str]:
    """Goes on when the test says so."""
    Effects(Path(path)).add(f"{line} began")
    await GATES.setdefault(line, asyncio.Event()).wait()
    Effects(Path(path)).add(line)
    return [path, line]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    GATES.clear()


def outcome(lives: Lives, invocation: Any) -> Any:
    async def main() -> Any:
        async with lives.engine() as engine:
            return await (await engine.start(invocation, id="run")).result()

    return run_async(main())


# -- the rule --------------------------------------------------------------------------------------------------


@workflow
async def order(path: str, ending: str) -> str:
    try:
        async with saga() as s:
            await book(path, "flight")  # its own undo
            await s.do(plain, path, "hotel", undo=undo)
            await s.do(plain(path, line="car"), undo=lambda output: undo([output[0], f"the {output[1]}"]))
            await s.do(note, path, "no undo")
            if ending == "error":
                await fail()
            if ending == "rollback":
                raise Rollback("changed my mind")
    except (Refused, Rollback) as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


DONE = ["flight", "hotel", "car", "no undo"]
UNDONE = ["undo the car", "undo hotel", "undo flight"]


@pytest.mark.parametrize(
    ("ending", "result", "lines"),
    [
        ("well", "fine", DONE),
        ("error", "Refused: no", DONE + UNDONE),
        ("rollback", "Rollback: changed my mind", DONE + UNDONE),
    ],
)
def test_an_error_undoes_in_reverse_and_goes_on(
    lives: Lives, effects: Effects, ending: str, result: str, lines: list[str]
) -> None:
    """CONFORMANCE C5: reverse order, the output goes to undo; `Rollback` does it on purpose."""
    assert outcome(lives, order(str(effects.path), ending)) == result
    assert effects.lines() == lines


def test_compensations_have_locations_of_their_own(lives: Lives, effects: Effects) -> None:
    """Steps of a saga are where they would be without it."""

    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(order(str(effects.path), "error"), id="run")).result()
            locations = [entry.location for entry in await engine.admin.history("run")]
            assert locations == [
                "", "book", "plain", "plain#2", "note", "fail", "saga/undo/undo", "saga/undo/undo#2",
                "saga/undo/undo#3", "",
            ]  # fmt: skip

    run_async(main())


def test_a_crash_at_every_record_repeats_no_compensation(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE C5: resumes after a crash without repeating what is recorded."""

    async def main() -> None:
        for limit in range(1, 11):
            for before in (False, True):
                other = lives.fresh()
                effects = Effects(tmp_path / f"{limit}-{before}")

                async def act(engine: Engine, path: str = str(effects.path)) -> str:
                    return await (await engine.start(order(path, "error"), id="run")).result()

                died = await other.live_until(limit, act, before=before)
                async with other.engine() as engine:
                    assert await act(engine) == "Refused: no"
                ran = effects.counts()
                assert list(ran) == DONE + UNDONE
                # Dying just before a commit repeats the one step whose record it was; dying after it repeats none.
                assert sum(ran.values()) <= 7 + (died and before)

    run_async(main())


# -- a failing undo --------------------------------------------------------------------------------------------


@step(max_attempts=3, initial_delay=0.001)
async def undo_fails(output: list[str]) -> None:
    Effects(Path(output[0])).add(f"could not undo {output[1]}")
    raise Refused(f"cannot undo {output[1]}")


@workflow
async def stubborn(path: str) -> None:
    async with saga("trip") as s:
        await book(path, "flight")
        await s.do(plain, path, "hotel", undo=undo_fails)
        await book(path, "car")
        await fail("the reason")


def test_a_failing_undo_does_not_stop_the_others_and_is_told(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C5: an undo that always fails is retried, then reported; nothing is lost."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(stubborn(str(effects.path)), id="run")
            with pytest.raises(RunFailed) as caught:
                await run.result()
            failed = caught.value.__cause__
            assert isinstance(failed, CompensationFailed)
            assert {name: str(error) for name, error in failed.errors.items()} == {"plain": "cannot undo hotel"}
            assert failed.undone == ("book", "book")
            assert repr(failed.__cause__) == "Refused('the reason')"
            assert failed.message == (
                "saga 'trip' of run 'run' could not be undone: 1 of 3 compensations failed (plain); "
                "book, book was undone."
            )
            assert effects.lines() == [
                "flight", "hotel", "car", "undo car", *["could not undo hotel"] * 3, "undo flight",
            ]  # fmt: skip

    run_async(main())


@workflow
async def wrong_undo() -> None:
    async with saga() as s:
        await s.do(note, "/dev/null", "x", undo=lambda output: 5)  # type: ignore[arg-type, return-value]
        raise Critical("stop")


def test_an_undo_that_is_no_async_function_is_told(lives: Lives) -> None:
    with pytest.raises(RunFailed, match="1 of 1 compensations failed") as caught:
        outcome(lives, wrong_undo())
    assert isinstance(caught.value.__cause__, CompensationFailed)
    assert "undo is a step or another async function" in str(caught.value.__cause__.exceptions[0])
    with pytest.raises(BadDefinition, match="undo is a step"):
        step(undo=5)  # type: ignore[call-overload]


# -- branches --------------------------------------------------------------------------------------------------


@workflow
async def joined(path: str) -> list[str]:
    async def one(name: str) -> None:
        await book(path, f"{name} 1")
        await book(path, f"{name} 2")

    async def two() -> None:
        await book(path, "b 1")
        await fail()

    try:
        async with saga():
            await join(a=one("a"), b=two())
    except JoinFailed as failed:
        return list(failed.errors)
    return []


def test_branches_of_a_failed_join_are_undone(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C5: those that succeeded and those that failed, the last first."""
    assert outcome(lives, joined(str(effects.path))) == ["b"]
    lines = effects.lines()
    assert sorted(lines[:3]) == ["a 1", "a 2", "b 1"]
    assert lines[3:] == [f"undo {line}" for line in reversed(lines[:3])]


@workflow
async def grouped(path: str) -> str:
    async def failing() -> None:
        await receive(Go)
        await fail()

    try:
        async with saga(), asyncio.TaskGroup() as group:
            group.create_task(gated(path, "slow"))
            group.create_task(failing())
    except* Refused:
        pass
    return "over"


def test_a_step_under_way_is_waited_for_and_then_undone(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C5: nothing is left in doubt: it is not cancelled half-way, and undone because it succeeded."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(grouped(str(effects.path)), id="run")
            await until(lambda: effects.lines() == ["slow began"])
            await run.send(Go())

            async def failed() -> bool:
                return any(entry.kind == "step_failed" for entry in await engine.admin.history("run"))

            await until(failed)
            assert effects.lines() == ["slow began"], "it was cancelled"
            GATES["slow"].set()
            assert await run.result() == "over"
            assert effects.lines() == ["slow began", "slow", "undo slow"]

    run_async(main())


@workflow
async def lost_race(path: str) -> str:
    async with saga():
        winner = await race(slow=gated(path, "slow"), fast=book(path, "fast"))
    return winner.name


def test_what_nobody_took_is_undone_even_if_the_saga_succeeds(lives: Lives, effects: Effects) -> None:
    """The loser of a race was booked after all: it is undone, the winner stays."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(lost_race(str(effects.path)), id="run")
            await until(lambda: "fast" in effects.lines() and "slow began" in effects.lines())
            GATES["slow"].set()
            assert await run.result() == "fast"
            assert effects.lines()[-2:] == ["slow", "undo slow"]
            assert "undo fast" not in effects.lines()

    run_async(main())


@workflow
async def saga_loses(path: str) -> str:
    async def trip() -> None:
        async with saga():
            await book(path, "flight")
            await receive(Go)

    winner = await race(trip=trip(), timeout=sleep(0.05))
    return winner.name


def test_a_run_does_not_end_before_the_saga_of_a_loser_is_undone(lives: Lives, effects: Effects) -> None:
    """Nobody waits for the loser of a race, but what it did is not forgotten."""
    assert outcome(lives, saga_loses(str(effects.path))) == "timeout"
    assert effects.lines() == ["flight", "undo flight"]


@workflow
async def background(path: str) -> str:
    async def trip() -> None:
        async with saga():
            await book(path, "flight")
            await receive(Go)

    task = asyncio.create_task(trip())
    await note(path, "going")
    await sleep(0.01)
    return "ended" if not task.done() else "?"


def test_a_saga_left_open_in_a_task_is_undone_at_the_end(lives: Lives, effects: Effects) -> None:
    assert outcome(lives, background(str(effects.path))) == "ended"
    assert sorted(effects.lines()) == ["flight", "going", "undo flight"]
    assert effects.lines()[-1] == "undo flight"


@workflow
async def parcel(path: str) -> list[str]:
    try:
        await receive(Go)
    finally:
        await note(path, "parcel let go")
    return [path, "parcel"]


@workflow
async def child_in_a_saga(path: str, at_once: bool) -> str:
    async def quick() -> str:
        return "quick" if at_once else await note(path, "quick")

    async with saga() as s:
        winner = await race(parcel=s.do(parcel(path), undo=undo), quick=quick())
    return winner.name


@pytest.mark.parametrize("at_once", [True, False])
def test_a_child_in_a_saga_is_cancelled_and_waited_for(lives: Lives, effects: Effects, at_once: bool) -> None:
    """Its own cleanup decides; it did not succeed, so there is nothing to undo. Also if it was only about to start."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(child_in_a_saga(str(effects.path), at_once), id="run")).result() == "quick"
            assert (await engine.status("run/race/parcel/parcel")).status is Status.CANCELLED
            assert not [line for line in effects.lines() if line.startswith("undo")]

    run_async(main())


# -- nesting ---------------------------------------------------------------------------------------------------


@workflow
async def inner_and_outer(path: str, inner_fails: bool) -> str:
    try:
        async with saga("outer"):
            await book(path, "a")
            try:
                async with saga("inner"):
                    await book(path, "b")
                    if inner_fails:
                        await fail()
            except Refused:
                await book(path, "instead")
            await fail()
    except Refused:
        return "undone"
    return "?"


@pytest.mark.parametrize(
    ("inner_fails", "lines"),
    [
        (False, ["a", "b", "undo b", "undo a"]),
        (True, ["a", "b", "undo b", "instead", "undo instead", "undo a"]),
    ],
)
def test_an_inner_saga_that_succeeded_is_undone_with_the_outer_one(
    lives: Lives, effects: Effects, inner_fails: bool, lines: list[str]
) -> None:
    """What it did belongs to the outer one from then on. CONFORMANCE C3."""
    assert outcome(lives, inner_and_outer(str(effects.path), inner_fails)) == "undone"
    assert effects.lines() == lines


@workflow
async def saga_around_a_loop(path: str) -> str:
    async def body(number: int) -> int | Break[None]:
        await book(path, f"{number}")
        await sleep(0.001)
        return Break(None) if number == 3 else number + 1

    try:
        async with saga():
            await loop(body, 0, keep=0)
            await fail()
    except Refused:
        return "undone"
    return "?"


@workflow
async def sagas_in_a_loop(path: str) -> list[str]:
    async def body(seen: list[str]) -> list[str] | Break[list[str]]:
        try:
            async with saga():
                await book(path, f"{len(seen)}")
                if len(seen) % 2:
                    await fail()
        except Refused:
            return [*seen, "undone"]
        return Break(seen) if len(seen) == 4 else [*seen, "kept"]

    return await loop(body, [], keep=0)


def test_a_saga_around_a_loop_undoes_every_iteration_over_every_crash(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE C3: iterations with something to undo outside of them are not pruned, so nothing is forgotten."""

    async def main() -> None:
        for limit in range(1, 16):
            other = lives.fresh()
            effects = Effects(tmp_path / f"{limit}")

            async def act(engine: Engine, path: str = str(effects.path)) -> str:
                return await (await engine.start(saga_around_a_loop(path), id="run")).result()

            await other.live_until(limit, act)
            async with other.engine() as engine:
                assert await act(engine) == "undone"
                assert (await engine.status("run")).pruned == 0
            assert effects.lines() == ["0", "1", "2", "3", "undo 3", "undo 2", "undo 1", "undo 0"]

    run_async(main(), 60)


def test_sagas_inside_iterations_are_pruned_with_them(lives: Lives, tmp_path: Path) -> None:
    """A finished iteration leaves none of its compensations in the journal. CONFORMANCE C3, C4."""
    path = str(tmp_path / "effects")
    result = run_async(lives.crash_at_every_record(lambda: sagas_in_a_loop(path)))
    assert result == ["kept", "undone", "kept", "undone"]


# -- cancel ----------------------------------------------------------------------------------------------------


@workflow
async def waits(path: str) -> None:
    async with saga():
        await book(path, "flight")
        await book(path, "hotel")
        await receive(Go)


@workflow(cancel_grace=0.05)
async def no_time(path: str) -> None:
    async with saga() as s:
        await s.do(plain, path, "flight", undo=for_ever)
        await receive(Go)


@step
async def for_ever(output: list[str]) -> None:
    Effects(Path(output[0])).add("undoing")
    await asyncio.get_running_loop().create_future()


async def _is_waiting(engine: Engine) -> bool:
    view = await engine.status("run")
    return view.status is Status.WAITING and view.waiting[0].kind == "receive"


def test_a_cancelled_run_is_undone_also_if_the_worker_dies_meanwhile(lives: Lives, tmp_path: Path) -> None:
    """CONFORMANCE C5: runs on cancel, and over a crash at every record of it."""

    async def main() -> None:
        for limit in range(4, 8):
            other = lives.fresh()
            effects = Effects(tmp_path / f"{limit}")

            async def act(engine: Engine, path: str = str(effects.path)) -> None:
                run = await engine.start(waits(path), id="run")
                if not (await run.status()).cancel_requested:
                    await until(lambda: _is_waiting(engine))
                    await run.cancel("stop")
                with pytest.raises(RunCancelled, match="stop"):
                    await run.result()

            await other.live_until(limit, act)
            async with other.engine() as engine:
                await act(engine)
                assert (await engine.status("run")).status is Status.CANCELLED
            assert effects.lines() == ["flight", "hotel", "undo hotel", "undo flight"]

    run_async(main())


def test_the_cancel_grace_ends_a_saga_that_cannot_be_undone_and_says_so(
    lives: Lives, effects: Effects, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(no_time(str(effects.path)), id="run")
            await until(lambda: _is_waiting(engine))
            await run.cancel()
            with pytest.raises(RunCancelled):
                await run.result()

    with caplog.at_level(logging.WARNING, "perdure.run"):
        run_async(main())
    assert effects.lines() == ["flight", "undoing"]
    assert "ended by its cancel grace before its sagas were undone" in caplog.text


@workflow
async def impatient(path: str) -> str:
    """A timeout that comes while the saga is being undone does not stop that."""
    try:
        async with asyncio.timeout(0.05):
            async with saga() as s:
                await s.do(plain, path, "flight", undo=slow_undo)
                raise Rollback("go back")
    except TimeoutError:
        return "timeout"
    except Rollback:
        return "rollback"


async def slow_undo(output: list[str]) -> None:
    await sleep(0.2)
    await undo(output)


def test_undoing_is_not_interrupted(lives: Lives, effects: Effects) -> None:
    """CONFORMANCE C5: a compensation that was begun is brought to its end."""
    assert outcome(lives, impatient(str(effects.path))) == "timeout"
    assert effects.lines() == ["flight", "undo flight"]


# -- wrong use -------------------------------------------------------------------------------------------------


@workflow
async def wrong_use(which: str) -> Any:
    s = saga()
    match which:
        case "before":
            return await s.do(note, "/dev/null", "x", undo=undo_fails)
        case "after":
            async with s:
                pass
            return await s.do(note, "/dev/null", "x", undo=undo_fails)
        case "twice":
            async with s:
                pass
            async with s:
                pass
        case "value":
            async with s:
                await s.do(5)  # type: ignore[call-overload]
        case "continue":
            async with s:
                await book("/dev/null", "x")
                await continue_as("after")
        case "name":
            saga("a b")
    raise AssertionError


@pytest.mark.parametrize(
    ("which", "error", "says"),
    [
        ("before", SagaClosed, "saga 'saga' is not open, so 'note' was not begun"),
        ("after", SagaClosed, "saga 'saga' is not open"),
        ("twice", SagaClosed, "a saga is entered once"),
        ("value", BadArgument, "needs a step, a workflow or another async function, not int"),
        ("continue", BadArgument, "cannot continue_as inside a saga"),
        ("name", BadArgument, "the name of a saga"),
    ],
)
def test_wrong_use_is_refused(lives: Lives, which: str, error: type[Exception], says: str) -> None:
    with pytest.raises(RunFailed, match=says) as caught:
        outcome(lives, wrong_use(which))
    assert isinstance(caught.value.__cause__, error)


@workflow
async def too_late(path: str) -> list[str]:
    async def straggler() -> str:
        await gated(path, "slow")
        try:
            await book(path, "more")
        except SagaClosed as error:
            return error.message
        return "?"

    task = asyncio.create_task(asyncio.sleep(0))
    try:
        async with saga():
            task = asyncio.create_task(straggler())  # type: ignore[arg-type]
            await receive(Go)
            await fail()
    except Refused:
        pass
    return [await task]  # type: ignore[list-item]


def test_a_task_that_goes_on_cannot_add_to_a_saga_that_is_being_undone(lives: Lives, effects: Effects) -> None:
    """What it had under way is undone, and it may begin nothing more."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(too_late(str(effects.path)), id="run")
            await until(lambda: effects.lines() == ["slow began"])
            await run.send(Go())

            async def failed() -> bool:
                return any(entry.kind == "step_failed" for entry in await engine.admin.history("run"))

            await until(failed)
            GATES["slow"].set()
            assert "so 'book' was not begun" in (await run.result())[0]
            assert effects.lines() == ["slow began", "slow", "undo slow"]

    run_async(main())


def test_a_step_with_an_undo_is_an_ordinary_step_elsewhere(lives: Lives, effects: Effects) -> None:
    """Outside a saga, and outside a workflow."""

    async def main() -> None:
        assert await book(str(effects.path), "direct") == [str(effects.path), "direct"]
        async with lives.engine() as engine:
            assert await (await engine.start(no_saga(str(effects.path)))).result() == "x"

    run_async(main())


@workflow
async def no_saga(path: str) -> str:
    return (await book(path, "x"))[1]
