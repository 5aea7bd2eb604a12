"""Coroutines of several steps each, run concurrently, survive a crash at every record."""

from __future__ import annotations

import asyncio

from perdure import step, workflow
from support.lives import Lives, run_async


@step
async def add(number: int, more: int) -> int:
    return number + more


async def several(start: int) -> int:
    total = start
    for more in range(3):
        total = await add(total, more)
    return total


@workflow
async def gathered() -> list[int]:
    return list(await asyncio.gather(*(several(start) for start in range(4))))


@workflow
async def grouped() -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(several(start)) for start in range(4)]
    return [task.result() for task in tasks]


def test_gathered_coroutines_survive_a_crash_at_every_record(lives: Lives) -> None:
    """CONFORMANCE P4: the interleaving of gathered coroutines is rebuilt from the journal."""
    assert run_async(lives.crash_at_every_record(gathered)) == [3, 4, 5, 6]


def test_grouped_coroutines_survive_a_crash_at_every_record(lives: Lives) -> None:
    """CONFORMANCE P4, with a TaskGroup."""
    assert run_async(lives.crash_at_every_record(grouped)) == [3, 4, 5, 6]
