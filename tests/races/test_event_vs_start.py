"""Events that arrive for runs between their creation and the answer that brings them into memory: none is lost, and the
worker looks for them with one question, not with one for each run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from events.kinds import Note
from perdure import Engine, StoreUnavailable, receive, workflow
from perdure.store.base import Created, Creation, Existing, News, Store
from support.lives import Lives, run_async, until

RUNS = 20


class LateAnswers:
    """A store that answers the creation of runs only after the worker has read its news once more."""

    def __init__(self, store: Store, failures: int) -> None:
        self._store = store
        self._failures = failures
        self.stored = asyncio.Event()
        self.let_go = asyncio.Event()
        self.inboxes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create_all(self, creations: list[Creation]) -> list[Created | Existing]:
        created = list(await self._store.create_all(creations))
        self.stored.set()
        await self.let_go.wait()
        return created

    async def inbox(self, *args: Any) -> Any:
        self.inboxes += 1
        return await self._store.inbox(*args)

    async def news(self, worker_id: str, cursor: int) -> News:
        if self.let_go.is_set() and self._failures:
            self._failures -= 1
            raise StoreUnavailable("the test said so")
        return await self._store.news(worker_id, cursor)


@workflow
async def hears_a_note(number: int) -> str:
    return (await receive(Note)).text


@pytest.mark.parametrize("failures", [0, 2])
def test_events_that_overtake_the_answer_of_a_start_are_received(lives: Lives, failures: int) -> None:
    """CONFORMANCE E1, law 6: the worker has read the news of them when it learns that the runs are its own. It reads
    those again, also after failing to."""

    async def main() -> None:
        store = LateAnswers(lives.store(), failures)
        async with Engine(store, sweep_interval=60) as engine, lives.engine(worker=False) as client:  # type: ignore[arg-type]
            starts = [
                asyncio.create_task(engine.start(hears_a_note(number), id=f"run-{number}")) for number in range(RUNS)
            ]
            await store.stored.wait()
            for number in range(RUNS):
                await client.send(f"run-{number}", Note(f"for {number}"))
            worker = engine._worker
            assert worker is not None
            before = worker.cursor
            worker.errands.claim()
            await until(lambda: worker.cursor != before)
            store.let_go.set()
            runs = [await start for start in starts]
            assert [await run.result(timeout=5) for run in runs] == [f"for {number}" for number in range(RUNS)]
            assert store.inboxes == 0

    run_async(main())
