"""Locations are readable and the same on every version of Python."""

from __future__ import annotations

import asyncio

from kernel.kernel_kit import Drive
from perdure import sleep, step, workflow
from perdure.kernel.outcomes import Complete


@step
async def at_work(number: int) -> int:
    return number


async def helping(number: int) -> int:
    return await at_work(number)


@workflow
async def located() -> None:
    await at_work(1)
    await at_work.options(name="renamed")(2)
    await asyncio.gather(at_work(3), at_work(4), helping(5))
    async with asyncio.TaskGroup() as group:
        group.create_task(helping(6), name="a name of no consequence")
        group.create_task(sleep(1))
    await asyncio.wait_for(helping(7), 60)
    await asyncio.wait_for(at_work(8), 60)
    try:
        await asyncio.wait_for(helping(9), 0)
    except TimeoutError:
        await asyncio.create_task(helping(10))


def test_locations_say_where_an_operation_is() -> None:
    """Branch path, name, and `#n` from the second use; a task of one step is that step."""
    with Drive(located()) as drive:
        seen: list[str] = []
        while drive.run.outcome is None:
            seen += drive.pending()
            for operation in list(drive.run.pending):
                if operation.kind == "step":
                    drive.finish(operation.location, 0)
                elif operation.location != "timeout" and operation.location != "timeout#2":
                    drive.fire(operation.location)
        assert seen == [
            "step at_work",
            "step renamed",
            "step at_work#2",
            "step at_work#3",
            "step helping/at_work",
            "step helping#2/at_work",
            "timer sleep",
            "timer timeout",
            "step at_work#4",
            "timer timeout#2",
            "step at_work#5",
            "step helping#3/at_work",
        ]


def test_waiting_for_with_no_time_leaves_no_trace_in_locations() -> None:
    """The task that `wait_for` makes on some versions of Python is not counted, so journals move between them."""
    with Drive(gives_no_time()) as drive:
        assert drive.pending() == ["step helping/at_work"]


@workflow
async def gives_no_time() -> None:
    try:
        await asyncio.wait_for(helping(1), 0)
    except TimeoutError:
        await asyncio.create_task(helping(2))


@workflow
async def gives_a_step_no_time() -> None:
    try:
        await asyncio.wait_for(at_work(1), 0)
    except TimeoutError:
        await at_work(2)


def test_a_step_that_was_given_no_time_counts_as_asked_for() -> None:
    """Its task is made and never begins; which number the next one gets is the same on every version of Python."""
    with Drive(gives_a_step_no_time()) as drive:
        assert drive.pending() == ["step at_work#2"]


@workflow
async def asks_for_a_name() -> str:
    asked = at_work(1)
    await asked
    return f"{type(asked.__name__).__name__} {asked.__name__}"


def test_the_name_of_a_step_s_coroutine_is_plain_text() -> None:
    """Law 9: code that looks at it may store it, as any other value."""
    with Drive(asks_for_a_name()) as drive:
        drive.finish("at_work", 1)
        outcome = drive.run.outcome
        assert isinstance(outcome, Complete), outcome
        assert bytes(outcome.value) == b'"str at_work"'


@workflow
async def sets_timers() -> None:
    waits = [
        lambda: asyncio.sleep(1),
        lambda: asyncio.wait_for(at_work(1), 1),
        lambda: asyncio.wait([asyncio.create_task(at_work(1))], timeout=1),
    ]
    for wait in waits:
        try:
            await wait()
        except TimeoutError:
            continue
    try:
        for one in asyncio.as_completed([at_work(1)], timeout=1):
            await one
    except TimeoutError:
        pass
    async with asyncio.timeout(1):
        await at_work(1)


def test_timers_are_called_what_people_call_them() -> None:
    """A sleep is a sleep and every limit a timeout, whatever asyncio calls inside."""
    with Drive(sets_timers()) as drive:
        timers: list[str] = []
        while drive.run.outcome is None:
            (timer,) = [operation for operation in drive.run.pending if operation.kind == "timer"]
            timers.append(timer.location)
            drive.fire(timer.location)
        assert timers == ["sleep", "timeout", "timeout#2", "timeout#3", "timeout#4"]


@workflow
async def names_its_waits() -> None:
    await asyncio.gather(sleep(1, name="pause"), sleep(2, name="longer-pause"))
    await sleep(1, name="pause")


def test_a_name_given_to_a_wait_is_its_location_also_in_a_task() -> None:
    """The argument `name=` overrides the name of the verb."""
    with Drive(names_its_waits()) as drive:
        assert drive.pending() == ["timer pause", "timer longer-pause"]
        drive.fire("pause")
        drive.fire("longer-pause")
        assert drive.pending() == ["timer pause#2"]
