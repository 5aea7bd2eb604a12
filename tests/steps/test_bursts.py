"""Steps that only compute run one after another in one task, which also sees to what follows from them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from perdure import Engine, Ok, attempt, limits, step, workflow
from perdure.engine.attempts import serving
from support.faulty_stores import DisturbedStore, sizes
from support.lives import Lives, run_async, until

host: dict[str, Any] = {}
seen: list[Any] = []


@step
async def compute(number: int) -> int:
    return number + 1


@step
async def unwant_the_next() -> str:
    """Makes the attempt that is queued behind this one unwanted, as a run that leaves memory would."""
    worker = host["engine"].worker
    for resident in worker.residents:
        worker.attempts.cancel(resident, "never")
    return "done"


@step
async def never() -> None:
    seen.append("began")


@workflow
async def chain(count: int) -> int:
    number = 0
    for _ in range(count):
        number = await compute(number)
        seen.append(asyncio.current_task(host["loop"]))
    return number


@workflow
async def pair() -> None:
    await asyncio.gather(unwant_the_next(), never())


async def _recorded(engine: Engine, run_id: str) -> list[str]:
    return [entry.location for entry in await engine.admin.history(run_id)]


def test_a_burst_whose_last_attempt_is_unwanted_is_followed_up(lives: Lives) -> None:
    """Nobody else would deliver what the attempts before it returned."""
    seen.clear()

    async def main() -> None:
        async with lives.engine() as engine:
            host["engine"] = engine
            run = await engine.start(pair())

            async def is_recorded() -> bool:
                return "unwant_the_next" in await _recorded(engine, run.id)

            await until(is_recorded)
            await run.cancel()
        assert seen == []

    run_async(main())


def test_workflow_code_never_runs_inside_a_task_of_the_host(lives: Lives) -> None:
    """Newer Pythons allow one current task per thread: the turns after a burst are taken outside of it."""
    seen.clear()

    async def main() -> None:
        host["loop"] = asyncio.get_running_loop()
        async with lives.engine() as engine:
            assert await (await engine.start(chain(10))).result() == 10
        assert seen == [None] * 10

    run_async(main())


def test_a_chain_lets_others_have_their_turn(lives: Lives) -> None:
    """FAULTS B24: a run whose steps never wait does not keep the event loop to itself."""
    seen.clear()

    async def main() -> None:
        host["loop"] = asyncio.get_running_loop()
        rounds = 0
        async with lives.engine() as engine:
            run = await engine.start(chain(200))
            while len(seen) < 200:
                await asyncio.sleep(0)
                rounds += 1
            assert await run.result() == 200
        assert rounds >= 20

    run_async(main())


@step
async def compute_for_long(number: int) -> int:
    time.sleep(0.001)  # code that keeps the event loop waiting, as it should not but does
    return number


@workflow
async def fan_out(width: int) -> int:
    return sum(await asyncio.gather(*(compute(number) for number in range(width))))


@workflow
async def slow_fan_out(width: int) -> int:
    return sum(await asyncio.gather(*(compute_for_long(number) for number in range(width))))


def test_parallel_steps_that_only_compute_are_recorded_together(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn is a commit, so a run's own burst is not cut into many."""
    monkeypatch.setattr(serving, "_GATHERING_SECONDS", 30.0)  # however slow the machine is

    async def main() -> None:
        store = DisturbedStore(lives.store())
        turns = store.note_turns(created=False)
        async with Engine(store, sweep_interval=0.02) as engine:
            assert await (await engine.start(fan_out(200))).result() == 200 * 199 // 2 + 200
            assert sizes(turns) == [201]

    run_async(main())


def test_what_was_done_is_not_kept_back_for_long(lives: Lives) -> None:
    """A crash repeats what was not recorded, so slow steps do not wait for each other."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        turns = store.note_turns(created=False)
        async with Engine(store, sweep_interval=0.02) as engine:
            assert await (await engine.start(slow_fan_out(130))).result() == 130 * 129 // 2
            assert len(turns) >= 2
            assert sum(sizes(turns)) == 131

    run_async(main())


shared: list[int] = []


@step
async def push(number: int) -> list[int]:
    shared.append(number)
    return shared


@step
async def text_of(number: int) -> str:
    return "x" * (limits.VALUE_BYTES_MAX if number == 2 else number)


@workflow
async def push_all(count: int) -> list[list[int]]:
    return list(await asyncio.gather(*(push(number) for number in range(count))))


@workflow
async def measure(count: int) -> list[int]:
    sizes: list[int] = []
    for number in range(count):
        found = await attempt(text_of.options(max_attempts=1)(number))
        sizes.append(len(found.value) if isinstance(found, Ok) else -1)
    return sizes


def test_a_result_is_what_it_was_when_the_step_returned_it(lives: Lives) -> None:
    """Steps of one burst may return the same object: what a later one does to it does not change an earlier result."""
    shared.clear()

    async def main() -> None:
        async with lives.engine() as engine:
            found = await (await engine.start(push_all(3), id="pushed")).result()
            assert found == [[0], [0, 1], [0, 1, 2]]
            recorded = [
                entry.data["value"] for entry in await engine.admin.history("pushed") if entry.kind == "step_done"
            ]
            assert recorded == found

    run_async(main())


def test_a_scalar_that_cannot_be_stored_fails_its_step_alone(lives: Lives) -> None:
    """Scalars are encoded when their turn is taken: one that is too large takes the general path, and its run goes
    on."""

    async def main() -> None:
        async with lives.engine() as engine:
            runs = [await engine.start(measure(4)) for _ in range(3)]
            assert [await run.result() for run in runs] == [[0, 1, -1, 3]] * 3

    run_async(main())
