"""The process dies between any two records of a run that does everything: same result, recorded work never repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Engine, current_step, event, receive, send, sleep, step, workflow
from support.lives import Lives, run_async

ran: list[str] = []


@event
@dataclass
class Question:
    value: int


@event
@dataclass
class Reply:
    value: int


@step(max_attempts=3, initial_delay=0.001)
async def worked(name: str) -> str:
    context = current_step()
    ran.append(f"{context.run_id}:{context.location}:{context.attempt}")
    if name == "flaky" and context.attempt == 1:
        raise ValueError
    return name


@workflow
async def crash_child(number: int) -> int:
    await worked("child")
    return number * 2


@workflow
async def crash_answerer() -> int:
    value = (await receive(Question)).value
    await send("run", Reply(value + 1), key="reply")
    return value


@workflow
async def crash_everything() -> list[Any]:
    first = await worked("first")
    flaky = await worked("flaky")
    both = await asyncio.gather(crash_child(21), worked("beside"))
    await sleep(0.002)
    await send("answerer", Question(5), key="question")
    reply = (await receive(Reply, timeout=60)).value
    return [first, flaky, *both, reply]


EXPECTED = ["first", "flaky", 42, "beside", 6]


async def act(engine: Engine) -> list[Any]:
    await engine.start(crash_answerer(), id="answerer")
    return await (await engine.start(crash_everything(), id="run")).result()


async def recorded(lives: Lives) -> set[str]:
    """Attempts whose outcome is in a journal."""
    found: set[str] = set()
    async with lives.engine(worker=False) as client:
        for view in await client.list():
            for entry in await client.admin.history(view.id):
                if entry.kind.startswith("step_"):
                    found.add(f"{view.id}:{entry.location}:{entry.data.get('attempt', 1)}")
    return found


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_crash_at_every_record_gives_the_same_result_and_repeats_nothing_recorded(lives: Lives, before: bool) -> None:
    """FAULTS A1, A2, A5, A6 and A8 to A12: start, steps, retry, timer, child, event and end, each as the last thing
    that was (or was not) stored; a step may run again only if its outcome was not."""

    async def main() -> None:
        limit, died = 0, True
        while died:
            limit += 1
            one = lives.fresh()
            ran.clear()
            died = await one.live_until(limit, act, before=before)
            kept = await recorded(one)
            first = Counter(ran)
            ran.clear()
            async with one.engine() as engine:
                assert await act(engine) == EXPECTED, f"after a crash at record {limit}"
                kinds = Counter(entry.kind for entry in await engine.admin.history("run"))
            again = set(ran) & kept
            assert not again, f"recorded work was repeated after a crash at record {limit}: {again}"
            assert max(first.values(), default=1) == 1
            assert max(Counter(ran).values(), default=1) == 1
            assert kinds["child_started"] == kinds["child_done"] == kinds["event_received"] == kinds["sent"] == 1
        assert limit > 12, "it died at many points before it came through"

    run_async(main(), patience=60)


def test_unfinished_start_can_be_repeated(lives: Lives) -> None:
    """FAULTS A1 and A2: no answer was heard; starting again gives one run, stored or not."""

    async def main() -> None:
        for before in (True, False):
            one = lives.fresh()
            assert await one.live_until(1, act, before=before)
            async with one.engine() as engine:
                ids = {view.id for view in await engine.list()}
                assert ids == (set() if before else {"answerer"})
                assert await act(engine) == EXPECTED
                assert len(await engine.list()) == 3

    run_async(main())
