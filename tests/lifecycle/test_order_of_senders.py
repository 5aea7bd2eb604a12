"""Events of one type are received in the order in which they were accepted, whichever engine accepted them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perdure import Engine, event, receive, step, workflow
from support.lives import Lives, run_async


@event
@dataclass
class Numbered:
    number: int


@step
async def noted(number: int) -> int:
    return number


@workflow
async def receives_in_order(count: int) -> list[int]:
    return [await noted((await receive(Numbered)).number) for _ in range(count)]


@pytest.mark.parametrize("pattern", ["CW", "CWCW", "CCWW", "WCWC", "WCCW"])
def test_events_of_two_senders_keep_their_order(lives: Lives, pattern: str) -> None:
    """CONFORMANCE E2: each send was answered before the next was made, by the worker's own engine (W), which hands
    the event straight to the run, or by a client elsewhere (C), whose event comes by the store."""

    async def main() -> None:
        async with lives.engine() as worker, lives.engine(worker=False) as client:
            for attempt in range(10):
                run = await worker.start(receives_in_order(len(pattern)), id=f"run-{attempt}")
                for number, who in enumerate(pattern):
                    sender: Engine = worker if who == "W" else client
                    await sender.send(run.id, Numbered(number))
                assert await run.result(timeout=5) == list(range(len(pattern)))

    run_async(main())
