"""Starting an id that exists: the same call is the same run, anything else a conflict; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perdure import Engine, RunCancelled, continue_as, event, receive, step, workflow
from perdure.errors import RunConflict
from support.lives import Lives, run_async, until

calls: list[int] = []


@event
@dataclass
class FinishIt:
    pass


@step
async def counted(number: int) -> int:
    calls.append(number)
    return number


@workflow
async def started_twice(number: int, label: str = "x") -> int:
    await counted(number)
    await receive(FinishIt)
    return number


@workflow
async def another_workflow(number: int, label: str = "x") -> int:
    return number


@workflow
async def continues_as_third(number: int, label: str = "x") -> int:
    return await continue_as(third_workflow(number, label))


@workflow
async def third_workflow(number: int, label: str = "x") -> int:
    await receive(FinishIt)
    return number


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


def test_same_workflow_and_input_is_the_same_run(lives: Lives) -> None:
    """CONFORMANCE L3, FAULTS F2: also written with keywords and defaults; open and finished; in another engine."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            first = await engine.start(started_twice(1), id="run")
            again = await engine.start(started_twice(number=1), id="run")
            explicit = await client.start(started_twice(1, label="x"), id="run")
            await first.send(FinishIt())
            assert [await handle.result() for handle in (first, again, explicit)] == [1, 1, 1]
            records = (await first.status()).records
            finished = await engine.start(started_twice(1), id="run")
            assert await finished.result() == 1
            assert (await first.status()).records == records
            assert len(await engine.list()) == 1

    run_async(main())
    assert calls == [1]


def test_other_input_or_workflow_is_a_conflict_and_changes_nothing(lives: Lives) -> None:
    """CONFORMANCE L3, FAULTS F2: open or finished, by a worker or a client."""

    async def refused(engine: Engine) -> None:
        before = await engine.status("run")
        with pytest.raises(RunConflict, match=r"another input.*P-002"):
            await engine.start(started_twice(2), id="run")
        with pytest.raises(RunConflict, match="another_workflow"):
            await engine.start(another_workflow(1), id="run")
        assert await engine.status("run") == before
        assert len(await engine.list()) == 1

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            handle = await engine.start(started_twice(1), id="run")
            await until(lambda: calls == [1])

            async def waits() -> bool:
                return (await handle.status()).records == 2

            await until(waits)
            await refused(engine)
            await refused(client)
            await handle.send(FinishIt())
            await handle.result()
            await refused(engine)
            await refused(client)

    run_async(main())
    assert calls == [1], "no first turn of a refused start has effects"


def test_on_conflict_raise_makes_every_existing_id_one(lives: Lives) -> None:
    """Also where the input is the same. CONFORMANCE L3."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(started_twice(1), id="run", on_conflict="raise")
            with pytest.raises(RunConflict, match="already exists"):
                await engine.start(started_twice(1), id="run", on_conflict="raise")
            await engine.start(started_twice(1), id="run", on_conflict="return")

    run_async(main())


def test_cancelled_run_is_not_started_again(lives: Lives) -> None:
    """CONFORMANCE L3: a finished run stays finished, however it ended."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(started_twice(1), id="run")
            await handle.cancel("no")
            with pytest.raises(RunCancelled):
                await handle.result()
            again = await engine.start(started_twice(1), id="run")
            with pytest.raises(RunCancelled, match="no"):
                await again.result()

    run_async(main())


def test_run_that_continued_as_another_workflow_is_still_told_apart(lives: Lives) -> None:
    """CONFORMANCE L3 and C6: the id belongs to what was started under it, whatever it has become."""

    async def main() -> None:
        async with lives.engine() as engine:
            handle = await engine.start(continues_as_third(1), id="run")

            async def continued() -> bool:
                return (await handle.status()).generation == 2

            await until(continued)
            again = await engine.start(continues_as_third(1), id="run")
            with pytest.raises(RunConflict):
                await engine.start(another_workflow(1), id="run")
            await again.send(FinishIt())
            assert await again.result() == 1

    run_async(main())


def test_many_starts_at_once_are_one_run(lives: Lives) -> None:
    """CONFORMANCE L3, law 6: twenty callers, two engines, one run."""
    import asyncio

    async def main() -> None:
        async with lives.engine() as engine, lives.engine() as other:
            starts = [where.start(started_twice(7), id="run") for where in [engine, other] * 10]
            handles = await asyncio.gather(*starts)
            await engine.send("run", FinishIt())
            assert {await handle.result() for handle in handles} == {7}
            assert len(await engine.list()) == 1

    run_async(main())
    assert calls == [7]
