"""A bug in a store, or in ours, does not end the sweep for ever: what was let go of is found again."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from perdure import Engine, event, receive, step, workflow
from perdure.engine.sweep import Sweep
from perdure.engine.worker.inbound import Inbound
from perdure.store.memory import MemoryStore
from perdure.store.model import Delivery, News
from support.faulty_stores import DisturbedStore, raising
from support.lives import Lives, run_async, until


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled(number: int) -> int:
    return await double(number)


def test_a_run_is_picked_up_again_after_bugs_in_the_sweep(caplog: pytest.LogCaptureFixture) -> None:
    """Law 8: nothing is left hanging, and what happened is said with its traceback."""

    async def main() -> None:
        store = DisturbedStore(MemoryStore())
        async with Engine(store), Engine(store, worker=False) as client:
            bugs = store.at_the_call("news", raising(AttributeError, "a bug in news"), times=2)
            run = await client.start(doubled(1), id="a")  # for the sweep of the other to find
            assert await run.result(timeout=20) == 2
            assert bugs.hits == 2, "the sweep met the bugs"

    with caplog.at_level(logging.CRITICAL, "perdure"):
        run_async(main())
    assert any("the sweep" in record.message and record.exc_info for record in caplog.records)


class Counting(MemoryStore):
    """Counts its sweeps, and those of them that look for dead workers."""

    def __init__(self) -> None:
        super().__init__()
        self.sweeps = self.reaps = 0

    async def news(self, worker_id: str, cursor: int) -> News:
        self.sweeps += 1
        return await super().news(worker_id, cursor)

    async def reap(self, worker_id: str, at: int) -> int:
        self.reaps += 1
        return await super().reap(worker_id, at)


def test_every_standing_sweep_looks_for_dead_workers() -> None:
    """A take-over takes one interval and not two: no sweep comes a little too early to look for the dead, and then
    makes them wait for the next one. Half of them did."""

    async def main() -> None:
        store = Counting()
        async with Engine(store, sweep_interval=0.02):
            await until(lambda: store.reaps >= 30)
            assert store.sweeps - store.reaps <= 3, "those that were hinted at when the engine opened"

    run_async(main())


@event
@dataclass
class SweptNumber:
    number: int


@workflow
async def three_numbers() -> list[int]:
    return [(await receive(SweptNumber)).number for _ in range(3)]


@pytest.mark.parametrize("place", [1, 2, 3])
def test_news_whose_handling_fails_are_handled_again(
    place: int, lives: Lives, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """CONFORMANCE E1, law 8: the cursor moves when all that was read has reached its run, once each."""
    deliver, read_news, data = Inbound.deliver, Sweep._read_news, b'{"number":%d}' % place
    calls: list[str] = []

    def failing(self: Inbound, delivery: Delivery) -> None:
        if delivery.item.data == data:
            calls.append("deliver")
            if calls.count("deliver") == 1:
                raise RuntimeError("a bug in what handles news")
        deliver(self, delivery)

    async def counted(self: Sweep) -> None:
        await read_news(self)
        calls.append("read")

    async def main() -> None:
        async with lives.engine() as engine, Engine(lives.store(), worker=False) as client:
            run = await engine.start(three_numbers(), id="run")

            async def waits() -> bool:
                return (await engine.status("run")).status == "waiting"

            await until(waits)
            monkeypatch.setattr(Inbound, "deliver", failing)
            monkeypatch.setattr(Sweep, "_read_news", counted)
            for number in (1, 2, 3):
                await client.send("run", SweptNumber(number))
            await until(lambda: "deliver" in calls and calls[-1] == "read")
            assert calls[calls.index("deliver") + 1] == "deliver", "it failed, and came again with the next look"
            assert await run.result(timeout=20) == [1, 2, 3]

    with caplog.at_level(logging.CRITICAL, "perdure"):
        run_async(main())
