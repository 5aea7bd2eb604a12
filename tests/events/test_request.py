"""`engine.request` and `reply`: answered once, over crashes of either side, or an error."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from events.kinds import Stop
from perdure import Engine, RunFinished, RunNotFound, event, receive, reply, step, workflow
from perdure.errors import BadArgument, NoReply, RunParked
from perdure.store.sqlite import SQLiteStore
from support.effects import Effects
from support.faulty_stores import DisturbedStore, die
from support.lives import Lives, run_async, until
from support.processes import Process


@event(name="tests.question")
@dataclass
class Question:
    text: str


@step
async def think(text: str) -> Decimal:
    return Decimal(len(text))


@workflow
async def answering(questions: int) -> list[bool]:
    heard: list[bool] = []
    for _ in range(questions):
        question = await receive(Question)
        heard.append(await reply(question, {"for": question.text, "answer": await think(question.text)}))
    await receive(Stop)
    return heard


def test_a_request_is_answered(lives: Lives) -> None:
    """CONFORMANCE E10: values come back as they were given; a sent question has nobody who waits."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(answering(3), id="run")
            await run.send(Question("sent"))
            assert await engine.request("run", Question("one")) == {"for": "one", "answer": Decimal(3)}
            assert await run.request(Question("three"), timeout=10) == {"for": "three", "answer": Decimal(5)}
            await run.send(Stop())
            assert await run.result() == [False, True, True]
            assert [entry.kind for entry in await engine.admin.history("run")].count("replied") == 2

    run_async(main())


def test_a_client_elsewhere_is_answered(lives: Lives) -> None:
    """CONFORMANCE E10: asked without a worker, answered by another engine."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as client:
            await engine.start(answering(1), id="run")
            assert (await client.request("run", Question("four"), timeout=10))["answer"] == 4

    run_async(main())


def test_the_caller_of_a_run_that_ends_gets_an_error(lives: Lives) -> None:
    """CONFORMANCE E10: finished before, finished meanwhile, unknown, parked, too slow."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(answering(0), id="run")
            asked = asyncio.ensure_future(engine.request("run", Question("unread")))
            with pytest.raises(TimeoutError):
                await engine.request("run", Question("slow"), timeout=0.05)
            await run.send(Stop())
            with pytest.raises(NoReply, match=r"has ended .completed. without answering"):
                await asked
            with pytest.raises(RunFinished):
                await engine.request("run", Question("late"))
            with pytest.raises(RunNotFound):
                await engine.request("nobody", Question("x"))
            parked = await engine.start(parks_on_a_question(), id="parked")
            with pytest.raises(RunParked):
                await parked.request(Question("x"), timeout=10)

    run_async(main())


@workflow
async def says_who_it_is(name: str) -> None:
    await reply(await receive(Question), name)


def test_a_new_run_of_the_same_id_answers_itself(lives: Lives) -> None:
    """FAULTS C21: what a deleted run once answered under the same key is not handed to somebody who asks again."""

    async def main() -> None:
        async with lives.engine() as engine:
            for name in ("first", "second"):
                run = await engine.start(says_who_it_is(name), id="run")
                for _ in range(2):  # the second time it is found
                    assert await engine.request("run", Question("who?"), key="k", timeout=10) == name
                await run.result()
                await engine.admin.delete("run")
            with pytest.raises(RunNotFound):
                await engine.request("run", Question("who?"), key="k", timeout=10)

    run_async(main())


def test_a_request_does_not_wait_for_another_run_of_the_same_id(lives: Lives) -> None:
    """The run that was asked has ended and is deleted, and a new one has its id: the question went with the old one."""

    async def main() -> None:
        async with lives.engine(worker=False) as client:
            await client.start(says_who_it_is("first"), id="run")
            asked = asyncio.ensure_future(client.request("run", Question("who?")))
            await until(lambda: client.parts is not None and client.parts.signals.count() > 0)
            async with lives.engine(worker=False) as other:  # of which the caller hears nothing
                assert await other.admin.terminate("run")
                await other.admin.delete("run")
                await other.start(says_who_it_is("second"), id="run")
            with pytest.raises(NoReply, match="without answering"):
                await asked

    run_async(main())


@workflow
async def parks_on_a_question() -> None:
    await receive(Question)
    await asyncio.get_running_loop().create_future()  # nothing will ever wake it


@workflow
async def wrong_replies() -> list[str]:
    said: list[Any] = []
    question = await receive(Question)
    for event_, value in ((object(), 1), (question, object())):
        try:
            await reply(event_, value)
        except Exception as error:
            said.append(type(error).__name__)
    said.append(await reply(question, None))
    said.append(await reply(question, "again"))
    await receive(Stop)
    return [str(one) for one in said]


def test_wrong_replies_are_refused_and_the_first_good_one_counts(lives: Lives) -> None:
    """`None` is an answer; there is no second."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(wrong_replies(), id="run")
            assert await run.request(Question("x"), timeout=10) is None
            await run.send(Stop())
            assert await run.result() == ["BadArgument", "NotStorable", "True", "False"]
            with pytest.raises(BadArgument):
                await engine.request("run", "no event")

    run_async(main())


@workflow
async def answers_after_all() -> bool:
    question = await receive(Question)
    given_up = asyncio.create_task(reply(question, "too hasty"))
    await asyncio.sleep(0)  # it was asked for, and is given up in the same turn: nothing has left
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    return await reply(question, "well thought out")


def test_a_reply_that_was_given_up_can_be_given_again(lives: Lives) -> None:
    """CONFORMANCE E4 in spirit: what is cancelled before it left leaves no trace, and nobody is left hanging."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(answers_after_all(), id="run")
            assert await run.request(Question("x"), timeout=10) == "well thought out"
            assert await run.result() is True

    run_async(main())


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
def test_a_reply_survives_a_crash_of_the_run(lives: Lives, before: bool) -> None:
    """CONFORMANCE E10: the worker dies around each record; asking again with the key finds the one answer."""

    async def main() -> None:
        for limit in range(1, 9):
            fresh = lives.fresh()

            async def act(engine: Engine) -> list[bool]:
                run = await engine.start(answering(2), id="run")
                for text in ("one", "three"):
                    answer = await run.request(Question(text), key=text)
                    assert answer == {"for": text, "answer": Decimal(len(text))}
                await run.send(Stop(), key="stop")
                return await run.result()

            await fresh.live_until(limit, act, before=before)
            async with fresh.engine() as engine:
                assert await act(engine) == [True, True]
                kinds = [entry.kind for entry in await engine.admin.history("run")]
                assert kinds.count("replied") == kinds.count("step_done") == 2

    run_async(main(), patience=60)


async def ask_and_die(database: str) -> None:
    """In a child process: ask with a key, and die before the answer is heard."""
    store = DisturbedStore(SQLiteStore(database))
    store.after("reply", die, lambda call: call.result is not None)
    async with Engine(store, worker=False) as engine:
        await engine.request("run", Question("one"), key="one")


def test_a_caller_that_was_killed_finds_the_answer(tmp_path: Path, effects: Effects) -> None:
    """CONFORMANCE E10 with SIGKILL: the answer waits for a caller that asks again with the key, also after the run
    ended."""
    database = str(tmp_path / "killed.db")

    async def main() -> None:
        async with Engine(database, sweep_interval=0.02) as engine:
            run = await engine.start(answering(1), id="run")
            with Process("events.test_request:ask_and_die", database) as child:
                assert await asyncio.to_thread(child.wait) == -signal.SIGKILL
            await run.send(Stop())
            assert await run.result() == [True]
            assert await engine.request("run", Question("one"), key="one") == {"for": "one", "answer": Decimal(3)}

    run_async(main())
