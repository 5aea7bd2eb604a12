"""Processes that kill themselves at a chosen point: around a store call, around a record, inside a step."""

from __future__ import annotations

from pathlib import Path

from events.kinds import Note, Tick
from perdure import Engine, continue_as, current_step, info, receive, send, sleep, step, workflow
from perdure.store.sqlite import SQLiteStore
from support.effects import Effects
from support.faulty_stores import DisturbedStore, always, answered, die, holds


def dying(database: str, point: str, before: str) -> DisturbedStore:
    """Dies around the first call of `point`, or around the first commit that holds a record of that kind."""
    store, is_before = DisturbedStore(SQLiteStore(database)), before == "True"
    if hasattr(SQLiteStore, point):
        # A claim that found nothing is not the point yet.
        store.around(point, die, answered if point == "claim" and not is_before else always, before=is_before)
    else:
        store.around("commit", die, holds(point), before=is_before)
    return store


@step
async def leave_mark(path: str, text: str) -> str:
    Effects(Path(path)).add(f"{text} {current_step().idempotency_key}")
    return text


@step(initial_delay=0.01)
async def leave_mark_on_second_try(path: str, text: str) -> str:
    Effects(Path(path)).add(f"{text} {current_step().idempotency_key}")
    if current_step().attempt == 1:
        raise LookupError("first try")
    return text


@step
async def die_in_the_body(path: str, where: str) -> str:
    """Dies once: the file beside the effects says that it has."""
    died = Path(f"{path}.died")
    if where == "at its start" and not died.exists():
        died.touch()
        die()
    Effects(Path(path)).add(f"body {current_step().idempotency_key}")
    if where == "at its end" and not died.exists():
        died.touch()
        die()
    return where


@workflow
async def marking_child(path: str) -> str:
    return await leave_mark(path, "child")


@workflow
async def long_walk(path: str) -> list[str]:
    """Everything that leaves a record of its own kind."""
    first = await leave_mark(path, "first")
    second = await leave_mark_on_second_try(path, "second")
    await sleep(0.01)
    note = (await receive(Note)).text
    await send(info().id, Tick(1))
    tick = str((await receive(Tick)).number)
    child = await marking_child(path)
    await continue_as(end_of_the_walk(path, [first, second, note, tick, child]))
    raise AssertionError


@workflow
async def end_of_the_walk(path: str, so_far: list[str]) -> list[str]:
    return [*so_far, await leave_mark(path, "last")]


WALKED = ["first", "second", "note", "1", "child", "last"]


@workflow
async def one_step(path: str, where: str) -> str:
    return await die_in_the_body(path, where)


@workflow
async def wait_for_note() -> str:
    return (await receive(Note)).text


async def walk(database: str, effects: str, point: str, before: str) -> None:
    """Start the walk (or find it) and drive it to its end, unless it dies first."""
    store = dying(database, point, before)
    async with Engine(store, sweep_interval=0.02) as engine:
        await engine.start(long_walk(effects), id="run")
        print("started", flush=True)
        await engine.send("run", Note("note"), key="note")
        await engine.result("run")
        print("finished", flush=True)


async def claim_and_walk(database: str, point: str, before: str) -> None:
    """Only a worker: whatever it runs, it has claimed."""
    store = dying(database, point, before)
    async with Engine(store, sweep_interval=0.02) as engine:
        print("ready", flush=True)
        await engine.result("run")
        print("finished", flush=True)


async def call(database: str, what: str, before: str) -> None:
    """A client that dies around one call."""
    points = {"start": "create", "send": "append", "cancel": "request_cancel"}
    store = dying(database, points[what], before)
    async with Engine(store, worker=False) as engine:
        if what == "start":
            await engine.start(wait_for_note(), id="run")
        elif what == "send":
            await engine.send("run", Note("note"), key="note")
        else:
            await engine.cancel("run", "asked by a dying client")
        print("acknowledged", flush=True)


async def run_step(database: str, effects: str, where: str) -> None:
    async with Engine(database, sweep_interval=0.02) as engine:
        await (await engine.start(one_step(effects, where), id="run")).result()
