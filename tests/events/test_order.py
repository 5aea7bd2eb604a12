"""Events come in the order they were sent, type by type; timeouts and counts hold."""

from __future__ import annotations

import asyncio

from events.kinds import Note, Stop, Tick
from perdure import Engine, RunHandle, receive, sleep, step, workflow
from support.lives import Lives, run_async


@step
async def collected(number: int) -> int:
    return number


@workflow
async def collect_ticks(count: int) -> list[int]:
    taken: list[int] = []
    for _ in range(count):
        taken.append(await collected((await receive(Tick)).number))
    return taken


@workflow
async def collect_until_stop() -> list[str]:
    taken: list[str] = []
    while True:
        match await receive(Note, Tick, Stop):
            case Note(text):
                taken.append(text)
            case Tick(number):
                taken.append(f"tick {number}")
            case Stop():
                return taken


@workflow
async def ticks_first_then_notes() -> list[object]:
    await receive(Stop)
    first = (await receive(Tick)).number
    second = (await receive(Note)).text
    third = (await receive(Tick)).number
    return [first, second, third]


@workflow
async def poll_in_a_loop(rounds: int) -> list[int | None]:
    taken: list[int | None] = []
    for _ in range(rounds):
        try:
            taken.append((await receive(Tick, timeout=0.01)).number)
        except TimeoutError:
            taken.append(None)
    return taken


@workflow
async def look_once() -> list[str]:
    seen: list[str] = []
    try:
        await receive(Note, timeout=0)
    except TimeoutError:
        seen.append("nothing")
    await receive(Stop)
    seen.append((await receive(Note, timeout=0)).text)
    try:
        await receive(Note, timeout=0)
    except TimeoutError:
        seen.append("nothing")
    return seen


@workflow
async def wait_with_a_limit(seconds: float) -> str:
    try:
        return (await receive(Note, timeout=seconds)).text
    except TimeoutError as error:
        await sleep(0.001)
        return f"timeout: {error}"


async def send_ticks(engine: Engine, handle: RunHandle[object]) -> None:
    """Safe to repeat: each event has its key."""
    for number in range(6):
        await engine.send(handle.id, Tick(number), key=f"tick-{number}")


def test_events_of_one_type_come_in_the_order_they_were_sent(lives: Lives) -> None:
    """CONFORMANCE E2, with a crash after every record."""
    assert run_async(lives.crash_at_every_record(lambda: collect_ticks(6), drive=send_ticks)) == list(range(6))


def test_a_hundred_events_come_in_order_and_none_is_missing(lives: Lives) -> None:
    """CONFORMANCE E2: counts."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(collect_ticks(100), id="run")
            for number in range(100):
                await run.send(Tick(number))
            assert await run.result() == list(range(100))

    run_async(main())


def test_several_types_in_one_receive_come_in_the_order_they_were_sent(lives: Lives) -> None:
    """CONFORMANCE E2: one receive of three types sees one stream."""

    async def drive(engine: Engine, handle: RunHandle[list[str]]) -> None:
        events = [Note("a"), Tick(1), Note("b"), Tick(2), Note("c"), Stop()]
        for number, one in enumerate(events):
            await engine.send(handle.id, one, key=str(number))

    result = run_async(lives.crash_at_every_record(collect_until_stop, drive=drive))
    assert result == ["a", "tick 1", "b", "tick 2", "c"]


def test_a_type_waits_for_its_own_receive(lives: Lives) -> None:
    """CONFORMANCE E2: an event of another type in front does not block, and is not lost."""

    async def drive(engine: Engine, handle: RunHandle[list[object]]) -> None:
        for number, one in enumerate([Note("n"), Tick(1), Tick(2), Stop()]):
            await engine.send(handle.id, one, key=str(number))

    assert run_async(lives.crash_at_every_record(ticks_first_then_notes, drive=drive)) == [1, "n", 2]


def test_a_timeout_in_a_loop_does_not_bring_back_the_previous_event(lives: Lives) -> None:
    """CONFORMANCE E2: the one event is received once; every other round times out."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(poll_in_a_loop(6), id="run")
            await run.send(Tick(5))
            taken = await run.result()
            assert taken.count(5) == 1
            assert taken.count(None) == 5

    run_async(main())


def test_a_timeout_in_a_loop_over_crashes(lives: Lives) -> None:
    """CONFORMANCE E2: the same, with a crash after every record."""

    async def drive(engine: Engine, handle: RunHandle[list[int | None]]) -> None:
        await engine.send(handle.id, Tick(5), key="only")

    async def main() -> None:
        for limit in range(1, 7):
            one = lives.fresh()

            async def act(engine: Engine) -> list[int | None]:
                handle = await engine.start(poll_in_a_loop(4), id="run")
                await drive(engine, handle)
                return await handle.result()

            await one.live_until(limit, act)
            async with one.engine() as engine:
                taken = await act(engine)
                assert taken.count(5) == 1, f"after a crash at record {limit}: {taken}"
                assert taken.count(None) == 3

    run_async(main())


def test_a_timeout_of_zero_looks_only_at_what_is_there(lives: Lives) -> None:
    """CONFORMANCE E2: receive(timeout=0) polls; it neither waits nor misses what has arrived."""

    async def drive(engine: Engine, handle: RunHandle[list[str]]) -> None:
        await engine.send(handle.id, Note("kept"), key="note")
        await engine.send(handle.id, Stop(), key="stop")

    async def main() -> None:
        async with lives.engine() as engine:
            gate = await engine.start(look_once(), id="run")
            await drive(engine, gate)
            assert await gate.result() == ["nothing", "kept", "nothing"]

    run_async(main())


def test_a_receive_that_times_out_raises_timeout_error(lives: Lives) -> None:
    """CONFORMANCE E2: TimeoutError names the type; the same text on every replay."""
    result = run_async(lives.crash_at_every_record(lambda: wait_with_a_limit(0.02)))
    assert result.startswith("timeout: no 'tests.note' came within 0.02")


def test_an_event_before_the_deadline_wins_even_if_both_are_seen_late(lives: Lives) -> None:
    """CONFORMANCE E2, FAULTS C17: sent in time, seen after the deadline because no worker was there."""

    async def main() -> None:
        engine = lives.engine()
        await engine.open()
        await engine.start(wait_with_a_limit(0.5), id="run")
        await lives.crash(engine)
        async with lives.engine(worker=False) as client:
            await client.send("run", Note("in time"))
        # The deadline passes while nobody works: this is downtime, not synchronisation.
        await asyncio.sleep(0.6)
        async with lives.engine() as later:
            assert await later.get("run").result() == "in time"

    run_async(main())
