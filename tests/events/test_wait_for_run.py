"""`wait_for_run`: the end of a run that is no child, heard once, over crashes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from events.kinds import Note, Stop
from perdure import Engine, RunCancelled, RunFailed, RunHandle, RunNotFound, receive, wait_for_run, workflow
from perdure.errors import BadArgument
from support.lives import Lives, run_async


@dataclass
class Receipt:
    number: int


@workflow
async def works() -> Receipt:
    note = await receive(Note)
    if note.text == "fail":
        raise LookupError("on purpose")
    return Receipt(len(note.text))


@workflow
async def waits(run_id: str) -> str:
    try:
        plain = await wait_for_run(run_id)
    except (RunFailed, RunCancelled, RunNotFound, BadArgument) as error:
        return f"{type(error).__name__}: {error.message} because of {error.__cause__!r}"
    typed = await wait_for_run(run_id, result=Receipt)  # it has ended: told at once
    return f"{plain} {typed}"


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_the_end_of_a_run_is_heard_over_crashes(lives: Lives, before: bool) -> None:
    """Recorded, exactly once; while it runs and after it has ended."""

    async def drive(engine: Engine, handle: RunHandle[str]) -> None:
        await engine.start(works(), id="works")
        await engine.send("works", Note("abc"), key="abc")

    async def begin(engine: Engine) -> None:
        await engine.start(works(), id="works")

    async def main() -> None:
        for limit in range(1, 10):
            fresh = lives.fresh()

            async def act(engine: Engine) -> str:
                await begin(engine)
                handle = await engine.start(waits("works"), id="run")
                await drive(engine, handle)
                return await handle.result()

            await fresh.live_until(limit, act, before=before)
            async with fresh.engine() as engine:
                assert await act(engine) == "{'number': 3} Receipt(number=3)"

    run_async(main(), patience=60)


def test_other_ends(lives: Lives) -> None:
    """Failed with its cause, cancelled, terminated, unknown, itself."""

    async def main() -> None:
        async with lives.engine(residents_max=2) as engine:
            for run_id in ("failed", "cancelled", "terminated"):
                await engine.start(works(), id=run_id)
                await engine.start(waits(run_id), id=f"waits-{run_id}")
            await engine.send("failed", Note("fail"))
            await engine.cancel("cancelled", "enough")
            await engine.admin.terminate("terminated", "now")
            said = {run_id: await engine.result(f"waits-{run_id}") for run_id in ("failed", "cancelled", "terminated")}
            assert said["failed"] == (
                "RunFailed: run 'failed' failed: LookupError: on purpose because of LookupError('on purpose')"
            )
            assert said["cancelled"].startswith("RunCancelled: run 'cancelled' was cancelled: enough")
            assert said["terminated"].startswith("RunCancelled: run 'terminated' was cancelled: now")
            nobody = await engine.start(waits("nobody"), id="waits-nobody")
            assert (await nobody.result()).startswith("RunNotFound: no run has the id 'nobody'")
            itself = await engine.start(waits("itself"), id="itself")
            assert (await itself.result()).startswith("BadArgument: run 'itself' would wait for its own end")

    run_async(main())


@workflow
async def gives_up_waiting(run_id: str) -> str:
    try:
        async with asyncio.timeout(0.05):
            await wait_for_run(run_id)
    except TimeoutError:
        await receive(Stop)
        return str(await wait_for_run(run_id))
    return "?"


def test_a_wait_that_was_given_up_leaves_the_run_alone(lives: Lives) -> None:
    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(works(), id="works")
            waiter = await engine.start(gives_up_waiting("works"), id="waits")
            await asyncio.sleep(0.1)
            await run.send(Note("ab"))
            await run.result()
            await waiter.send(Stop())
            assert await waiter.result() == "{'number': 2}"

    run_async(main())
