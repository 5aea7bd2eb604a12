"""Worker processes of the demo: `perdure worker`, started, killed, stopped and asked to drain, as people do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from perdure.cli.demo_orders import LOG_VARIABLE

#: How long anything may take before the demo gives up and says so.
PATIENCE_SECONDS = 20.0


def traces_of(directory: Path) -> str:
    """The file that the steps of all workers write to."""
    return str(directory / "steps.log")


class WorkerProcess:
    """`perdure worker` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, number: int, began: float) -> None:
        self._process = process
        self._reading: asyncio.Task[None] | None = None
        self.number = number
        self.began = began
        self.ready = 0.0
        #: What it logged, in its own words.
        self.said: list[str] = []

    @classmethod
    async def start(
        cls, directory: Path, number: int, store: str, settings: Mapping[str, str] | None = None
    ) -> WorkerProcess:
        """The store goes by the environment: a command line is seen by everybody on the machine, with its password."""
        began = time.time()
        with open(directory / f"worker-{number}.log", "wb") as log:  # noqa: ASYNC230  # a local file, once
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "perdure", "worker", "--json", "--app", "perdure.cli.demo_orders",
                "--name", f"worker-{number}",
                stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, "PERDURE_STORE": store, LOG_VARIABLE: traces_of(directory), **(settings or {})},
            )  # fmt: skip
        return cls(process, number, began)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait_ready(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while document := await self._read():
                if document.get("event") == "ready":
                    self.ready = time.time()
                    self._reading = asyncio.create_task(self._keep_reading())
                    return
        raise RuntimeError(f"worker {self.number} of the demo ended before it was ready{self._last_words()}")

    async def kill(self) -> float:
        """SIGKILL: no handler runs, nothing is flushed. Returns when it was sent."""
        at = time.time()
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        return at

    async def suspend(self) -> float:
        """SIGSTOP: it stands still, with its connections open. Returns when it was sent, once it stands still."""
        at = time.time()
        self._process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
        return at

    def go_on(self) -> float:
        """SIGCONT: it goes on in the middle of what it did, and does not know that time has passed."""
        at = time.time()
        self._process.send_signal(signal.SIGCONT)
        return at

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._process.wait()

    async def make_sure_it_is_gone(self) -> None:
        if self._process.returncode is None:
            await self.kill()
        if self._reading is not None:
            await self._reading

    # -- what it says ------------------------------------------------------------------------------------------

    async def _read(self) -> dict[str, Any] | None:
        """The next line of its JSON; None: it has ended."""
        stdout = self._process.stdout
        line = await stdout.readline() if stdout is not None else b""
        if not line:
            return None
        document: dict[str, Any] = msgspec.json.decode(line)
        if document.get("event") == "log":
            self.said.append(str(document.get("message")))
        return document

    async def _keep_reading(self) -> None:
        while await self._read() is not None:
            pass

    def _last_words(self) -> str:
        return f": {self.said[-1]}" if self.said else "; its log is kept"
