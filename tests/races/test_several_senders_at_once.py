"""Items that reach one run by different ways at the same moment all arrive: a client, a workflow, a child's end."""

from __future__ import annotations

import asyncio

from events.kinds import Note, Tick
from perdure import Engine, receive, send, step, workflow
from support.lives import Lives, run_async


@step
async def short_work(number: int) -> int:
    return number


@workflow
async def short_child(number: int) -> int:
    return await short_work(number)


@workflow
async def parent_that_listens(events: int) -> tuple[int, list[int]]:
    async def listen() -> list[int]:
        return [(await receive(Tick)).number for _ in range(events)]

    child, heard = await asyncio.gather(short_child(7), listen())
    return child, heard


def test_the_end_of_a_child_is_heard_however_events_arrive_meanwhile(lives: Lives) -> None:
    """CONFORMANCE E1, C7: a client's event and the child's notice come at the same moment; neither hides the other."""

    async def one(engine: Engine, ticks: int) -> None:
        run = await engine.start(parent_that_listens(3), id=f"parent-{ticks}")
        for number in range(3):
            for _ in range(ticks if number == 0 else 0):
                await asyncio.sleep(0)
            await run.send(Tick(number))
        assert await run.result(timeout=10) == (7, [0, 1, 2])

    async def main() -> None:
        async with lives.engine() as engine:
            for ticks in range(50):
                await one(engine, ticks)

    run_async(main(), patience=60)


@workflow
async def listener(count: int) -> list[str]:
    return sorted([(await receive(Note)).text for _ in range(count)])


@workflow
async def talker(target: str, count: int) -> None:
    for number in range(count):
        await send(target, Note(f"workflow {number}"))


def test_events_of_a_client_and_of_a_workflow_all_arrive(lives: Lives) -> None:
    """CONFORMANCE E1, E9: both write to one inbox at once; every accepted event is delivered once."""

    async def one(engine: Engine, trial: int) -> None:
        run = await engine.start(listener(10), id=f"listener-{trial}")
        talking = await engine.start(talker(run.id, 5), id=f"talker-{trial}")
        for number in range(5):
            for _ in range(trial % 7):
                await asyncio.sleep(0)
            await run.send(Note(f"client {number}"))
        await talking.result()
        expected = sorted([f"client {n}" for n in range(5)] + [f"workflow {n}" for n in range(5)])
        assert await run.result(timeout=10) == expected

    async def main() -> None:
        async with lives.engine() as engine:
            for trial in range(30):
                await one(engine, trial)

    run_async(main(), patience=60)


def test_events_of_many_clients_at_once_all_arrive_in_order(lives: Lives) -> None:
    """CONFORMANCE E2: two engines send to one run; each sender's events keep their order and none is missing."""

    async def main() -> None:
        async with lives.engine() as engine, lives.engine(worker=False) as other:
            run = await engine.start(listen_to_all(100), id="run")

            async def talk(sender: Engine, name: str) -> None:
                for number in range(50):
                    await sender.send("run", Note(f"{name} {number}"))

            await asyncio.gather(talk(engine, "here"), talk(other, "there"))
            heard = await run.result(timeout=10)
            for name in ("here", "there"):
                assert [n for n in heard if n.startswith(name)] == [f"{name} {k}" for k in range(50)]

    run_async(main())


@workflow
async def listen_to_all(count: int) -> list[str]:
    return [(await receive(Note)).text for _ in range(count)]
