"""Events that arrive for runs between their creation and the answer that brings them into memory: none is lost, and the
worker looks for them with one question, not with one for each run."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note
from perdure import Engine, receive, workflow
from support.faulty_stores import DisturbedStore, Hold, unavailable
from support.lives import Lives, run_async, until

RUNS = 20


@workflow
async def hears_a_note(number: int) -> str:
    return (await receive(Note)).text


@pytest.mark.parametrize("failures", [0, 2])
def test_events_that_overtake_the_answer_of_a_start_are_received(lives: Lives, failures: int) -> None:
    """CONFORMANCE E1, law 6: the worker has read the news of them when it learns that the runs are its own. It reads
    those again, also after failing to."""

    async def main() -> None:
        store = DisturbedStore(lives.store())
        # The answer comes only after the worker has read its news once more.
        store.after("create_all", answer := Hold())
        store.before("news", unavailable(), lambda _: answer.release.is_set(), times=failures)
        inboxes = store.note("inbox")
        async with Engine(store, sweep_interval=60) as engine, lives.engine(worker=False) as client:
            starts = [
                asyncio.create_task(engine.start(hears_a_note(number), id=f"run-{number}")) for number in range(RUNS)
            ]
            await answer.reached.wait()
            for number in range(RUNS):
                await client.send(f"run-{number}", Note(f"for {number}"))
            worker = engine.worker
            assert worker is not None
            before = worker.requests.cursor
            worker.requests.claim()
            await until(lambda: worker.requests.cursor != before)
            answer.release.set()
            runs = [await start for start in starts]
            assert [await run.result(timeout=5) for run in runs] == [f"for {number}" for number in range(RUNS)]
            assert inboxes == []

    run_async(main())
