"""Daemon threads for synchronous steps.

`ThreadPoolExecutor` joins its threads when the interpreter exits, so one stuck step would hang the process;
these are simply left behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple


class _Call(NamedTuple):
    function: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class DaemonThreads:
    """Runs calls in at most `size` threads, started as they are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """A future of the call's result, on the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        future.add_done_callback(self._done)
        if self._busy > self._threads and self._threads < self._size:
            self._threads += 1
            threading.Thread(target=self._work, name=f"perdure-step-{self._threads}", daemon=True).start()
        self._calls.put(_Call(function, future, loop))
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _done(self, _: asyncio.Future[Any]) -> None:
        self._busy -= 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                result, error = call.function(), None
            except BaseException as raised:  # handed to the loop as it is, SystemExit included
                result, error = None, raised
            try:
                call.loop.call_soon_threadsafe(_settle, call.future, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass
            del call, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled or timed out: the late result is refused
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a Future refuses to carry it
        future.set_exception(RuntimeError("a step raised StopIteration"))
    else:
        future.set_exception(error)
