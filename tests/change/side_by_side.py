"""Two versions of one workflow, and workers that each know only one of them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from events.kinds import Note
from perdure import Engine, receive, step, workflow
from perdure.types import Workflow


@step
async def worker_pid() -> int:
    return os.getpid()


def define(version: str) -> Workflow[[], Any]:
    """Register one version in this process."""

    @workflow(name="rolling", version=version)
    async def rolling() -> list[Any]:
        first = await worker_pid()
        await receive(Note)
        return [version, first, await worker_pid()]

    return rolling


async def serve(database: str, version: str) -> None:
    """A worker of one release, until it is killed."""
    if version:
        define(version)
    async with Engine(database, sweep_interval=0.1):
        print("ready", flush=True)
        await asyncio.Event().wait()
