"""`continue_as`: the same id, a fresh journal; state, unread events and the caller's arguments go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from events.kinds import Note, Stop
from perdure import Engine, RunCancelled, continue_as, info, receive, sleep, start_child, state, step, workflow
from perdure.types import Status
from support.effects import Effects
from support.lives import Lives, run_async, until


@step
async def plus_one(number: int) -> int:
    return number + 1


@workflow
async def count_to(limit: int, so_far: int = 0) -> int:
    so_far = await plus_one(so_far)
    if so_far < limit:
        await continue_as(limit, so_far)
    return so_far


@workflow
async def by_keyword(limit: int, *, so_far: int = 0) -> int:
    if so_far < limit:
        await continue_as(limit, so_far=so_far + 1)
    return so_far


@workflow
async def hand_over(how: str) -> str:
    await plus_one(1)
    if how == "invocation":
        await continue_as(take_over("from", "invocation"))
    await continue_as(take_over, "from", way="workflow")
    raise AssertionError


@workflow
async def take_over(word: str, way: str) -> str:
    await plus_one(1)
    return f"{info().workflow} {word} {way} in generation {info().generation}"


def test_a_run_goes_on_with_new_arguments(lives: Lives) -> None:
    """CONFORMANCE C6: the same workflow, by arguments, with a crash around every record of every generation."""

    async def main() -> None:
        for before in (False, True):
            limit, died = 0, True
            while died:
                limit += 1
                one = lives.fresh()

                async def act(engine: Engine) -> int:
                    return await (await engine.start(count_to(4), id="run")).result()

                died = await one.live_until(limit, act, before=before)
                async with one.engine() as engine:
                    assert await act(engine) == 4
                    assert (await engine.status("run")).generation == 4
            assert limit >= 8

    run_async(main(), patience=60)


def test_keyword_arguments_and_defaults_go_over(lives: Lives) -> None:
    """The next generation is called as written, with names and defaults. CONFORMANCE C6."""

    async def main() -> None:
        async with lives.engine() as engine:
            assert await (await engine.start(by_keyword(3), id="run")).result() == 3

    run_async(main())


@pytest.mark.parametrize("how", ["invocation", "workflow"])
def test_a_run_goes_on_as_another_workflow(lives: Lives, how: str) -> None:
    """CONFORMANCE C6: by an invocation, or by the workflow and its arguments."""

    async def main() -> None:
        for limit in range(1, 7):
            one = lives.fresh()

            async def act(engine: Engine) -> str:
                return await (await engine.start(hand_over(how), id="run")).result()

            await one.live_until(limit, act)
            async with one.engine() as engine:
                assert await act(engine) == f"take_over from {how} in generation 2"
                view = await engine.status("run")
                assert (view.workflow, view.generation, view.status) == ("take_over", 2, Status.COMPLETED)

    run_async(main())


@workflow(name="upgraded", version="1")
async def upgraded_first(seen: list[str]) -> list[str]:
    await continue_as([*seen, info().version])
    raise AssertionError


@workflow(name="upgraded", version="1.10")
async def upgraded_newest(seen: list[str]) -> list[str]:
    await plus_one(1)
    return [*seen, info().version]


@workflow(name="upgraded", version="1.9")
async def upgraded_middle(seen: list[str]) -> list[str]:
    await continue_as([*seen, info().version])
    raise AssertionError


def test_the_newest_version_is_taken(lives: Lives) -> None:
    """CONFORMANCE C6, V4: pinned until continue_as, then the newest; 1.10 is newer than 1.9."""

    async def main() -> None:
        async with lives.engine() as engine:
            for number, version in enumerate((upgraded_first, upgraded_middle)):
                run = await engine.start(version([]), id=f"run-{number}")
                assert await run.result() == [version.version, "1.10"]
                assert (await run.status()).version == "1.10"

    run_async(main())


# -- from inside nested code ---------------------------------------------------------------------------------


async def deep_helper(place: str, path: str) -> None:
    await plus_one(1)
    await continue_as(place, path, True)


@workflow
async def nested(place: str, path: str, again: bool = False) -> str:
    if again:
        return f"{place} {info().generation}"
    match place:
        case "helper":
            await deep_helper(place, path)
        case "task":
            await asyncio.gather(deep_helper(place, path), receive(Stop))
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(deep_helper(place, path))
                group.create_task(receive(Stop))
        case "except":
            try:
                await deep_helper(place, path)
            except Exception:
                await mark(path, "except")
            except BaseException:
                await mark(path, "base except")
                raise
        case "finally":
            try:
                await deep_helper(place, path)
            finally:
                Effects(Path(path)).add("finally")
                await mark(path, "step in finally")
        case "timeout":
            async with asyncio.timeout(3600):
                await deep_helper(place, path)
    await mark(path, "after")
    return "went on after continue_as"


@step
async def mark(path: str, text: str) -> None:
    Effects(Path(path)).add(text)


@pytest.mark.parametrize("place", ["helper", "task", "group", "except", "finally", "timeout"])
def test_continue_as_works_from_inside_nested_code(lives: Lives, effects: Effects, place: str) -> None:
    """CONFORMANCE C6: nothing after it runs: no except block, no step of a finally block."""
    path = str(effects.path)

    async def main() -> None:
        for limit in range(1, 6):
            one = lives.fresh()

            async def act(engine: Engine) -> str:
                return await (await engine.start(nested(place, path), id="run")).result()

            await one.live_until(limit, act)
            async with one.engine() as engine:
                assert await act(engine) == f"{place} 2"

    run_async(main())
    assert set(effects.lines()) <= {"finally"}


# -- what the old generation leaves behind -------------------------------------------------------------------


class Gate:
    """Lets a test hold a step of the first generation, in this process."""

    entered: asyncio.Event
    open: asyncio.Event
    cancelled: asyncio.Event


@step
async def held_step() -> str:
    Gate.entered.set()
    try:
        await Gate.open.wait()
    except asyncio.CancelledError:
        Gate.cancelled.set()
        raise
    return "late"


@workflow
async def leaves_a_step_running(generation: int) -> str:
    if generation == 1:
        task = asyncio.create_task(held_step())
        await receive(Note)
        await continue_as(2)
        await task
    return f"second {await plus_one(1)} {(await receive(Stop))!r}"


def test_a_step_of_the_old_generation_is_cancelled_and_its_result_ignored(lives: Lives) -> None:
    """CONFORMANCE C6: the late completion belongs to nobody."""

    async def main() -> None:
        Gate.entered, Gate.open, Gate.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with lives.engine() as engine:
            run = await engine.start(leaves_a_step_running(1), id="run")
            await Gate.entered.wait()
            await run.send(Note("go on"))
            await Gate.cancelled.wait()
            Gate.open.set()
            await run.send(Stop())
            assert await run.result() == "second 2 Stop()"
            assert "held_step" not in [entry.location for entry in await engine.admin.history("run")]

    run_async(main())


@workflow
async def waits_for_stop() -> str:
    await receive(Stop)
    return "stopped"


@workflow
async def leaves_a_child(generation: int) -> str:
    if generation == 1:
        await start_child(waits_for_stop())
        await continue_as(2)
    handle = await start_child(waits_for_stop())
    return handle.id + " " + await handle


def test_children_of_the_old_generation_are_cancelled_and_the_new_ones_are_others(lives: Lives) -> None:
    """CONFORMANCE C6, C7: same location, another generation, another id; the old end is not taken for the new."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(leaves_a_child(1), id="run")

            async def second_child() -> bool:
                return len(await engine.list(workflow="waits_for_stop")) == 2

            await until(second_child)
            ids = sorted(view.id for view in await engine.list(workflow="waits_for_stop"))
            assert ids == ["run/waits_for_stop", "run~2/waits_for_stop"]

            async def first_ended() -> bool:
                return (await engine.status("run/waits_for_stop")).status is Status.CANCELLED

            await until(first_ended)
            await engine.send("run~2/waits_for_stop", Stop())
            assert await run.result() == "run~2/waits_for_stop stopped"

    run_async(main())


@workflow
async def sleeps_then_continues(generation: int) -> str:
    if generation == 1:
        task = asyncio.create_task(sleep(0.02))
        await continue_as(2)
        await task
    await receive(Stop, timeout=0.1) if generation == 3 else None
    try:
        await receive(Stop, timeout=0.05)
    except TimeoutError:
        return "its own timer"
    return "woken"


def test_a_timer_of_the_old_generation_does_not_fire_in_the_new_one(lives: Lives) -> None:
    """CONFORMANCE C6, T4: no stray wake-up."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(sleeps_then_continues(1), id="run")
            assert await run.result() == "its own timer"
            assert [entry.kind for entry in await engine.admin.history("run")].count("timer_fired") == 1

    run_async(main())


# -- many generations, state, history --------------------------------------------------------------------------


@workflow
async def many(left: int) -> int:
    state["count"] = state.get("count", 0) + 1
    if left:
        await continue_as(left - 1)
    return int(state["count"])


def test_a_thousand_generations_keep_the_journal_small(lives: Lives) -> None:
    """CONFORMANCE C6: the current journal holds one generation; `state` went through all of them."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(many(999), id="run")
            assert await run.result(timeout=40) == 1000
            view = await run.status()
            assert view.generation == 1000
            assert view.records == 2
            assert view.state == {"count": 1000}

    run_async(main(), patience=60)


def test_an_older_generation_can_be_read(lives: Lives) -> None:
    """CONFORMANCE C6: history(generation=n), each ends with Continued but the last."""

    async def main() -> None:
        async with lives.engine() as engine:
            await (await engine.start(count_to(3), id="run")).result()
            for generation in (1, 2, 3):
                kinds = [entry.kind for entry in await engine.admin.history("run", generation=generation)]
                assert kinds == ["started", "step_done", "completed" if generation == 3 else "continued"]

    run_async(main())


@workflow
async def keeps_state(generation: int) -> list[object]:
    if generation == 1:
        state["seen"] = [1, 2]
        state["gone"] = True
        await plus_one(1)
        del state["gone"]
        await continue_as(2)
    await plus_one(1)
    return [state["seen"], "gone" in state]


def test_state_carries_over(lives: Lives) -> None:
    """CONFORMANCE C6: what was put in is there, what was deleted is not; over a crash around every record."""

    async def main() -> None:
        for before in (False, True):
            for limit in range(1, 7):
                one = lives.fresh()

                async def act(engine: Engine) -> list[object]:
                    return await (await engine.start(keeps_state(1), id="run")).result()

                await one.live_until(limit, act, before=before)
                async with one.engine() as engine:
                    assert await act(engine) == [[1, 2], False]

    run_async(main())


@workflow
async def forgets_state(generation: int) -> bool:
    if generation == 1:
        state["only"] = 1
        await plus_one(1)
        del state["only"]
        await continue_as(2)
    await plus_one(1)
    return "only" in state


def test_an_emptied_state_stays_empty(lives: Lives) -> None:
    """CONFORMANCE C6, L6: deleting the last key is a change like any other; clients see it too."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(forgets_state(1), id="run")
            assert await run.result() is False
            assert (await run.status()).state == {}

    run_async(main())


# -- cancel ------------------------------------------------------------------------------------------------------


@workflow
async def dodges_cancel(generation: int) -> str:
    if generation > 1:
        await receive(Stop)
        return "escaped"
    try:
        await receive(Stop)
    except asyncio.CancelledError:
        await continue_as(generation + 1)
    return "stopped"


def test_a_run_does_not_escape_its_cancel_by_continuing(lives: Lives) -> None:
    """CONFORMANCE C6, L1: the request holds for the run, so the next generation is cancelled, or can be."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(dodges_cancel(1), id="run")

            async def waits() -> bool:
                return bool((await run.status()).waiting)

            await until(waits)
            await run.cancel("enough")

            async def second() -> bool:
                view = await run.status()
                return view.generation == 2 and (bool(view.waiting) or view.status.terminal)

            await until(second)
            await run.cancel("really")
            with pytest.raises(RunCancelled):
                await run.result(timeout=5)

    run_async(main())


def test_a_cancel_during_the_turn_that_continues_reaches_the_next_generation(lives: Lives) -> None:
    """CONFORMANCE C6, L1: many generations fly by; the cancel hits some moment and ends the run."""

    async def main() -> None:
        async with lives.engine() as engine:
            for ticks in range(20):
                run = await engine.start(forever(0), id=f"run-{ticks}")
                for _ in range(ticks):
                    await asyncio.sleep(0)
                assert await run.cancel("enough")
                with pytest.raises(RunCancelled):
                    await run.result(timeout=10)

    run_async(main())


@workflow
async def forever(number: int) -> None:
    await plus_one(number)
    await continue_as(number + 1)


def test_starting_the_id_again_returns_the_continued_run(lives: Lives) -> None:
    """CONFORMANCE C6, L3: the first input is what a repeated start is compared with."""

    async def main() -> None:
        async with lives.engine() as engine:
            first = await engine.start(count_to(3), id="run")
            assert await first.result() == 3
            again = await engine.start(count_to(3), id="run")
            assert await again.result() == 3

    run_async(main())
