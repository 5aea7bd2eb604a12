"""Async generators in workflow code: used up, left early, left open."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kernel.kernel_kit import Drive
from perdure import event, receive, step, workflow
from support.lives import Lives, run_async

_closed: list[str] = []


@event
@dataclass
class NextPage:
    pass


@step
async def fetch_page(number: int) -> list[int]:
    return [number * 2, number * 2 + 1]


@step
async def close_cursor(label: str) -> str:
    return label


async def rows(label: str) -> AsyncIterator[int]:
    try:
        for number in range(3):
            for row in await fetch_page(number):
                yield row
    finally:
        await close_cursor(label)


@workflow
async def reads_all() -> list[int]:
    return [row async for row in rows("all")]


@workflow
async def stops_early() -> int:
    async for row in rows("early"):
        if row == 2:
            break
    return row + len(await fetch_page(9))


@workflow
async def stops_early_in_order() -> int:
    async with contextlib.aclosing(rows("in order")) as open_rows:
        async for row in open_rows:
            if row == 2:
                break
    return row + len(await fetch_page(9))


@workflow
async def waits_inside() -> list[int]:
    seen = []
    async for row in rows("inside"):
        seen.append(row)
        if row == 1:
            await receive(NextPage)
    return seen


def test_a_generator_that_is_used_up_is_durable(lives: Lives) -> None:
    """CONFORMANCE P1: steps inside an async generator, with a crash at every record."""
    assert run_async(lives.crash_at_every_record(reads_all)) == [0, 1, 2, 3, 4, 5]


def test_a_generator_closed_in_order_is_durable(lives: Lives) -> None:
    """CONFORMANCE P1: `aclosing` runs its cleanup at that point."""
    assert run_async(lives.crash_at_every_record(stops_early_in_order)) == 4


def test_leaving_a_generator_early_runs_its_cleanup_as_asyncio_does(lives: Lives) -> None:
    """FAULTS D29: `break` out of `async for`; the generator's `finally` with a step in it runs, once, recorded."""

    async def main() -> list[str]:
        async with lives.engine() as engine:
            assert await (await engine.start(stops_early(), id="run")).result() == 4
            return [entry.location for entry in await engine.admin.history("run")]

    locations = run_async(main())
    gc.collect()
    assert sum("close_cursor" in location for location in locations) <= 1
    assert run_async(lives.crash_at_every_record(stops_early)) == 4


def test_a_generator_open_at_eviction_asks_for_nothing() -> None:
    """FAULTS D29: closing a run closes its generators too; nothing is left to the garbage collector."""
    drive = Drive(waits_inside())
    drive.finish("fetch_page", [0, 1])
    assert drive.pending() == ["receive receive"]
    drive.close()
    assert drive.run.take_commands() == []
    del drive
    gc.collect()
