"""A call of the store may raise anything: the run that it is about is parked with the reason, the others go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import Engine, step, workflow
from perdure.errors import RunParked
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from support.faulty_stores import Call, DisturbedStore, raising
from support.lives import run_async

#: What the tests let the store choke on: a location in a turn, an id at the start.
BAD = "choke"


@step
async def double(number: int) -> int:
    return 2 * number


@step(name=BAD)
async def choke(number: int) -> int:
    return number


@workflow
async def good(number: int) -> int:
    for _ in range(3):
        number = await double(number)
    return number


@workflow
async def bad() -> int:
    return await choke(await double(1))


class _Odd(Exception):
    """Not one of the errors of a store."""


CHOKE = raising(_Odd, "the store chokes")


def _holds_bad_record(call: Call) -> bool:
    return any(entry.row.location == BAD for turn in call.turns for entry in turn.entries)


def _creates_bad_run(call: Call) -> bool:
    return any(new.id == BAD for new, _ in call.args[0])


def _creates_bad_run_and_others(call: Call) -> bool:
    return _creates_bad_run(call) and len(call.args[0]) > 1


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DisturbedStore:
    """The first parking and the first two releases raise as well."""
    disturbed = DisturbedStore(MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "x.db"))
    disturbed.before("park", CHOKE, times=1)
    disturbed.before("release", CHOKE, times=2)
    return disturbed


@pytest.mark.parametrize("after", [False, True], ids=["nothing stored", "all stored"])
def test_the_run_whose_turn_raises_is_parked_and_the_others_end(store: DisturbedStore, after: bool) -> None:
    """Also if the call raised although it had stored everything (law 6), and if parking itself raises at first."""
    store.around("commit", CHOKE, _holds_bad_record, before=not after)
    parks = store.note("park")

    async def main() -> None:
        async with Engine(store) as engine:
            calls = [engine.start(bad(), id="bad"), *(engine.start(good(n), id=f"g{n}") for n in range(30))]
            odd, *others = await asyncio.gather(*calls)
            async with asyncio.timeout(20):
                assert [await run.result() for run in others] == [8 * n for n in range(30)]
                if after:  # it had ended: what was stored is the truth
                    assert await odd.result() == 2
                else:
                    with pytest.raises(RunParked, match="cannot be stored: _Odd: the store chokes"):
                        await odd.result()
            assert after or len(parks) == 2
            assert not await store.held(engine.worker.id)  # type: ignore[union-attr]

    run_async(main())


@pytest.mark.parametrize("after", [False, True], ids=["nothing stored", "all stored"])
def test_the_start_that_raises_is_told_to_its_caller_and_the_others_start(store: DisturbedStore, after: bool) -> None:
    """`on_conflict="raise"`: a run that was stored by the call which raised is no conflict with itself."""
    store.around("create_all", CHOKE, _creates_bad_run_and_others if after else _creates_bad_run, before=not after)

    async def main() -> None:
        async with Engine(store) as engine:
            calls = [engine.start(good(n), id=BAD if n == 7 else f"g{n}", on_conflict="raise") for n in range(20)]
            async with asyncio.timeout(20):
                started = await asyncio.gather(*calls, return_exceptions=True)
                failed = [n for n, one in enumerate(started) if isinstance(one, BaseException)]
                assert failed == ([] if after else [7])
                ended = [await one.result() for one in started if not isinstance(one, BaseException)]
            assert ended == [8 * n for n in range(20) if n not in failed]

    run_async(main())


def test_runs_that_cannot_be_given_back_are_given_back_later(store: DisturbedStore) -> None:
    """An eviction whose release raises: the runs are found again when there is something for them to do."""
    releases = store.note("release")

    @workflow
    async def naps(number: int) -> int:
        await asyncio.sleep(0.2)
        return number

    async def main() -> None:
        async with Engine(store, residents_max=2, sweep_interval=0.05) as engine:
            runs = [await engine.start(naps(n)) for n in range(8)]
            async with asyncio.timeout(20):
                assert [await run.result() for run in runs] == list(range(8))
            assert len(releases) > 2

    run_async(main())
