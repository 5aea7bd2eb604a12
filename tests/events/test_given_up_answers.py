"""Effects whose answers come when nobody waits for them any more: one of the same turn was answered first, and the code
went on without the others. They were carried out all the same, and the run is not changed code."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note
from perdure import (
    Engine,
    RunNotFound,
    publish,
    race,
    receive,
    send,
    sleep,
    start_child,
    step,
    wait_for_any,
    wait_for_run,
    workflow,
)
from perdure.types import Status
from support.lives import Lives, run_async, until


@step
async def twice(number: int) -> int:
    return 2 * number


@workflow
async def listens() -> str:
    return (await receive(Note)).text


async def child() -> str:
    return await listens()


async def started() -> str:
    return await (await start_child(listens(), id="started-too-late")).result()


LOSERS = {
    "publish": lambda: publish(Note("late")),
    "send": lambda: send("other", Note("late")),
    "child": child,
    "start_child": started,
    "wait_for_run": lambda: wait_for_run("other"),
    "wait_for_any": lambda: wait_for_any(["other", "nobody"]),
}


@workflow
async def goes_on(loser: str) -> int:
    await race(one=publish(Note("first")), two=LOSERS[loser]())
    await sleep(0.01)
    return await twice(2)


@workflow
async def ends(loser: str) -> str:
    return (await race(one=publish(Note("first")), two=LOSERS[loser]())).name


@workflow
async def group_fails(loser: str) -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(send("nobody", Note("lost")))
            group.create_task(LOSERS[loser]())
    except* RunNotFound:
        await twice(1)
    return "failed in order"


async def _quiet(engine: Engine) -> None:
    """No child is left running: giving it up has it cancelled."""

    async def over() -> bool:
        return not [run for run in await engine.list() if not run.status.terminal and run.id != "other"]

    await until(over)


@pytest.mark.parametrize("flow", [goes_on, ends, group_fails])
@pytest.mark.parametrize("loser", LOSERS)
def test_an_answer_that_nobody_waits_for_any_more_is_no_divergence(lives: Lives, flow: object, loser: str) -> None:
    """CONFORMANCE R7; FAULTS C17: and the same after a crash at every record."""
    expected = {goes_on: 4, ends: "one", group_fails: "failed in order"}[flow]  # type: ignore[index]

    async def drive(engine: Engine, handle: object) -> None:
        await engine.start(listens(), id="other")

    async def main() -> None:
        async with lives.engine() as engine:
            await drive(engine, None)
            handle = await engine.start(flow(loser), id="run")  # type: ignore[operator]
            assert await handle.result() == expected
            await _quiet(engine)
            if "child" in loser:
                ids = [run for run in await engine.list() if run.id not in ("run", "other")]
                assert {run.status for run in ids} <= {Status.CANCELLED}
        result = await lives.crash_at_every_record(lambda: flow(loser), drive=drive)  # type: ignore[operator]
        assert result == expected

    run_async(main())
