"""Time jumps when nothing else can happen, and only then."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

import pytest

from perdure import event, now, receive, sleep, step, workflow
from perdure.testing import Deadlocked, NeverWaits, VirtualEngine


@event
@dataclass
class Paid:
    cents: int


@step(max_attempts=None, initial_delay=60, max_delay=600)
async def collect(cents: int) -> str:
    raise NotImplementedError


@step
def in_a_thread(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@workflow
async def invoice(cents: int) -> str:
    await sleep("30 days")
    receipt = await collect(cents)
    paid = await receive(Paid, timeout="7 days")
    return f"{receipt} {paid.cents}"


async def test_thirty_days_two_hours_of_retries_and_an_event(engine: VirtualEngine) -> None:
    """Bar 1; how long it takes is the next test's."""
    began = time.perf_counter()
    collecting = engine.mock(collect, sequence=[*[ConnectionError("down")] * 16, "r-1"])
    run = await engine.start(invoice(500))
    await engine.wait_until(run, waiting_for=Paid)
    assert len(collecting.calls) == 17
    assert timedelta(days=30, hours=2) < engine.now - (await run.status()).created_at < timedelta(days=30, hours=3)
    await engine.send(run.id, Paid(500))
    assert await run.result() == "r-1 500"
    assert time.perf_counter() - began < 5, "it waited for real"


def _loop_seconds() -> float:
    """What the machine needs for a loop that takes 10 ms on the one that the bar was set on: how slow it is now."""
    began, total = time.process_time(), 0
    for number in range(200_000):
        total += number & 7
    return time.process_time() - began


def test_such_a_test_takes_less_than_fifty_milliseconds() -> None:
    """Bar 1: the best of some, from making the engine to closing it. Of the processor time, since others use it too,
    and in proportion to what a loop takes on the machine at that moment."""
    best, tries = 10.0, 0
    while best >= 0.05 and tries < 60:
        tries += 1
        slowness = max(1.0, _loop_seconds() / 0.01)
        began = time.process_time()
        engine = VirtualEngine()
        engine.run(test_thirty_days_two_hours_of_retries_and_an_event(engine))
        engine.shut()
        best = min(best, (time.process_time() - began) / slowness)
    assert best < 0.05


async def test_times_are_exact(engine: VirtualEngine) -> None:
    @workflow
    async def naps() -> list[float]:
        began = now()
        await sleep("100 days")
        await asyncio.sleep(0.25)
        await sleep(1e-6)
        return [(now() - began).total_seconds()]

    run = await engine.start(naps())
    assert await run.result() == [100 * 86_400 + 0.250001]


async def test_a_century_passes_too(engine: VirtualEngine) -> None:
    """Virtual time has no limit that a test would notice. CONFORMANCE T1."""

    @workflow
    async def century() -> str:
        await sleep(100 * 365 * 86_400.0)
        return "awake"

    began = time.perf_counter()
    assert await (await engine.start(century())).result() == "awake"
    assert time.perf_counter() - began < 5


def test_a_sync_test_runs_a_workflow(engine: VirtualEngine) -> None:
    engine.mock("collect", "r")

    async def paying() -> str:
        run = await engine.start(invoice(1), id="i")
        await engine.wait_until(run, waiting_for="receive")
        await run.send(Paid(1))
        return await run.result()

    assert engine.run(paying()) == "r 1"
    assert engine.run(invoice(1), id="i") == "r 1"


def test_any_event_loop_will_do() -> None:
    """Without the fixture and without the plugin, on a stock loop; its own time is back afterwards."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        async with VirtualEngine() as engine:
            engine.mock(collect, "r")
            run = await engine.start(invoice(1))
            await engine.advance("30 days")
            assert (await run.status()).waiting[0].kind == "receive"
            await engine.advance("8 days")
            with pytest.raises(Exception, match="TimeoutError"):
                await run.result()
        assert loop.time() - before < 5
        assert "time" not in vars(loop)

    asyncio.run(main())


async def test_time_stands_still_while_a_thread_works(engine: VirtualEngine) -> None:
    """A sync step takes real time, and no virtual time: its timeout, and a race with a sleep, do not depend on load."""

    @workflow
    async def racing() -> str:
        async with asyncio.timeout(1e-3):
            return await in_a_thread.options(timeout=1e-3)(0.05)

    run = await engine.start(racing())
    began = engine.now
    assert await run.result() == "done"
    assert engine.now == began


async def test_time_stands_still_for_executors_and_sockets(engine: VirtualEngine) -> None:
    @step(timeout=0.001)
    async def talks() -> bytes:
        await asyncio.to_thread(time.sleep, 0.02)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    @workflow
    async def talking() -> bytes:
        return await talks()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.to_thread(time.sleep, 0.02)
        writer.write(b"hello")
        writer.close()

    await engine.settle()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        assert await (await engine.start(talking())).result() == b"hello"
    finally:
        server.close()


async def test_a_run_that_can_never_end_is_an_error_at_once(engine: VirtualEngine) -> None:
    """Nothing is left hanging without a word."""

    @workflow
    async def forgotten() -> None:
        await receive(Paid)

    run = await engine.start(forgotten(), id="f")
    with pytest.raises(Deadlocked, match=r"run 'f' will never end.*receive 'receive' of 'Paid' \(test_virtual_time.py"):
        await run.result()
    await run.send(Paid(1))
    assert await run.result() is None


async def test_a_request_that_is_never_answered_is_an_error_at_once(engine: VirtualEngine) -> None:
    """Time does not go on for ever in search of an answer; with a timeout it goes as far as that."""

    @workflow
    async def silent() -> None:
        await receive(Paid)
        await receive(Paid)

    run = await engine.start(silent(), id="s")
    began = engine.now
    with pytest.raises(Deadlocked, match=r"run 's' will never end or answer.*receive 'receive#2' of 'Paid'"):
        await run.request(Paid(1))
    assert engine.now == began
    run = await engine.start(silent(), id="t")
    with pytest.raises(TimeoutError):
        await run.request(Paid(1), timeout="1 hour")
    assert engine.now - began == timedelta(hours=1)


def test_a_test_that_can_never_end_is_an_error_at_once() -> None:
    async def main() -> None:
        async with VirtualEngine():
            await asyncio.Event().wait()

    with pytest.raises(Deadlocked, match="can never happen"):
        asyncio.run(main())


async def test_waiting_for_what_never_comes(engine: VirtualEngine) -> None:
    engine.mock(collect, "r")
    run = await engine.start(invoice(1))
    await engine.wait_until(run, waiting_for="timer")
    await engine.wait_until(run, waiting_for="sleep")
    with pytest.raises(NeverWaits, match="does not wait for 'child': it is failed"):
        await engine.wait_until(run, waiting_for="child")


async def test_the_clock_of_the_test_is_the_clock_of_the_run(engine: VirtualEngine) -> None:
    await engine.settle()
    before = engine.now
    await engine.advance("2 hours")
    assert engine.now - before == timedelta(hours=2)
    await engine.advance(until=before + timedelta(days=1))
    assert engine.now - before == timedelta(days=1)
    await asyncio.sleep(3600)
    assert engine.now - before == timedelta(days=1, hours=1)


async def test_two_engines_share_the_time_of_their_loop(engine: VirtualEngine) -> None:
    async with VirtualEngine() as other:
        engine.mock(collect, "a", delay="1 hour")
        other.mock(collect, "b", delay="2 hours")

        @workflow
        async def collecting() -> str:
            return await collect(1)

        first, second = await engine.start(collecting()), await other.start(collecting())
        assert await asyncio.gather(first.result(), second.result()) == ["a", "b"]
        assert engine.now == other.now
