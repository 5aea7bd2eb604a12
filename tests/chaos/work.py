"""What the fleet under fire does: one workflow for each kind of verb. Every step notes that it began, in a file of its
process, and returns what nobody else can know: so the records can be compared with what was really done."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import dataclass

from perdure import (
    Break,
    Engine,
    Rollback,
    current_step,
    event,
    join,
    loop,
    now,
    publish,
    receive,
    reply,
    saga,
    send,
    sleep,
    start_child,
    step,
    wait_for_run,
    workflow,
)

#: Where the steps of this process write, and the engine that they run in. Set by `chaos.worker`.
descriptor = -1
engine: Engine | None = None
_numbers = itertools.count(1)


def _note() -> str:
    """Write down that an attempt began. Its token is of this attempt only."""
    context = current_step()
    token = f"{os.getpid()}.{next(_numbers)}"
    worker = "nobody" if engine is None or engine.worker is None else engine.worker.id
    line = "\t".join([token, worker, context.run_id, context.location, str(context.attempt)])
    os.write(descriptor, f"{line}\n".encode())
    return token


@event
@dataclass
class ChaosNote:
    """Sent to one run."""

    number: int


@event
@dataclass
class ChaosDone:
    pass


@event
@dataclass
class ChaosAsk:
    number: int


@event(delivery="first")
@dataclass
class ChaosTicket:
    """Published; one run gets it."""

    number: int


@event(consume=False)
@dataclass
class ChaosChime:
    """Published; everybody who was there gets it once."""

    number: int


@step
async def chaos_act(pause: float = 0.0) -> str:
    token = _note()
    await asyncio.sleep(pause)
    return token


@step
def chaos_thread_act() -> str:
    return _note()


@step(max_attempts=4, initial_delay=0.05)
async def chaos_hard(fails: int) -> str:
    token = _note()
    if current_step().attempt <= fails:
        raise ConnectionError("not yet")
    return token


@step(max_attempts=None, initial_delay=0.05)
async def chaos_take_back(token: str) -> str:
    return f"{_note()} takes back {token}"


@workflow
async def chaos_chain(count: int, pause: float) -> list[str]:
    return [await chaos_act(pause) for _ in range(count)]


@workflow
async def chaos_fan(count: int) -> list[str]:
    acts = [chaos_act(0.01 * number) for number in range(count)]
    return [*await asyncio.gather(*acts), await chaos_thread_act(), await chaos_hard(1)]


@workflow
async def chaos_listen(count: int) -> list[int]:
    """Notes arrive in the order in which they were sent, each once."""
    found = []
    for _ in range(count):
        found.append((await receive(ChaosNote)).number)
        await chaos_act()
    return found


@workflow
async def chaos_collect() -> list[int]:
    """Notes, until it is told that there are no more."""
    found: list[int] = []
    while True:
        match await receive(ChaosNote, ChaosDone):
            case ChaosNote(number):
                found.append(number)
            case _:
                return found


@workflow
async def chaos_answer(count: int) -> int:
    for _ in range(count):
        question = await receive(ChaosAsk)
        await reply(question, question.number * 2)
    return count


@workflow
async def chaos_take() -> int:
    ticket = await receive(ChaosTicket)
    await chaos_act()
    return ticket.number


@workflow
async def chaos_announce(first: int, count: int) -> int:
    for number in range(first, first + count):
        await chaos_act()
        await publish(ChaosTicket(number))
    return count


@workflow
async def chaos_hear(count: int) -> list[int]:
    return [(await receive(ChaosChime)).number for _ in range(count)]


@workflow
async def chaos_child(depth: int, pause: float) -> int:
    await chaos_act(pause)
    if depth:
        return 1 + await chaos_child(depth - 1, pause)
    return 1


@workflow
async def chaos_family(count: int) -> int:
    handles = [await start_child(chaos_child(number % 3, 0.02)) for number in range(count)]
    found = await join(**{f"c{number}": handle.result() for number, handle in enumerate(handles)})
    return sum(found.values())


@workflow
async def chaos_ping(other: str, count: int) -> list[int]:
    """Talks to another run, by turns, and waits for its end."""
    found = []
    for number in range(count):
        await send(other, ChaosNote(number))
        found.append((await receive(ChaosNote)).number)
    assert await wait_for_run(other) == count
    return found


@workflow
async def chaos_pong(other: str, count: int) -> int:
    for _ in range(count):
        note = await receive(ChaosNote)
        await chaos_act()
        await send(other, ChaosNote(note.number + 1_000))
    return count


@workflow
async def chaos_timers(naps: list[float]) -> list[bool]:
    """Whether each nap was long enough, by the run's own clock."""

    async def nap(seconds: float) -> bool:
        before = now()
        await sleep(seconds)
        return (now() - before).total_seconds() >= seconds

    together = [nap(seconds) for seconds in naps]
    return [*await asyncio.gather(*together), await nap(naps[0])]


@workflow
async def chaos_saga(count: int, fails: bool) -> list[str]:
    done: list[str] = []
    try:
        async with saga() as undo:
            for _ in range(count):
                done.append(await undo.do(chaos_act, 0.01, undo=chaos_take_back))
            if fails:
                raise Rollback("as planned")
    except Rollback:
        return [*done, "undone"]
    return done


@workflow
async def chaos_loop(count: int) -> int:
    async def turn(number: int) -> int | Break[int]:
        if number == count:
            return Break(number)
        await chaos_act()
        if number % 5 == 0:
            await sleep(0.05)
        return number + 1

    return await loop(turn, 0, keep=3)
