"""A start that is alone takes its first turn on the spot; those of one moment go together."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, step, workflow
from perdure.errors import Stuck
from perdure.store.sqlite import SQLiteStore, inline_commit
from support.lives import run_async

_tasks: dict[str, Any] = {}


@step
async def one() -> int:
    return 1


@workflow
async def nothing() -> int:
    return 0


@workflow
async def one_step() -> int:
    return await one()


@workflow
async def looks_at_its_task() -> None:
    _tasks["inside"] = asyncio.current_task()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk must not decide these tests."""
    monkeypatch.setattr(inline_commit, "INLINE_SECONDS_MAX", 60.0)


def suspends(coroutine: Coroutine[Any, Any, Any]) -> bool:
    """Whether a coroutine has to wait for the event loop. It is of no use afterwards."""
    try:
        coroutine.send(None)
    except StopIteration:
        return False
    coroutine.close()
    return True


def test_a_lone_start_needs_no_round_of_the_loop(tmp_path: Path) -> None:
    """Not each of them: now and then the loop is to look at everything else, and the sweep commits, too, which takes as
    long as the disk does."""

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 20
        async with Engine(tmp_path / "a.db") as engine:
            for number in itertools.count():
                if loop.time() > deadline:
                    break
                await asyncio.sleep(0.001)  # whatever else there was to do is done
                if not suspends(engine.start(nothing(), id=f"alone-{number}")):
                    return await engine.result(f"alone-{number}", timeout=10) == 0
        return False

    assert run_async(main())


def test_a_chain_of_lone_starts_does_not_keep_the_loop(tmp_path: Path) -> None:
    async def main() -> int:
        rounds = 0

        def count() -> None:
            nonlocal rounds
            rounds += 1
            loop.call_later(0, count)

        loop = asyncio.get_running_loop()
        async with Engine(tmp_path / "a.db") as engine:
            loop.call_later(0, count)
            for _ in range(100):
                assert await (await engine.start(nothing())).result() == 0
        return rounds

    assert run_async(main()) >= 100 // inline_commit.INLINE_STREAK_MAX - 1


def test_starts_of_one_moment_are_stored_together(tmp_path: Path) -> None:
    async def main() -> int:
        store = SQLiteStore(tmp_path / "a.db")
        async with Engine(store) as engine:
            assert await (await engine.start(one_step())).result() == 1
            before = store.writer.transactions
            await asyncio.gather(*(engine.start(nothing()) for _ in range(100)))
            return store.writer.transactions - before

    assert run_async(main()) <= 3


def test_the_task_of_the_caller_is_left_and_entered_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with Engine(tmp_path / "a.db") as engine:
            mine = asyncio.current_task()
            await engine.start(looks_at_its_task())
            assert asyncio.current_task() is mine
            assert _tasks["inside"] is not mine
            async with asyncio.timeout(10):  # which asks for the current task
                assert await (await engine.start(one_step())).result() == 1

    run_async(main())


def test_a_start_that_is_refused_leaves_the_task_current(tmp_path: Path) -> None:
    """The first turn raises in the caller, outside of its task; the task is the current one again all the same."""

    async def main() -> None:
        async with Engine(tmp_path / "a.db") as engine:
            mine = asyncio.current_task()
            with pytest.raises(Stuck, match="waits for something that perdure does not know"):
                await engine.start(waits_for_nobody())
            assert asyncio.current_task() is mine
            assert await (await engine.start(one_step())).result() == 1

    run_async(main())


@workflow
async def waits_for_nobody() -> None:
    await asyncio.get_running_loop().create_future()
