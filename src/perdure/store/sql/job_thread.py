"""A thread with a queue of jobs and one connection: what writers and readers of the stores have in common.

A job is a function that gets the session. Its outcome comes back as a plain asyncio future of the loop that
asked; outcomes of one round are handed over with one wake-up per loop, because waking a loop costs more than
most jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from perdure.errors import EngineNotOpen, StoreUnavailable

log = logging.getLogger("perdure.store")

#: How long a thread must have had nothing to do before it does what can wait.
IDLE_SECONDS: Final = 0.002
#: What a thread may need to end after its last word.
_LAST_MOMENT_SECONDS: Final = 1.0


T = TypeVar("T")


class Job(NamedTuple):
    function: Callable[..., Any]
    arguments: Sequence[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    #: What the thread said when the job was queued: see `JobThread.stamp`.
    stamp: int = 0

    def resolve(self, result: Any, error: BaseException | None) -> None:
        """On the loop's thread: hand the outcome to the caller."""
        if self.future.done():
            return  # the caller was cancelled; what it asked for happened all the same
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


#: A job's future with its result or its error.
Outcome: TypeAlias = tuple[Job, Any, BaseException | None]


class JobThread:
    """Runs jobs, in order, on its own thread. Subclasses say how a round of jobs is carried out, and with what."""

    def __init__(self, name: str, round_jobs_max: int) -> None:
        #: Held by the thread that uses the connection just now.
        self.using = threading.Lock()
        self._round_jobs_max = round_jobs_max
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        #: Whether there is something to do that had better wait until nothing else is: see `do_idle_task`.
        self.has_idle_task = False
        # A daemon: an interpreter that exits without `close` must not hang (FAULTS O25). What was not
        # committed by then was not acknowledged either.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._stopped: asyncio.Future[None] | None = None
        self._notify_stopped: Callable[[], object] | None = None

    def start(self) -> None:
        self._thread.start()

    def submit(self, function: Callable[..., Any], arguments: Sequence[Any]) -> asyncio.Future[Any]:
        """Queue a job. Only from a coroutine: the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(Job(function, arguments, future, loop, self.stamp()))
        return future

    def stamp(self) -> int:
        """Called when a job is queued, for those who refuse jobs that were queued before something happened."""
        return 0

    def ask_to_stop(self) -> asyncio.Future[None]:
        """Finish what was queued, then free the connection and the thread; the future says that it is done.

        No thread of the loop's executor waits for it: they may all be busy, and the interpreter waits for each of them
        when it exits, also for one that waits for a disk that hangs (tests/stores/test_sqlite_close.py).
        """
        if self._stopped is None:
            loop = asyncio.get_running_loop()
            self._stopped = stopped = loop.create_future()
            self._notify_stopped = lambda: loop.call_soon_threadsafe(_set_done, stopped)
            if self._thread.is_alive():
                self._queue.put(None)
            else:
                _set_done(stopped)
        return self._stopped

    async def stop(self) -> None:
        """Return when the thread has ended."""
        await self.ask_to_stop()
        self._thread.join(_LAST_MOMENT_SECONDS)

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        """One round. Must give an outcome for every job, and raise nothing."""
        raise NotImplementedError

    def after_round(self) -> None:
        """Called on the thread after each round, when its outcomes are on their way."""

    def do_idle_task(self) -> None:
        """Called on the thread when there is an idle task and no job has come for `IDLE_SECONDS`."""

    def finish(self) -> None:
        """Called once on the thread, after the last round."""

    def drop(self) -> None:
        """Forget a connection that cannot be trusted."""
        raise NotImplementedError

    # -- on the thread -----------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._serve()
        finally:
            if self._notify_stopped is not None:
                with contextlib.suppress(RuntimeError):  # that loop is closed: it no longer wants to know
                    self._notify_stopped()

    def _serve(self) -> None:
        open_for_jobs = True
        while open_for_jobs:
            jobs, open_for_jobs = self._gather()
            if jobs:
                settle(self._carry_out(jobs))
                self._guarded(self.after_round)
        with self.using:
            self.finish()
            self.drop()
        self._refuse_the_rest()

    def _carry_out(self, jobs: list[Job]) -> list[Outcome]:
        """`carry_out` raises nothing. If it does all the same, the callers hear of it, and the thread lives on:
        without it, every later call would wait for ever."""
        try:
            return self.carry_out(jobs)
        except BaseException as error:
            log.critical("a round of the store failed in an unforeseen way", exc_info=error)
            self.drop()
            failure = StoreUnavailable(f"the store failed in an unforeseen way: {type(error).__name__}: {error}.")
            return [(job, None, failure) for job in jobs]

    def _guarded(self, tidy_up: Callable[[], None]) -> None:
        try:
            tidy_up()
        except BaseException as error:
            log.critical("tidying up after a round of the store failed", exc_info=error)
            self.drop()

    def _gather(self) -> tuple[list[Job], bool]:
        """Wait for a job, then take along everything else that is there already."""
        jobs: list[Job] = []
        get = self._queue.get
        job = self._first_job()
        try:
            while job is not None:
                jobs.append(job)
                if len(jobs) >= self._round_jobs_max:
                    return jobs, True
                job = get(False)
        except queue.Empty:
            return jobs, True
        return jobs, False

    def _first_job(self) -> Job | None:
        if self.has_idle_task:
            try:
                return self._queue.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self.has_idle_task = False
                self._guarded(self.do_idle_task)
        return self._queue.get()

    def _refuse_the_rest(self) -> None:
        """Jobs that slipped in behind `stop` from another thread: say so, rather than never answer."""
        late: list[Outcome] = []
        try:
            while True:
                job = self._queue.get(False)
                if job is not None:
                    late.append((job, None, EngineNotOpen("the store is closed. Open it again first.")))
        except queue.Empty:
            settle(late)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def in_thread(function: Callable[[], T], discard: Callable[[T], object] = lambda result: None) -> T:
    """Call a function in a thread of its own, which nothing waits for if the program ends first. `discard`: gets the
    result if the caller was cancelled meanwhile, and nobody else can have it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    job = Job(function, (), future, loop)

    def work() -> None:
        try:
            result = function()
        except BaseException as error:
            settle([(job, None, error)])
            return
        try:
            loop.call_soon_threadsafe(hand_over, result)
        except RuntimeError:  # the loop is closed
            discard(result)

    def hand_over(result: T) -> None:
        if future.done():
            discard(result)
        else:
            future.set_result(result)

    threading.Thread(target=work, name="perdure-opening", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            discard(future.result())
        raise


def settle(outcomes: list[Outcome]) -> None:
    """Hand outcomes to their callers, with one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, its in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, its)
        except RuntimeError:
            log.debug("an event loop was closed before %d answers reached it", len(its))


def _resolve(outcomes: list[Outcome]) -> None:
    for job, result, error in outcomes:
        job.resolve(result, error)
