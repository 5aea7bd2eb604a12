"""Processes beside the one that measures, told what to do line by line.

    processes = [Beside("bench.adapters.perdure_fleet") for _ in range(4)]
    answer = await processes[0].ask(job, do="open")

A process imports everything, then answers each line with one: `{"do": ...}` is the name of one of its functions. It
ends with its input, so that none outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from bench.wire import Job

Acts = Mapping[str, Callable[..., Awaitable[Any]]]
#: A line with a thousand moments in it.
_LINE_BYTES_MAX = 2**24


class Beside:
    """A process that runs `serve_beside` of a module."""

    def __init__(self, module: str) -> None:
        self._module = module

    async def start(self) -> Beside:
        command = [sys.executable, "-m", self._module, "--beside"]
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=_LINE_BYTES_MAX
        )
        assert await self.heard() == "ready"
        return self

    async def ask(self, job: Job, do: str, **more: Any) -> Any:
        self.tell(job, do, **more)
        return await self.heard()

    def tell(self, job: Job, do: str, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps({"job": asdict(job), "do": do, "more": more}) + "\n").encode())

    async def heard(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process of {self._module} ended")
        return json.loads(line)["said"]

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def serve_beside(acts: Acts) -> None:
    """The other side: do what is asked until the input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    say("ready")
    while line := await lines.readline():
        asked = json.loads(line)
        say(await acts[asked["do"]](Job(**asked["job"]), **asked["more"]))


def say(what: Any) -> None:
    os.write(1, (json.dumps({"said": what}) + "\n").encode())
