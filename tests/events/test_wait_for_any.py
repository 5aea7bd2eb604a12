"""`wait_for_any`: which of several runs ended first and how, heard once, over crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from events.kinds import Note, Stop
from perdure import (
    EndedRun,
    Engine,
    Err,
    Ok,
    RunCancelled,
    RunFailed,
    RunHandle,
    RunNotFound,
    continue_as,
    race,
    receive,
    sleep,
    start_child,
    step,
    wait_for_any,
    wait_for_run,
    workflow,
)
from perdure.errors import BadArgument, NotDecodable
from perdure.testing import VirtualEngine, crash_everywhere
from support.lives import Lives, run_async, until


@dataclass
class Receipt:
    number: int


@workflow
async def counts_a_note() -> Receipt:
    note = await receive(Note)
    if note.text == "fail":
        raise LookupError("on purpose")
    return Receipt(len(note.text))


@workflow
async def tells_the_first(run_ids: list[str]) -> str:
    try:
        ended = await wait_for_any(run_ids, result=Receipt)
    except (RunNotFound, BadArgument) as error:
        return f"{type(error).__name__}: {error.message}"
    match ended:
        case EndedRun(run_id, Ok(Receipt(number))):
            assert ended.result() == Receipt(number)
            return f"{run_id}: {number}"
        case EndedRun(run_id, Err(kind, _, failure)):
            with pytest.raises(type(failure)) as raised:
                ended.result()
            assert raised.value is failure
            return f"{run_id}: {kind}: {failure} because of {failure.__cause__!r}"
        case _:
            raise AssertionError(ended)


@step
async def ship(run_id: str) -> str:
    return f"shipped {run_id}"


@workflow
async def all_in_turn(run_ids: list[str]) -> list[str]:
    """Hears of each end, with a step after it; the last of them had ended while nobody asked."""
    left, told = list(run_ids), []
    while left:
        ended = await wait_for_any(left)
        left.remove(ended.run_id)
        told.append(f"{await ship(ended.run_id)}: {ended.outcome}")
    return told


TOLD = ["shipped b: Ok(value={'number': 2})", "shipped a: Ok(value={'number': 1})"]


async def _end_in_order(engine: Engine) -> None:
    """What clients do, in each life: b has ended before a does."""
    await until(lambda: _listens(engine, "run"))
    await _end(engine, "b", "12")
    await _end(engine, "a", "1")


async def _end(engine: Engine, run_id: str, text: str = "x") -> None:
    if not (await engine.status(run_id)).status.terminal:
        await engine.send(run_id, Note(text), key=run_id)
    await engine.result(run_id)


async def _listens(engine: Engine, waiter: str) -> bool:
    """Whether the store knows which two ends the waiter wants to hear of, or no longer has to."""
    view = await engine.status(waiter)
    return view.status.terminal or view.records >= 3


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_the_first_end_is_heard_over_crashes(lives: Lives, before: bool) -> None:
    """Recorded, exactly once: the same run is first after a crash at any record of any of the three runs."""

    async def act(engine: Engine) -> list[str]:
        for run_id in ("a", "b"):
            await engine.start(counts_a_note(), id=run_id)
        handle = await engine.start(all_in_turn(["a", "b"]), id="run")
        await _end_in_order(engine)
        return await handle.result()

    run_async(_die_at_every_record(lives, act, TOLD, before), patience=60)


async def _die_at_every_record(
    lives: Lives, act: Callable[[Engine], Awaitable[object]], expected: object, before: bool = False
) -> None:
    """As `crash_at_every_record`, for runs that must be there before the one that is tested."""
    limit, died = 0, True
    while died:
        limit += 1
        fresh = lives.fresh()
        died = await fresh.live_until(limit, act, before=before)
        async with fresh.engine() as engine:
            assert await act(engine) == expected, f"after a crash at record {limit}"
    assert limit > 10


def test_a_crash_everywhere_changes_nothing() -> None:
    """In virtual time, at every commit, with the journals replayed in processes of another hash seed."""

    async def drive(engine: VirtualEngine, handle: RunHandle[Any]) -> None:
        for run_id, text in (("first", "12"), ("second", "1")):
            if not (await engine.status(run_id)).status.terminal:
                await engine.send(run_id, Note(text), key=run_id)

    report = crash_everywhere(takes_the_first(), drive=drive)
    assert report.result == "first 2"
    assert report.points > 5


@workflow
async def takes_the_first() -> str:
    children = [await start_child(counts_a_note(), id=run_id, detach=True) for run_id in ("first", "second")]
    ended = await wait_for_any([child.id for child in children], result=Receipt)
    return f"{ended.run_id} {ended.result().number}"


def test_other_ends(lives: Lives) -> None:
    """Failed with its cause, cancelled and terminated are outcomes; what is no run that could end is refused."""

    async def main() -> None:
        async with lives.engine(residents_max=2) as engine:
            await engine.start(counts_a_note(), id="open")
            for run_id in ("failed", "cancelled", "terminated"):
                await engine.start(counts_a_note(), id=run_id)
                await engine.start(tells_the_first(["open", run_id]), id=f"waits-{run_id}")
            await engine.send("failed", Note("fail"))
            await engine.cancel("cancelled", "enough")
            await engine.admin.terminate("terminated", "now")
            said = {run_id: await engine.result(f"waits-{run_id}") for run_id in ("failed", "cancelled", "terminated")}
            assert said["failed"].startswith("failed: failed: run 'failed' failed: LookupError: on purpose")
            assert said["failed"].endswith("because of LookupError('on purpose')")
            assert said["cancelled"].startswith("cancelled: cancelled: run 'cancelled' was cancelled: enough")
            assert said["terminated"].startswith("terminated: cancelled: run 'terminated' was cancelled: now")
            # Also if another of them has ended: a run that does not exist is a mistake, not a slow run.
            for run_ids in (["open", "nobody"], ["nobody", "failed"], ["failed", "nobody"]):
                nobody = await engine.start(tells_the_first(run_ids))
                assert await nobody.result() == "RunNotFound: no run has the id 'nobody'."
            itself = await engine.start(tells_the_first(["open", "itself"]), id="itself")
            assert (await itself.result()).startswith("BadArgument: run 'itself' would wait for its own end")
            none = await engine.start(tells_the_first([]))
            assert (await none.result()).startswith("BadArgument: wait_for_any() needs at least one run id")

    run_async(main())


WRONG: dict[str, Callable[[], Awaitable[Any]]] = {
    "text": lambda: wait_for_any("ab"),  # type: ignore[call-overload]
    "set": lambda: wait_for_any({"a", "b"}),  # type: ignore[call-overload]
    "iterator": lambda: wait_for_any(iter(["a"])),  # type: ignore[call-overload]
    "number": lambda: wait_for_any(["a", 3]),  # type: ignore[list-item]
    "empty id": lambda: wait_for_any(["a", ""]),
    "name": lambda: wait_for_any(["a"], name="caf\udce9"),
}


@workflow
async def asks_wrongly(how: str) -> str:
    with pytest.raises(BadArgument) as refused:
        await WRONG[how]()
    return refused.value.message


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_argument_is_refused_before_anything_is_asked(lives: Lives, how: str) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(asks_wrongly(how))
            message = await handle.result()
            if how in ("text", "set", "iterator"):
                assert message.startswith("wait_for_any() takes a list of run ids, not ")
            assert (await handle.status()).records == 2

    run_async(main())


def test_of_runs_that_had_ended_before_the_one_given_first_is_told(lives: Lives) -> None:
    """Whenever they ended; the same run twice is one run, and a tuple is as good as a list."""

    async def main() -> None:
        async with lives.engine() as engine:
            for run_id, text in (("early", "1"), ("late", "22")):
                run = await engine.start(counts_a_note(), id=run_id)
                await run.send(Note(text))
                await run.result()
            await engine.start(counts_a_note(), id="open")
            for run_ids, expected in (
                (["early", "late"], "early: 1"),
                (["late", "early", "late"], "late: 2"),
                (["open", "late"], "late: 2"),
                (["early", "early"], "early: 1"),
            ):
                handle = await engine.start(tells_the_first(run_ids))
                assert await handle.result() == expected
                kinds = [record.kind for record in await engine.admin.history(handle.id)]
                assert kinds.count("run_watched") == len(set(run_ids))
                assert kinds.count("run_ended") == 1

    run_async(main())


def test_each_wait_is_named_by_its_run(lives: Lives) -> None:
    """So that a journal can be read; characters that mean something in a location are written as in a URL."""

    async def main() -> None:
        async with lives.engine() as engine:
            for run_id in ("order-1", "with space#1~2"):
                await engine.start(counts_a_note(), id=run_id)
            handle = await engine.start(tells_the_first(["with space#1~2", "order-1"]))
            await until(lambda: _listens(engine, handle.id))
            assert {(wait.location, wait.detail) for wait in (await handle.status()).waiting} == {
                ("wait_for_any/with%20space%231%7E2", "with space#1~2"),
                ("wait_for_any/order-1", "order-1"),
            }
            reason = await engine.admin.why(handle.id)
            assert (reason.kind, len(reason.also)) == ("run", 1)
            await engine.send("with space#1~2", Note("abc"))
            assert await handle.result() == "with space#1~2: 3"

    run_async(main())


@workflow
async def in_branches() -> list[str]:
    """Two at once, each in a task of its own, and one that loses a race."""
    found = await asyncio.gather(wait_for_any(["a", "c"]), wait_for_any(["b", "c"]))
    winner = await race(any=wait_for_any(["c"]), tick=sleep(0.01))
    try:
        async with asyncio.timeout(0.01):
            await wait_for_any(["c"], name="patience")
    except TimeoutError:
        await receive(Stop)
    return [*(ended.run_id for ended in found), winner.name, (await wait_for_any(["c"])).run_id]


def test_waits_that_are_given_up_leave_the_runs_alone(lives: Lives) -> None:
    """By a race, by a timeout, by another end; and the same after a crash at every record."""

    async def act(engine: Engine) -> list[str]:
        for run_id in ("a", "b", "c"):
            await engine.start(counts_a_note(), id=run_id)
        handle = await engine.start(in_branches(), id="run")
        for run_id in ("a", "b"):
            await _end(engine, run_id)

        async def gave_up() -> bool:
            view = await handle.status()
            return view.status.terminal or any("receive" in wait.location for wait in view.waiting)

        await until(gave_up)
        await _end(engine, "c")
        if not (await handle.status()).status.terminal:
            await handle.send(Stop(), key="stop")
        return await handle.result()

    async def main() -> None:
        expected = ["a", "b", "tick", "c"]
        async with lives.engine() as engine:
            assert await act(engine) == expected
            locations = {record.location for record in await engine.admin.history("run")}
            assert {"wait_for_any/a", "wait_for_any#2/b", "race/any/wait_for_any/c", "patience/c"} <= locations
        await _die_at_every_record(lives, act, expected)

    run_async(main(), patience=60)


@workflow
async def waits_until_cancelled(run_ids: list[str]) -> None:
    await wait_for_any(run_ids)


def test_a_cancelled_waiter_cancels_nobody_else(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            runs = [await engine.start(counts_a_note(), id=run_id) for run_id in ("a", "b")]
            waiter = await engine.start(waits_until_cancelled(["a", "b"]), id="waiter")
            await until(lambda: _listens(engine, "waiter"))
            await waiter.cancel("enough")
            with pytest.raises(RunCancelled):
                await waiter.result()
            for run in runs:
                await run.send(Note("abc"))
                assert await run.result() == Receipt(3)

    run_async(main())


@workflow
async def goes_on_as(rounds: int) -> int:
    await receive(Stop)
    if rounds:
        await continue_as(rounds - 1)
    return rounds


@workflow
async def waits_again(run_ids: list[str], told: list[str]) -> list[str]:
    """One wait for each generation."""
    ended = await wait_for_any(run_ids)
    left = [run_id for run_id in run_ids if run_id != ended.run_id]
    if left:
        await continue_as(left, [*told, ended.run_id])
    return [*told, ended.run_id]


def test_generations_of_either_side(lives: Lives) -> None:
    """A run that goes on as its next generation has not ended; a wait of an earlier generation is not heard in the
    next, which asks anew."""

    async def main() -> None:
        async with lives.engine() as engine:
            long = await engine.start(goes_on_as(1), id="long")
            short = await engine.start(counts_a_note(), id="short")
            waiter = await engine.start(waits_again(["long", "short"], []), id="waiter")
            await until(lambda: _listens(engine, "waiter"))
            await long.send(Stop())

            async def is_next() -> bool:
                return (await long.status()).generation == 2

            await until(is_next)
            await short.send(Note("abc"))
            await short.result()
            await long.send(Stop())
            assert await waiter.result() == ["short", "long"]
            assert (await waiter.status()).generation == 2

    run_async(main())


@workflow
async def wants_another_type(run_ids: list[str]) -> str:
    with pytest.raises(NotDecodable, match="the result of run 'a'"):
        await wait_for_any(run_ids, result=int)
    return str(await wait_for_run("a"))


def test_a_result_of_another_type_is_the_mistake_of_the_waiter(lives: Lives) -> None:
    """It is raised, and not told as a failure of the run."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(counts_a_note(), id="a")
            await run.send(Note("abc"))
            assert await engine.result((await engine.start(wants_another_type(["a"]))).id) == "{'number': 3}"

    run_async(main())


order = ["a", "b"]


@workflow
async def reads_the_order() -> str:
    ended = await wait_for_any(order)
    await receive(Stop)
    return f"{ended.run_id} {ended.result()}"


def test_another_order_of_the_same_runs_is_no_change(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart with edited code the end that was heard is still that of the run which it names."""

    async def main() -> None:
        async with lives.engine() as engine:
            for run_id in ("a", "b"):
                await engine.start(counts_a_note(), id=run_id)
            await engine.start(reads_the_order(), id="run")
            await until(lambda: _listens(engine, "run"))
        monkeypatch.setattr("events.test_wait_for_any.order", ["b", "a"])
        async with lives.engine() as engine:
            await engine.send("a", Note("1"))

            async def heard() -> bool:
                return (await engine.status("run")).records >= 4

            await until(heard)
        async with lives.engine() as engine:
            await engine.send("run", Stop())
            assert await engine.result("run") == "a {'number': 1}"

    run_async(main())


def test_the_ended_run_raises_what_the_run_failed_with() -> None:
    """A value of its own, which tests and mocks can make."""
    failure = RunFailed("run 'a' failed")
    with pytest.raises(RunFailed) as raised:
        EndedRun("a", Err("failed", 1, failure)).result()
    assert raised.value is failure
    assert EndedRun("a", Ok(3)).result() == 3
    assert EndedRun("a", Ok(3)) == EndedRun("a", Ok(3))
