"""`retry`: a step in a backoff begins its next attempt now, and keeps its count."""

from __future__ import annotations

import pytest

from admin.flows import Outside, reaches
from events.kinds import Note
from perdure import Engine, RunNotFound, current_step, receive, step, workflow
from perdure.errors import ActionRefused, UnknownLocation
from perdure.types import Status
from support.lives import Lives, run_async, until

outside = Outside()
attempts: list[int] = []


@pytest.fixture(autouse=True)
def _reset() -> None:
    outside.reset()
    attempts.clear()


@step(max_attempts=4, initial_delay=3600, max_delay=3600)
async def flaky(what: str = "it") -> str:
    attempts.append(current_step().attempt)
    return await outside.do(what)


@workflow
async def stubborn() -> str:
    return await flaky()


@workflow
async def two_at_once() -> list[str]:
    import asyncio

    return list(await asyncio.gather(flaky.options(name="left")("left"), flaky.options(name="right")("right")))


@workflow
async def waiting() -> None:
    await receive(Note)


async def backs_off(engine: Engine, run_id: str, count: int = 1) -> None:
    async def there() -> bool:
        view = await engine.status(run_id)
        return view.status is Status.WAITING and sum(wait.until is not None for wait in view.waiting) == count

    await until(there)


def test_the_next_attempt_begins_at_once(lives: Lives) -> None:
    """CONFORMANCE L4, S2: it is the next one, not the first again; the one after it has its own backoff."""
    outside.broken = {"it"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(stubborn(), id="run")
            await backs_off(engine, "run")
            await engine.admin.retry("run")
            await until(lambda: len(attempts) == 2)
            await backs_off(engine, "run")
            outside.broken = set()
            await engine.admin.retry("run", "flaky")
            assert await engine.result("run", timeout=20) == "it done"
        assert attempts == [1, 2, 3]

    run_async(main())


def test_it_is_durable_and_reaches_a_run_that_nobody_holds(lives: Lives) -> None:
    """CONFORMANCE L4: asked for by another process while no worker is there; over a crash right after it."""
    outside.broken = {"it"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(stubborn(), id="run")
            await backs_off(engine, "run")
        async with lives.engine(worker=False) as client:
            await client.admin.retry("run")
            await client.admin.retry("run")  # the repeat of a call whose answer got lost
        outside.hold = {"it"}
        engine = lives.engine()
        await engine.open()
        await until(lambda: len(attempts) == 2)
        await lives.crash(engine)
        outside.hold, outside.broken = set(), set()
        async with lives.engine() as later:
            assert await later.result("run", timeout=20) == "it done"
        assert attempts == [1, 2, 2], "the attempt that died with its worker has the same number"

    run_async(main())


def test_one_of_two(lives: Lives) -> None:
    """CONFORMANCE L4: by its location; the other one stays in its backoff."""
    outside.broken = {"left", "right"}

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(two_at_once(), id="run")
            await backs_off(engine, "run", 2)
            outside.broken = set()
            with pytest.raises(UnknownLocation, match="'left', 'right'"):
                await engine.admin.retry("run", "middle")
            await engine.admin.retry("run", "right")
            await backs_off(engine, "run", 1)
            assert outside.done == {"left": 1, "right": 2}
            await engine.admin.retry("run")
            assert await engine.result("run", timeout=20) == ["left done", "right done"]

    run_async(main())


def test_where_nothing_is_in_a_backoff_it_is_refused(lives: Lives) -> None:
    """There is nothing to try at once, and the caller hears so. CONFORMANCE L4."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(waiting(), id="run")
            await reaches(engine, "run", Status.WAITING)
            with pytest.raises(ActionRefused, match="no step of run 'run' waits for its next attempt"):
                await engine.admin.retry("run")
            await engine.admin.pause("run")
            with pytest.raises(ActionRefused, match="perdure unpause run"):
                await engine.admin.retry("run")
            await engine.admin.terminate("run")
            with pytest.raises(ActionRefused, match="it is cancelled"):
                await engine.admin.retry("run")
            with pytest.raises(RunNotFound):
                await engine.admin.retry("nobody")

    run_async(main())
