"""Garbage that a collection finds in the middle of a turn: what runs and hosts left behind in reference cycles.

Every piece runs code when it is finalised: a generator of a run wants a step of that run, a coroutine of the host sets
a timer. Whose turn it is when the collector comes must not decide whose step or timer that is.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

from perdure import step
from sim import programs


@step
async def release(owner: str) -> None:
    """What a generator's `finally` asks for. Which run it belongs to stands in its argument."""
    if programs.perform is None:
        raise AssertionError("no world is simulated")
    await programs.perform(owner, 0, 0.0)


async def _pages(owner: str) -> AsyncIterator[int]:
    try:
        yield 1
    finally:
        await release(owner)


async def leave_generator(owner: str) -> None:
    """In workflow code: one that was begun and is left in a cycle."""
    pages = _pages(owner)
    await anext(pages)
    cycle: list[Any] = [pages]
    cycle.append(cycle)


async def _wait_and_tidy_up() -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await asyncio.sleep(1.0)


def leave_coroutine() -> None:
    """In code of the host: the same of a coroutine that waits."""
    waits: Coroutine[Any, Any, None] = _wait_and_tidy_up()
    waits.send(None)
    cycle: list[Any] = [waits]
    cycle.append(cycle)


@contextlib.contextmanager
def collected_on_request() -> Iterator[None]:
    """The collector comes when the plan says so, and looks at nothing that is older than this world: what others left
    is not its affair, and it is quick."""
    hook, was_enabled = sys.unraisablehook, gc.isenabled()
    gc.disable()
    gc.freeze()
    sys.unraisablehook = lambda _: None  # coroutines that await when they are closed are reported so
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        sys.unraisablehook = hook
        if was_enabled:
            gc.enable()
