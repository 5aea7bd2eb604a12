"""Daemon threads for synchronous steps.

`ThreadPoolExecutor` joins its threads when the interpreter exits, so one stuck step would hang the process; these are
simply left behind. A call that nobody waits for any more (timed out, cancelled) keeps its thread, because a thread
cannot be stopped, but no longer counts: the next attempt must not queue behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Carried(Exception):
    """What a step's code raised elsewhere, in a thread or a process. Futures and coroutines give some exceptions a
    meaning of their own (GeneratorExit, SystemExit, CancelledError), so none of these travels bare."""

    def __init__(self, error: BaseException, is_final: bool = False) -> None:
        super().__init__(error)
        self.error = error
        #: Whether another attempt could not help.
        self.is_final = is_final


class Call:
    """A call that waits for a thread, runs in one, or is over. `future` has its result, on the loop that asked."""

    __slots__ = ("_lock", "begun", "function", "future", "has_begun", "is_stuck", "is_withdrawn", "loop")

    def __init__(self, function: Callable[[], Any], begun: Callable[[], None] | None, lock: threading.Lock) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.function = function
        #: Called on the loop when a thread has begun with it.
        self.begun = begun
        self.has_begun = self.is_stuck = self.is_withdrawn = False
        self._lock = lock

    def withdraw(self) -> bool:
        """Never begin, if it is not too late for that: whether it is not."""
        with self._lock:
            if not self.has_begun:
                self.is_withdrawn = True
            return self.is_withdrawn


class DaemonThreads:
    """Runs calls in at most `size` threads, not counting those stuck in calls that were given up."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the three counters and the state of calls; held for moments only
        self._threads = 0
        self._stuck = 0
        self._unfinished = 0

    @property
    def size(self) -> int:
        return self._size

    def submit(self, function: Callable[[], Any], begun: Callable[[], None] | None = None) -> Call:
        """Have it called. `begun` is called on the running loop when a thread begins with it."""
        call = Call(function, begun, self._lock)
        call.future.add_done_callback(lambda _: self._given_up(call))
        with self._lock:
            self._unfinished += 1
            usable = self._threads - self._stuck
            start = usable < min(self._unfinished - self._stuck, self._size)
            if start:
                self._threads += 1
            number = self._threads
        self._calls.put(call)
        if start:
            threading.Thread(target=self._work, name=f"perdure-step-{number}", daemon=True).start()
        return call

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _given_up(self, call: Call) -> None:
        if not call.future.cancelled():
            return
        with self._lock:
            if not call.has_begun:
                call.is_withdrawn = True
            elif not call.is_stuck:
                call.is_stuck = True
                self._stuck += 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            with self._lock:
                call.has_begun = not call.is_withdrawn
            result, error = _carry_out(call) if call.has_begun else (None, None)
            with self._lock:
                self._unfinished -= 1
                surplus = call.is_stuck
                if surplus:  # another thread took its place: this one is no longer needed
                    self._stuck -= 1
                    self._threads -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                call.loop.call_soon_threadsafe(_settle, call.future, result, error)
            del call, result, error
            if surplus:
                return


def _carry_out(call: Call) -> tuple[Any, BaseException | None]:
    if call.begun is not None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            call.loop.call_soon_threadsafe(call.begun)
    try:
        return call.function(), None
    except BaseException as raised:  # no signal strikes here: it is the code's own, whatever it is
        return None, raised


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled or timed out: the late result is refused
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a Future refuses to carry it
        future.set_exception(RuntimeError("a step raised StopIteration"))
    else:
        future.set_exception(error if isinstance(error, Exception) else Carried(error))
