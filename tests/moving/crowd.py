"""A crowd of runs that wait on every verb, a load beside it, and movers that are killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure import (
    Break,
    Engine,
    RetryAfter,
    Rollback,
    RunHandle,
    continue_as,
    current_step,
    event,
    join,
    loop,
    race,
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
from perdure.errors import RunMoved, StoreUnavailable
from support.effects import Effects


@event(name="crowd.go")
@dataclass(frozen=True)
class Go:
    number: int


@event(name="crowd.later")
@dataclass(frozen=True)
class Later:
    number: int


@event(name="crowd.pick")
@dataclass(frozen=True)
class Pick:
    number: int


@event(name="crowd.hear", consume=False)
@dataclass(frozen=True)
class Hear:
    number: int


@event(name="crowd.ask")
@dataclass(frozen=True)
class Ask:
    number: int


@step
async def crowd_note(path: str, line: str) -> str:
    """Really done: a line in a file."""
    Effects(Path(path)).add(line)
    return line


@step
async def crowd_second_try(path: str, line: str, seconds: float) -> str:
    if current_step().attempt == 1:
        raise RetryAfter(seconds)
    Effects(Path(path)).add(line)
    return line


@step
async def crowd_undo(path: str, line: str) -> None:
    Effects(Path(path)).add(line)


@workflow
async def crowd_quick(number: int) -> int:
    return (await crowd_double(number)) + 1


@step
async def crowd_double(number: int) -> int:
    return 2 * number


@workflow
async def crowd_child(path: str, name: str) -> str:
    number = (await receive(Go)).number
    return await crowd_note(path, f"{name} child {number}")


@workflow
async def crowd_open(path: str, kind: str, name: str, seconds: float, generation: int = 1) -> str:
    """Notes its beginning, waits as its kind says, notes its end."""
    if generation == 1:
        await crowd_note(path, f"{name} begins")
    return await crowd_note(path, f"{name} ends {await KINDS[kind](Given(path, name, seconds, generation))}")


@dataclass(frozen=True)
class Given:
    path: str
    name: str
    seconds: float
    generation: int


async def _receives(run: Given) -> Any:
    return (await receive(Go)).number


async def _unread(run: Given) -> Any:
    number = (await receive(Go)).number
    return number, [(await receive(Later)).number for _ in range(2)]


async def _sleeps(run: Given) -> Any:
    await sleep(run.seconds)
    return "slept"


async def _picks(run: Given) -> Any:
    return "picked", bool(await receive(Pick))


async def _hears(run: Given) -> Any:
    return [(await receive(Hear)).number for _ in range(2)]


async def _parents(run: Given) -> Any:
    return await (await start_child(crowd_child(run.path, run.name), id=f"{run.name}-c"))


async def _watches(run: Given) -> Any:
    return await wait_for_run(run.name.replace("watches", "receives"))


async def _races(run: Given) -> Any:
    return (await race(go=receive(Go), never=sleep("1 day"))).name


async def _joins(run: Given) -> Any:
    found: dict[str, Any] = await join(noted=crowd_note(run.path, f"{run.name} joins"), go=receive(Go))
    return found["go"].number


async def _loops(run: Given) -> Any:
    async def body(total: int) -> int | Break[int]:
        number = (await receive(Go)).number
        return Break(total) if number < 0 else total + number

    return await loop(body, 0)


async def _continues(run: Given) -> Any:
    number = (await receive(Go)).number
    if run.generation == 1:
        await continue_as(crowd_open(run.path, "continues", run.name, run.seconds, 2))
    return run.generation, number


async def _sagas(run: Given) -> Any:
    try:
        async with saga() as steps:
            await steps.do(
                crowd_note, run.path, f"{run.name} books", undo=lambda _: crowd_undo(run.path, f"{run.name} cancels")
            )
            await receive(Go)
            raise Rollback("enough")
    except Rollback:
        return "undone"


async def _retries(run: Given) -> Any:
    return await crowd_second_try(run.path, f"{run.name} tries", run.seconds)


async def _replies(run: Given) -> Any:
    await receive(Go)
    question = await receive(Ask)
    await reply(question, question.number + 1)
    return "replied"


async def _sends(run: Given) -> Any:
    await receive(Go)
    await send(run.name.replace("sends", "joins"), Go(7))
    return "sent"


KINDS: dict[str, Callable[[Given], Awaitable[Any]]] = {
    "receives": _receives, "unread": _unread, "sleeps": _sleeps, "picks": _picks, "hears": _hears,
    "parents": _parents, "watches": _watches, "races": _races, "joins": _joins, "loops": _loops,
    "continues": _continues, "sagas": _sagas, "retries": _retries, "replies": _replies, "sends": _sends,
}  # fmt: skip

#: What each says in the end; the rest of the line is its name.
ENDS = {
    "receives": "1", "unread": "(1, [10, 20])", "sleeps": "slept", "picks": "('picked', True)", "hears": "[1, 2]",
    "parents": "{name} child 1", "watches": "{receives} ends 1", "races": "go", "joins": "7", "loops": "9",
    "continues": "(2, 2)", "sagas": "undone", "retries": "{name} tries", "replies": "replied", "sends": "sent",
}  # fmt: skip


def names(each: int) -> Iterator[tuple[str, str]]:
    for number in range(each):
        for kind in KINDS:
            yield kind, f"open-{kind}-{number}"


class Crowd:
    """`each` open runs of each kind. Timers are of so many seconds: longer than it takes to move."""

    def __init__(self, path: str, ended: int, each: int, seconds: float) -> None:
        self.path = path
        self.seconds = seconds
        self.ended = ended
        self.each = each

    # -- before the move -----------------------------------------------------------------------------------------

    async def begin(self, engine: Engine) -> list[RunHandle[Any]]:
        """All are started; those that end have ended, the others wait, with what they have not read."""
        quick = [(crowd_quick(number), f"ended-{number}") for number in range(self.ended)]
        for start in range(0, len(quick), 500):
            some = quick[start : start + 500]
            handles = await asyncio.gather(*(engine.start(call, id=run_id) for call, run_id in some))
            await asyncio.gather(*(handle.result() for handle in handles))
        handles = [
            await engine.start(crowd_open(self.path, kind, name, self.seconds), id=name)
            for kind, name in names(self.each)
        ]
        lines = Effects(Path(self.path))
        while sum(line.endswith(" begins") for line in lines.lines()) < len(handles):
            await asyncio.sleep(0.05)
        for number in range(self.each):
            await engine.send(f"open-unread-{number}", Later(10), key="10")
            await engine.send(f"open-unread-{number}", Later(20), key="20")
            await engine.send(f"open-loops-{number}", Go(4), key="4")
            await engine.send(f"open-continues-{number}", Go(1), key="1")
        await engine.publish(Hear(1), key="hear 1")
        return handles

    # -- meanwhile -----------------------------------------------------------------------------------------------

    async def load(self, engine: Engine, pause: float) -> tuple[int, str, float]:
        """Start runs, until told where they are now: how many were started, where to go, and how long that took."""
        number, refused_at = 0, None
        loop_time = asyncio.get_running_loop().time
        while True:
            try:
                await engine.start(crowd_quick(number), id=f"load-{number}")
            except StoreUnavailable:
                refused_at = refused_at or loop_time()
                await asyncio.sleep(0.01)
                continue
            except RunMoved as moved:
                return number, moved.location, loop_time() - (refused_at or loop_time())
            refused_at = None
            number += 1
            await asyncio.sleep(pause)

    # -- after the move ------------------------------------------------------------------------------------------

    async def finish(self, engine: Engine) -> dict[str, Any]:
        """Everything that they wait for comes. Returns their results."""
        for number in range(self.each):
            for kind, go in (
                ("receives", 1), ("unread", 1), ("races", 1), ("loops", 5), ("continues", 2), ("sagas", 1),
                ("replies", 1), ("sends", 1),
            ):  # fmt: skip
                await engine.send(f"open-{kind}-{number}", Go(go), key=str(go))
            await engine.send(f"open-loops-{number}", Go(-1), key="-1")
            await engine.send(f"open-loops-{number}", Go(4), key="4")  # again: it was sent to the old store
            await engine.send(f"open-parents-{number}-c", Go(1), key="1")
            await engine.publish(Pick(number), key=f"pick {number}")
        await engine.publish(Hear(2), key="hear 2")
        await engine.publish(Hear(1), key="hear 1")  # again
        asked = [engine.request(f"open-replies-{number}", Ask(number), key="ask") for number in range(self.each)]
        assert await asyncio.gather(*asked) == [number + 1 for number in range(self.each)]
        results: dict[str, Any] = {}
        for _, name in names(self.each):
            results[name] = await engine.result(name)
        return results

    def check(self, results: dict[str, Any]) -> None:
        """Each run said its end once, and the right one; nothing was done twice."""
        for kind, name in names(self.each):
            end = ENDS[kind].format(name=name, receives=name.replace("watches", "receives"))
            assert results[name] == f"{name} ends {end}", (name, results[name])
        lines = Effects(Path(self.path)).lines()
        twice = {line for line in lines if lines.count(line) > 1} if len(lines) < 2_000 else _twice(lines)
        assert not twice, sorted(twice)[:5]


def _twice(lines: list[str]) -> set[str]:
    seen: set[str] = set()
    return {line for line in lines if line in seen or seen.add(line)}  # type: ignore[func-returns-value]


async def told(handles: list[RunHandle[Any]]) -> list[str]:
    """Where those who wait for results in the old store are sent."""
    found: list[str] = []
    for handle in handles:
        with contextlib.suppress(TimeoutError):
            try:
                await handle.result()
            except RunMoved as moved:
                found.append(moved.location)
    return found
