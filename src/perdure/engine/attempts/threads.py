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
from queue import Empty, SimpleQueue
from typing import Any

from perdure.given import an_instance


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

    __slots__ = (
        "_lock",
        "begun",
        "function",
        "future",
        "has_begun",
        "is_stuck",
        "is_withdrawn",
        "loop",
        "over",
        "stop",
    )

    def __init__(self, function: Callable[[], Any], begun: Callable[[], None] | None, lock: threading.Lock) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.function = function
        #: Called on the loop when a thread has begun with it.
        self.begun = begun
        self.has_begun = self.is_stuck = self.is_withdrawn = False
        #: How to end it, if it can be ended.
        self.stop: Callable[[], None] | None = None
        #: Done when the thread is through with it, whatever became of `future`. Only of calls that can be ended.
        self.over: asyncio.Future[None] | None = None
        self._lock = lock

    def tell_begun(self) -> None:
        if self.begun is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.begun)

    def withdraw(self) -> bool:
        """Never begin, if it is not too late for that: whether it is not."""
        with self._lock:
            if not self.has_begun:
                self.is_withdrawn = True
            return self.is_withdrawn


class DaemonThreads:
    """Runs calls in at most `size` threads, not counting those stuck in calls that were given up."""

    def __init__(self, size: int, idle_seconds: float | None = None) -> None:
        self._size = size
        #: When a thread without work ends; None: never.
        self._idle_seconds = idle_seconds
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards the three counters and the state of calls; held for moments only
        self._threads = 0
        #: Those that have not ended, stuck ones included; and where to say that none is left.
        self._alive = 0
        self._gone: asyncio.Future[None] | None = None
        self._stuck = 0
        self._unfinished = 0

    @property
    def size(self) -> int:
        return self._size

    def submit(self, function: Callable[[], Any], begun: Callable[[], None] | None = None) -> Call:
        """Have it called. `begun` is called on the running loop when a thread begins with it."""
        return self._put(Call(function, begun, self._lock))

    def _put(self, call: Call) -> Call:
        call.future.add_done_callback(lambda _: self._given_up(call))
        with self._lock:
            self._unfinished += 1
            usable = self._threads - self._stuck
            start = usable < min(self._unfinished - self._stuck, self._size)
            if start:
                self._threads += 1
                self._alive += 1
            number = self._threads
        self._calls.put(call)
        if start:
            self._start_thread(number, call)
        return call

    def _start_thread(self, number: int, call: Call) -> None:
        try:
            threading.Thread(target=self._work, name=f"perdure-step-{number}", daemon=True).start()
        except RuntimeError:  # the system has no more threads: those that there are get to it
            with self._lock:
                self._threads -= 1
                self._alive -= 1
                if self._threads > self._stuck:
                    return
                call.is_withdrawn = True
            raise

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        with self._lock:
            for _ in range(self._threads):
                self._calls.put(None)

    def gone(self) -> asyncio.Future[None]:
        """Done when the last thread has ended."""
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._gone = gone
            if not self._alive:
                gone.set_result(None)
        return gone

    def _given_up(self, call: Call) -> None:
        if not call.future.cancelled():
            return
        with self._lock:
            if not call.has_begun:
                call.is_withdrawn = True
            elif not call.is_stuck:
                call.is_stuck = True
                self._stuck += 1
                if call.stop is not None:
                    call.stop()

    def _next(self) -> Call | None:
        """What to do next; None: this thread has to end."""
        while True:
            try:
                return self._calls.get(timeout=self._idle_seconds)
            except Empty:
                with self._lock:
                    # Not while a call may be on its way into the queue: it counts on the threads that there are.
                    if self._unfinished == self._stuck:
                        self._threads -= 1
                        return None

    def _begin(self, call: Call) -> bool:
        """Whether the call is still wanted; if so it has begun."""
        with self._lock:
            call.has_begun = not call.is_withdrawn
        return call.has_begun

    def _carry_out(self, call: Call) -> Any:
        if not self._begin(call):
            return None
        call.tell_begun()
        return call.function()

    def _end(self) -> None:
        """This thread ends."""

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            self._end()
            with self._lock:
                self._alive -= 1
                gone = None if self._alive else self._gone
            if gone is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    gone.get_loop().call_soon_threadsafe(_set, gone)

    def _serve(self) -> None:
        while (call := self._next()) is not None:
            result, error = None, None
            try:
                result = self._carry_out(call)
            except BaseException as raised:  # no signal strikes here: it is the code's own, whatever it is
                error = raised
            with self._lock:
                self._unfinished -= 1
                surplus = call.is_stuck
                if surplus:  # another thread took its place: this one is no longer needed
                    self._stuck -= 1
                    self._threads -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                call.loop.call_soon_threadsafe(_settle, call, result, error)
            del call, result, error
            if surplus:
                return


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _settle(call: Call, result: Any, error: BaseException | None) -> None:
    future = call.future
    if call.over is not None:
        _set(call.over)
    if future.done():  # cancelled or timed out: the late result is refused
        return
    if error is None:
        future.set_result(result)
    elif an_instance(error, StopIteration):  # a Future refuses to carry it
        future.set_exception(RuntimeError("a step raised StopIteration"))
    else:
        future.set_exception(error if an_instance(error, Exception) else Carried(error))
