"""`result()`: its timeout leaves the run alone; a parked run is reported, not waited for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from perdure import RunNotFound, event, receive, step, workflow
from perdure.errors import RunParked
from perdure.store.model import Status
from support.lives import Lives, run_async, until

failing = True


@event
@dataclass
class Release:
    pass


@workflow
async def waits_for_release() -> str:
    await receive(Release)
    return "released"


@step
async def one_step() -> str:
    return "x"


@step
async def other_step() -> str:
    return "y"


@workflow
async def changes_its_mind() -> str:
    """A run whose code changes while it waits: parked when it is loaded again."""
    first = await (one_step() if failing else other_step())
    await receive(Release)
    return first


@pytest.mark.parametrize("timeout", [0, 0.01, "10 ms"])
def test_timeout_of_result_does_not_disturb_the_run(lives: Lives, timeout: float) -> None:
    """FAULTS F10: TimeoutError; the waiter is gone, the run is not."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(waits_for_release(), id="run")
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await handle.result(timeout=timeout)
            assert (await handle.status()).status is Status.WAITING
            assert engine.parts is not None
            assert engine.parts.signals.count() == 0, "no waiter is left behind"
            await handle.send(Release())
            assert await handle.result() == "released"

    run_async(main())


def test_cancelled_waiter_does_not_disturb_the_run(lives: Lives) -> None:
    """Who stops waiting for a result stops only waiting. FAULTS F10."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(waits_for_release(), id="run")
            waiters = [asyncio.ensure_future(handle.result()) for _ in range(3)]
            await until(lambda: engine.parts is not None and engine.parts.signals.count("run") == 3)
            waiters[0].cancel()
            await asyncio.gather(waiters[0], return_exceptions=True)
            await handle.send(Release())
            assert [await waiter for waiter in waiters[1:]] == ["released"] * 2
            assert engine.parts is not None
            assert engine.parts.signals.count() == 0

    run_async(main())


def test_result_of_a_parked_run_raises_and_after_resume_it_comes(lives: Lives) -> None:
    """Law 8: every waiter hears why, also those who waited before it was parked."""
    global failing
    failing = True

    async def main() -> None:
        global failing
        async with lives.engine() as engine:
            await engine.start(changes_its_mind(), id="run")

            async def waits() -> bool:
                return (await engine.status("run")).records == 2

            await until(waits)
            await lives.crash(engine)
        failing = False
        async with lives.engine(worker=False) as client:
            waiter = asyncio.ensure_future(client.result("run"))
            await client.send("run", Release())
            async with lives.engine() as engine:
                with pytest.raises(RunParked, match=r"other_step|one_step"):
                    await waiter
                with pytest.raises(RunParked):
                    await engine.result("run")
                assert (await engine.status("run")).status is Status.PARKED
                failing = True
                assert await engine.admin.resume("run")
                assert not await engine.admin.resume("run"), "it is no longer parked"
                assert await engine.result("run", timeout=10) == "x"

    run_async(main())


def test_result_of_an_unknown_run_is_an_error(lives: Lives) -> None:
    """At once, instead of a wait without end. FAULTS F9."""

    async def main() -> None:
        async with lives.engine() as engine:
            for call in (engine.result("nobody"), engine.get("nobody").result(), engine.status("nobody")):
                with pytest.raises(RunNotFound, match=r"'nobody'.*P-001"):
                    await call

    run_async(main())
