"""`send` in workflow code happens once, however often the code is replayed."""

from __future__ import annotations

import asyncio

import pytest

from events.kinds import Note, Stop
from perdure import Engine, RunFinished, RunNotFound, info, receive, send, sleep, step, workflow
from perdure.errors import InboxFull
from support.lives import Lives, run_async


@step
async def settle() -> None:
    return None


@workflow
async def hear_until_stop() -> list[str]:
    heard: list[str] = []
    while isinstance(one := await receive(Note, Stop), Note):
        heard.append(one.text)
    return heard


@workflow
async def say_three(target: str) -> str:
    for text in ("a", "b", "c"):
        await send(target, Note(text))
        await settle()
    await send(target, Stop())
    return "said"


@workflow
async def say_three_at_once(target: str) -> str:
    await asyncio.gather(*(send(target, Note(text)) for text in ("a", "b", "c")))
    await send(target, Stop())
    return "said"


@workflow
async def talk_to_itself() -> list[str]:
    await send(info().id, Note("first"))
    await settle()
    await send(info().id, Note("second"))
    return [(await receive(Note)).text, (await receive(Note)).text]


@workflow
async def say_to(target: str) -> str:
    try:
        await send(target, Note("hello"))
    except (RunNotFound, RunFinished, InboxFull) as error:
        await settle()
        await sleep(0.001)
        return f"{type(error).__name__}: {error}"
    return "sent"


@workflow
async def end_at_once() -> None:
    return None


def test_a_send_happens_once_over_a_crash_at_every_record(lives: Lives) -> None:
    """CONFORMANCE E9: the crash counts records of all runs, so sender and listener die at every point."""

    async def main() -> None:
        for invocation in (say_three("listener"), say_three_at_once("listener")):
            for before in (False, True):
                limit = 0
                died = True
                while died:
                    limit += 1
                    one = lives.fresh()

                    async def act(engine: Engine, invocation=invocation) -> list[str]:  # type: ignore[no-untyped-def]
                        listener = await engine.start(hear_until_stop(), id="listener")
                        talker = await engine.start(invocation, id="talker")
                        assert await talker.result() == "said"
                        return await listener.result()

                    died = await one.live_until(limit, act, before=before)
                    async with one.engine() as engine:
                        assert await act(engine) == ["a", "b", "c"], f"crash at record {limit}, before={before}"

    run_async(main(), patience=60)


def test_a_run_can_send_to_itself(lives: Lives) -> None:
    """CONFORMANCE E9: in the first turn and later, once each."""
    assert run_async(lives.crash_at_every_record(talk_to_itself)) == ["first", "second"]


def test_a_send_to_an_unknown_run_raises_and_raises_the_same_on_replay(lives: Lives) -> None:
    """CONFORMANCE E9: RunNotFound reaches the code; even if the run exists by the time of the replay."""
    result = run_async(lives.crash_at_every_record(lambda: say_to("nobody")))
    assert result.startswith("RunNotFound: no run has the id 'nobody'")


def test_a_refusal_stands_although_the_target_appears_later(lives: Lives) -> None:
    """CONFORMANCE E9, law 9: the recorded refusal is what a replay sees."""

    async def main() -> None:
        async def act(engine: Engine) -> str:
            return await (await engine.start(say_to("later"), id="run")).result()

        assert await lives.live_until(2, act)
        async with lives.engine() as engine:
            target = await engine.start(hear_until_stop(), id="later")
            assert (await act(engine)).startswith("RunNotFound")
            await target.send(Stop())
            assert await target.result() == []

    run_async(main())


def test_a_send_to_a_finished_run_raises(lives: Lives) -> None:
    """CONFORMANCE E9: RunFinished, live and over crashes."""

    async def main() -> None:
        async def act(engine: Engine) -> str:
            await (await engine.start(end_at_once(), id="ended")).result()
            return await (await engine.start(say_to("ended"), id="run")).result()

        for limit in range(1, 8):
            one = lives.fresh()
            await one.live_until(limit, act)
            async with one.engine() as engine:
                assert (await act(engine)).startswith("RunFinished: run 'ended'")

    run_async(main())


def test_a_send_to_a_full_inbox_raises_inbox_full_in_the_code(lives: Lives) -> None:
    """CONFORMANCE E9: refused with an error, never dropped."""

    async def main() -> None:
        async with lives.engine(max_pending_events=2) as engine:
            await engine.start(hold_still(), id="full")
            for number in range(2):
                await engine.send("full", Note(str(number)))
            result = await (await engine.start(say_to("full"), id="run")).result()
            assert result.startswith("InboxFull: run 'full'")

    run_async(main())


@workflow
async def hold_still() -> list[str]:
    await receive(Stop)
    return [(await receive(Note)).text for _ in range(2)]


def test_a_full_inbox_refuses_a_client_and_takes_more_after_reading(lives: Lives) -> None:
    """CONFORMANCE E1: max_pending_events is per type; what was accepted is all delivered."""

    async def main() -> None:
        async with lives.engine(max_pending_events=2) as engine:
            run = await engine.start(hold_still(), id="run")
            await run.send(Note("a"))
            await run.send(Note("b"))
            with pytest.raises(InboxFull):
                await run.send(Note("c"))
            await run.send(Stop())  # another type has its own room, and cancel always has
            assert await run.result() == ["a", "b"]

    run_async(main())


def test_a_client_hears_of_unknown_and_finished_runs(lives: Lives) -> None:
    """CONFORMANCE E1: RunNotFound, RunFinished; nothing is written."""

    async def main() -> None:
        async with lives.engine() as engine:
            with pytest.raises(RunNotFound):
                await engine.send("nobody", Note("x"))
            run = await engine.start(end_at_once(), id="run")
            await run.result()
            with pytest.raises(RunFinished):
                await run.send(Note("x"))

    run_async(main())
