"""Texts with half a character (a lone surrogate), which no store on a disk can hold: refused with `BadArgument` where
they tell one thing from another, written out with escapes where they are for people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Engine, cancel, event, receive, send, step, workflow
from perdure.errors import BadArgument, BadDefinition, RunParked
from support.lives import Lives, run_async, until

HALF = "caf\udce9"  # what os.fsdecode makes of b"caf\xe9"
ESCAPED = "caf\\udce9"


@event
@dataclass
class Name:
    text: str


@step
async def same(number: int) -> int:
    return number


@workflow
async def waits() -> str:
    return (await receive(Name)).text


@workflow
async def picky() -> str:
    def match(found: Name) -> bool:
        raise ValueError(f"not a name: {found.text}")

    return (await receive(Name, match=match)).text


@workflow
async def counts(number: int) -> int:
    for _ in range(5):
        number += await same(1)
    return number


@workflow
async def sends_with_a_bad_key() -> str:
    await same(1)
    try:
        await send("target", Name("x"), key=HALF)
    except BadArgument as error:
        return str(error)
    return "sent"


@workflow
async def cancels_with_a_bad_reason() -> bool:
    return await cancel("target", HALF)


REFUSED: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "send key": lambda engine: engine.send("target", Name("x"), key=HALF),
    "publish key": lambda engine: engine.publish(Name("x"), key=HALF),
    "request key": lambda engine: engine.request("target", Name("x"), key=HALF),
    "list workflow": lambda engine: engine.list(workflow=HALF),
    "list prefix": lambda engine: engine.list(id_prefix=HALF),
    "list after": lambda engine: engine.list(after=HALF),
    "prune workflow": lambda engine: engine.admin.prune(1.0, workflow=HALF),
    "published type": lambda engine: engine.admin.published(type=HALF),
    "dead letters type": lambda engine: engine.admin.dead_letters(type=HALF),
    "check workflow": lambda engine: anext(engine.admin.check(HALF)),
    "start id": lambda engine: engine.start(waits(), id=HALF),
    "fork id": lambda engine: engine.admin.fork("target", id=HALF),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_tells_things_apart_is_refused(lives: Lives, name: str) -> None:
    """On every store alike, by every call that takes such a text."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(waits(), id="target")
            with pytest.raises(BadArgument, match="half a character"):
                await REFUSED[name](engine)

    run_async(main())


@pytest.mark.parametrize("define", [
    lambda function: workflow(name=HALF)(function),
    lambda function: workflow(version=HALF)(function),
    lambda function: step(name=HALF)(function),
    lambda function: same.options(name=HALF),
])  # fmt: skip
def test_names_and_versions_are_refused(define: Callable[[Any], Any]) -> None:
    async def function() -> None: ...

    with pytest.raises(BadDefinition):
        define(function)


def test_a_key_is_refused_in_workflow_code_and_the_neighbours_go_on(lives: Lives) -> None:
    """The verb raises where it is called; runs that share its commits are not touched."""

    async def main() -> None:
        async with lives.engine() as engine:
            await engine.start(waits(), id="target")
            starts = [engine.start(counts(n), id=f"n{n}") for n in range(20)]
            odd, *others = await asyncio.gather(engine.start(sends_with_a_bad_key(), id="odd"), *starts)
            assert [await run.result(timeout=20) for run in others] == [n + 5 for n in range(20)]
            assert "half a character" in await odd.result(timeout=20)

    run_async(main())


def test_reasons_are_written_out(lives: Lives) -> None:
    """A line for people is kept readable: of cancelling, of pausing, of terminating, also from workflow code."""

    async def main() -> None:
        async with lives.engine() as engine:
            paused = await engine.start(waits(), id="paused")
            await engine.admin.pause("paused", HALF)
            assert (await paused.status()).reason == f"paused by {ESCAPED}"
            await engine.admin.terminate("paused", HALF)
            assert ESCAPED in repr(list(await engine.admin.history("paused"))[-1]).replace("\\\\", "\\")
            target = await engine.start(waits(), id="target")
            await (await engine.start(cancels_with_a_bad_reason())).result(timeout=20)
            with pytest.raises(Exception, match=r"was cancelled: caf.udce9"):
                await target.result(timeout=20)
            other = await engine.start(waits(), id="other")
            await other.cancel(HALF)
            with pytest.raises(Exception, match=r"was cancelled: caf.udce9"):
                await other.result(timeout=20)

    run_async(main())


def test_a_run_is_parked_for_a_reason_with_half_a_character(lives: Lives) -> None:
    """The reason comes from the code's own exception: the run is parked with it, and does not hang."""

    async def main() -> None:
        async with lives.engine() as engine:
            run = await engine.start(picky(), id="r")
            await run.send(Name(HALF))
            with pytest.raises(RunParked, match=r"not a name: caf.udce9"):
                await run.result(timeout=20)
            await until(lambda: _is_free(engine))

    async def _is_free(engine: Engine) -> bool:
        return not await engine.store.held(engine.worker.id)  # type: ignore[union-attr]

    run_async(main())
