"""Identical events are all delivered; two with the same key are one."""

from __future__ import annotations

from events.kinds import Note, Stop
from perdure import RunFinished, receive, send, workflow
from support.lives import Lives, run_async, until


@workflow
async def notes_until_stop() -> list[str]:
    taken: list[str] = []
    while isinstance(one := await receive(Note, Stop), Note):
        taken.append(one.text)
    return taken


@workflow
async def first_note_then_all() -> list[str]:
    first = await receive(Note)
    return [first.text, *await notes()]


async def notes() -> list[str]:
    taken: list[str] = []
    while isinstance(one := await receive(Note, Stop), Note):
        taken.append(one.text)
    return taken


@workflow
async def send_with_keys(target: str) -> None:
    await send(target, Note("first"), key="k")
    await send(target, Note("again"), key="k")
    await send(target, Note("same"))
    await send(target, Note("same"))
    await send(target, Stop())


def test_identical_events_are_all_delivered(lives: Lives) -> None:
    """CONFORMANCE E3: equal is not the same."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(notes_until_stop(), id="run")
            for _ in range(5):
                await run.send(Note("same"))
            await run.send(Stop())
            assert await run.result() == ["same"] * 5

    run_async(main())


def test_the_same_key_twice_is_one_event(lives: Lives) -> None:
    """CONFORMANCE E3: the second is accepted and ignored, whatever it holds."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(notes_until_stop(), id="run")
            await run.send(Note("first"), key="k")
            await run.send(Note("second"), key="k")
            await run.send(Note("other"), key="l")
            await run.send(Stop())
            assert await run.result() == ["first", "other"]

    run_async(main())


def test_a_key_is_remembered_after_its_event_was_read_and_after_a_restart(lives: Lives) -> None:
    """CONFORMANCE E3: a client that repeats a send after a crash does not double it."""

    async def main() -> None:
        engine = lives.engine()
        await engine.open()
        run = await engine.start(first_note_then_all(), id="run")
        await run.send(Note("first"), key="k")
        await run.send(Note("repeat while it runs"), key="k")

        async def was_read() -> bool:
            return (await run.status()).records >= 2

        await until(was_read)
        await run.send(Note("repeat after it was read"), key="k")
        await lives.crash(engine)
        async with lives.engine() as later:
            again = later.get("run")
            await again.send(Note("repeat after a restart"), key="k")
            await again.send(Stop(), key="stop")
            assert await again.result() == ["first"]
            await again.send(Stop(), key="stop")  # the repeat of an accepted send succeeds, even at the end
            try:
                await again.send(Note("new"), key="another")
            except RunFinished:
                return
            raise AssertionError("a new event to a finished run was accepted")

    run_async(main())


def test_keys_are_of_one_run(lives: Lives) -> None:
    """CONFORMANCE E3: the same key to two runs is two events."""

    async def main() -> None:
        async with lives.engine() as engine:
            runs = [await engine.start(notes_until_stop(), id=f"run-{n}") for n in range(2)]
            for run in runs:
                await run.send(Note("both"), key="k")
                await run.send(Stop())
            assert [await run.result() for run in runs] == [["both"], ["both"]]

    run_async(main())


def test_keys_count_for_sends_of_workflow_code_too(lives: Lives) -> None:
    """A second send with the same key is ignored, from a client or from a workflow. CONFORMANCE E3, E9."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(notes_until_stop(), id="run")
            await run.send(Note("client"), key="k")
            await (await engine.start(send_with_keys("run"), id="sender")).result()
            assert await run.result() == ["client", "same", "same"]

    run_async(main())
