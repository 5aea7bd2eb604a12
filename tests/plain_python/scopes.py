"""Workflows that use task groups, cancel scopes and streams of anyio, with what each of them returns."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio

from events.kinds import Note, Stop
from perdure import branch, receive, saga, sleep, step, workflow
from perdure.types import Invocation


@step
async def scoped(number: int) -> int:
    return number


@step
async def unscoped(number: int, *_done: Any) -> int:
    return -number


async def member(number: int, seen: list[str]) -> None:
    seen.append(f"begin {await scoped(number)}")
    await anyio.sleep(0.01 * number)
    seen.append(f"end {await scoped(number)}")


@workflow
async def in_a_group() -> list[str]:
    seen: list[str] = []
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(member, number, seen)
    return seen


@workflow
async def moves_on() -> list[bool]:
    with anyio.move_on_after(1) as late:
        await sleep(100)
    with anyio.move_on_after(100) as in_time:
        await scoped(1)
    try:
        with anyio.fail_after(1):
            await asyncio.sleep(50)
    except TimeoutError:
        await scoped(2)
    return [late.cancelled_caught, in_time.cancelled_caught]


@workflow
async def cancels_its_group() -> list[str]:
    seen: list[str] = []

    async def patient(number: int) -> None:
        try:
            await scoped(number)
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                seen.append(f"cleaned up {await scoped(number + 10)}")
            raise

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(patient, number)
        await anyio.sleep(5)
        group.cancel_scope.cancel()
    return seen


@workflow
async def fails_in_a_group() -> list[str]:
    seen: list[str] = []

    async def bad() -> None:
        await scoped(1)
        raise ValueError("bad")

    async def other() -> None:
        try:
            await anyio.sleep(100)
        finally:
            with anyio.move_on_after(2, shield=True):
                seen.append(f"cleaned up {await scoped(7)}")

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(bad)
            group.start_soon(other)
    except* ValueError as errors:
        seen.append(str(errors.exceptions[0]))
    return seen


@workflow
async def scopes_in_scopes() -> list[str]:
    seen: list[str] = []

    async def inner(name: str) -> None:
        with anyio.move_on_after(3):
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 100)
                group.start_soon(member, 1, seen)
        seen.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(inner, "a")
        group.start_soon(inner, "b")
    return seen


@workflow
async def through_a_stream() -> list[int]:
    send, receiver = anyio.create_memory_object_stream[int](2)

    async def produce() -> None:
        async with send:
            for number in range(4):
                await send.send(await scoped(number))

    async with anyio.create_task_group() as group:
        group.start_soon(produce)
        async with receiver:
            return [item async for item in receiver]


@workflow
async def undoes_a_saga_in_a_scope() -> str:
    """The scope cancels its tasks again and again, until they have ended; a saga first undoes what was done."""

    async def work() -> None:
        async with saga() as undoing:
            await undoing.do(scoped, 1, undo=unscoped)
            await sleep(1000)

    with anyio.move_on_after(1) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
    return f"undone {scope.cancelled_caught}"


@workflow
async def holds_out_in_a_scope() -> int:
    """A task that waits on in spite of being cancelled, as the cleanup of many libraries does."""
    work = asyncio.ensure_future(scoped(5))
    with anyio.CancelScope() as scope:
        scope.cancel()
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                continue
    return work.result()


@workflow
async def leaves_a_group() -> str:
    """The workflow returns while a group of a task that it left is still at work, and swallows its cancellation."""

    async def stubborn() -> None:
        while True:
            try:
                await scoped(7)
                await sleep(500)
            except BaseException:
                try:
                    await scoped(8)
                except BaseException:
                    continue

    async def background() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(stubborn)

    left = asyncio.create_task(background())
    await scoped(1)
    return f"done {left.done()}"


@workflow
async def waits_in_a_group() -> list[str]:
    """What the tests of eviction and drain stop in the middle."""
    seen: list[str] = []
    heard = anyio.Event()

    async def listen(number: int) -> None:
        try:
            with anyio.move_on_after(1000):
                seen.append(f"begin {await scoped(number)}")
                seen.append((await receive(Note)).text)
                heard.set()
        finally:
            with anyio.CancelScope(shield=True):
                seen.append(f"end {await scoped(number + 100)}")

    async with branch("agent"), anyio.create_task_group() as group:
        for number in range(2):
            group.start_soon(listen, number)
        await heard.wait()
        await receive(Stop)
        group.cancel_scope.cancel()
    return seen


WORKFLOWS: dict[str, tuple[Invocation[Any], Any]] = {
    "a group": (in_a_group(), ["begin 0", "begin 1", "begin 2", "end 0", "end 1", "end 2"]),
    "move_on_after": (moves_on(), [True, False]),
    "cancel a group": (cancels_its_group(), ["cleaned up 10", "cleaned up 11", "cleaned up 12"]),
    "fail in a group": (fails_in_a_group(), ["cleaned up 7", "bad"]),
    "scopes in scopes": (scopes_in_scopes(), ["begin 1", "begin 1", "end 1", "end 1", "a", "b"]),
    "a stream": (through_a_stream(), [0, 1, 2, 3]),
    "a saga": (undoes_a_saga_in_a_scope(), "undone True"),
    "a task that holds out": (holds_out_in_a_scope(), 5),
    "a group left behind": (leaves_a_group(), "done False"),
}
