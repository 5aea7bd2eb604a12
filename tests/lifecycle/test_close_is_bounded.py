"""Closing an engine ends, whatever the store and the host do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from perdure import Engine, limits, sleep, step, workflow
from perdure.errors import StoreUnavailable
from perdure.store.memory import MemoryStore
from perdure.store.model import RunRow
from support.faulty_stores import Call, DisturbedStore, never
from support.lives import run_async, until

#: Closing in these tests takes about a second; where something has no bound, the patience of `run_async` is over.
PATIENCE_SECONDS = 20.0


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLOSE_SECONDS_MAX", 0.2)


@step
async def quick() -> str:
    return "done"


@workflow
async def sleeps() -> None:
    await sleep("1 hour")


@workflow
async def one_step() -> str:
    return await quick()


class Unanswering(DisturbedStore):
    """Does not answer one of its calls any more, once `fall_silent` is called."""

    def __init__(self, name: str) -> None:
        super().__init__(MemoryStore())
        self.asked = self.note("unregister_worker", "release", "commit", "close")
        self._silent = name

    def fall_silent(self) -> None:
        if self._silent:
            self.before(self._silent, never)


def _left(before: set[asyncio.Task[Any]]) -> list[str]:
    """The tasks there are now, besides those that are cancelled already."""
    return [repr(task) for task in asyncio.all_tasks() - before if not task.cancelling()]


@pytest.mark.parametrize("name", ["unregister_worker", "close"])
def test_a_store_that_does_not_answer_is_an_error(name: str) -> None:
    """The caller hears of it; the store is closed all the same, and nothing goes on behind its back."""

    async def main() -> None:
        store, before = Unanswering(name), asyncio.all_tasks()
        engine = await Engine(store).open()
        store.fall_silent()
        with pytest.raises(StoreUnavailable, match=r"did not answer for .* seconds while the engine was closed"):
            await engine.close(grace=0.1)
        assert store.asked == ["unregister_worker", "close"]
        assert _left(before) == []
        await engine.close()  # again: nothing is left to do

    run_async(main(), PATIENCE_SECONDS)


def test_runs_that_cannot_be_given_back_are_left_to_the_next_worker() -> None:
    """Nothing of this engine goes on trying after it is closed."""

    async def main() -> None:
        store, before = Unanswering("release"), asyncio.all_tasks()
        engine = await Engine(store, residents_max=1).open()
        store.fall_silent()
        for number in range(3):
            await engine.start(sleeps(), id=f"run-{number}")
        await until(lambda: "release" in store.asked)
        await engine.close(grace=0.1)
        assert store.asked[-1] == "close"
        assert _left(before) == []
        assert [(await _row(store, number)).owner for number in range(3)] == [None] * 3, "signing off frees them"

    run_async(main(), PATIENCE_SECONDS)


async def _row(store: DisturbedStore, number: int) -> RunRow:
    row = await store.get(f"run-{number}")
    assert row is not None
    return row


@pytest.mark.parametrize("name", ["close", ""], ids=["close", "nothing"])
def test_closing_that_is_thrown_away_with_its_loop_waits_for_nothing(name: str) -> None:
    """The interpreter closes the coroutines of a loop that is gone: nothing can be awaited any more, and no call of the
    store may be left behind that was begun and never awaited."""

    async def begin() -> tuple[Engine, Coroutine[Any, Any, None]]:
        store = Unanswering(name)
        engine = await Engine(store).open()
        store.fall_silent()
        closing = engine.close()
        closing.send(None)
        return engine, closing

    engine, closing = run_async(begin(), PATIENCE_SECONDS)
    closing.close()
    assert engine.parts is None


def test_a_sweep_that_does_not_end_is_left_behind() -> None:
    """A store that swallows the cancellation of the sweep: the rest is closed in order."""

    async def main() -> None:
        is_over = False

        async def swallow_cancellation(_: Call) -> None:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if is_over:
                        raise

        store = DisturbedStore(MemoryStore())
        engine = await Engine(store, sweep_interval=0.01).open()
        run = await engine.start(one_step(), id="run")
        assert await run.result() == "done"
        asked = store.before("news", swallow_cancellation)
        try:
            await until(lambda: asked.hits > 0)
            await engine.close()
            assert await store.workers() == []
        finally:
            is_over = True

    run_async(main(), PATIENCE_SECONDS)


def test_the_grace_is_measured_by_the_clock() -> None:
    """On a machine where the loop needs long for each round; not by how often it was looked."""

    async def main() -> float:
        store, loop = Unanswering("commit"), asyncio.get_running_loop()
        engine = await Engine(store).open()
        store.fall_silent()
        starting = asyncio.ensure_future(engine.start(one_step(), id="run"))
        await until(lambda: any(resident.in_flight for resident in engine.worker.residents))  # type: ignore[union-attr]
        starting.cancel()
        going = True

        def block() -> None:
            time.sleep(0.1)
            if going:
                loop.call_soon(block)

        block()
        began = time.monotonic()
        await engine.close(grace=0.5)
        going = False
        return time.monotonic() - began

    assert run_async(main(), PATIENCE_SECONDS) < 3.0
