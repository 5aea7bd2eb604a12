"""A call of the store may raise anything: the run that it is about is parked with the reason, the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, RunParked, step, workflow
from perdure.store.base import Creation, Release, RunKey, Turn
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
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


def _choking(base: Any) -> Any:
    class Choking(base):  # type: ignore[misc]
        """Raises for whole groups, in one of which is the run of the test. `after`: having stored them."""

        after = False
        parks = 0
        releases = 0

        async def commit(self, turns: Sequence[Turn]) -> Any:
            is_bad = any(entry.row.location == BAD for turn in turns for entry in turn.entries)
            if is_bad and not self.after:
                raise _Odd("the store chokes")
            answer = await super().commit(turns)
            if is_bad:
                raise _Odd("the store chokes")
            return answer

        async def create_all(self, creations: Sequence[Creation]) -> Any:
            is_bad = any(new.id == BAD for new, _ in creations)
            if is_bad and not self.after:
                raise _Odd("the store chokes")
            answer = await super().create_all(creations)
            if is_bad and len(creations) > 1:
                raise _Odd("the store chokes")
            return answer

        async def park(self, key: RunKey, epoch: int, reason: str, at: int) -> bool:
            self.parks += 1
            if self.parks == 1:
                raise _Odd("the store chokes")
            return bool(await super().park(key, epoch, reason, at))

        async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
            self.releases += 1
            if self.releases <= 2:
                raise _Odd("the store chokes")
            await super().release(worker_id, releases)

    return Choking


MAKERS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: _choking(MemoryStore)(),
    "sqlite": lambda path: _choking(SQLiteStore)(path / "x.db"),
}


@pytest.fixture(params=list(MAKERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MAKERS[request.param](tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["nothing stored", "all stored"])
def test_the_run_whose_turn_raises_is_parked_and_the_others_end(store: Any, after: bool) -> None:
    """Also if the call raised although it had stored everything (law 6), and if parking itself raises at first."""
    store.after = after

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
            assert store.after or store.parks == 2
            assert not await store.held(engine._worker.id)  # type: ignore[union-attr]

    run_async(main())


@pytest.mark.parametrize("after", [False, True], ids=["nothing stored", "all stored"])
def test_the_start_that_raises_is_told_to_its_caller_and_the_others_start(store: Any, after: bool) -> None:
    """`on_conflict="raise"`: a run that was stored by the call which raised is no conflict with itself."""
    store.after = after

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


def test_runs_that_cannot_be_given_back_are_given_back_later(store: Any) -> None:
    """An eviction whose release raises: the runs are found again when there is something for them to do."""

    @workflow
    async def naps(number: int) -> int:
        await asyncio.sleep(0.2)
        return number

    async def main() -> None:
        async with Engine(store, residents_max=2, sweep_interval=0.05) as engine:
            runs = [await engine.start(naps(n)) for n in range(8)]
            async with asyncio.timeout(20):
                assert [await run.result() for run in runs] == list(range(8))
            assert store.releases > 2

    run_async(main())
