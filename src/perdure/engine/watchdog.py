"""A thread that notices workflow code which keeps the worker: reports its stack, and in the end abandons the turn.

It looks at the worker's thread from outside, so a turn pays nothing for it. While nothing happens it waits without
end; the worker says when it takes turns: `with watchdog: ...`.

Code that computes without end (`while True: pass`) is stopped by an exception that is raised in it from here. Such an
exception arrives a little later, and must not arrive in the worker's own code. So the loop of the run is told first:
on the way out of a turn it waits until the exception has been thrown and catches it, and raises
`Spinning` in its place (`_absorb`). A call into C code that never returns cannot be stopped; it is only reported.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import traceback
from types import FrameType
from typing import NoReturn

from perdure.errors import Spinning
from perdure.kernel.eventloop.hosting import TurnMonitor
from perdure.kernel.eventloop.loop import RunLoop
from perdure.kernel.guard import module_of, workflow_frames

logger = logging.getLogger("perdure.watchdog")

#: Looks taken in the time after which a turn is reported.
_LOOKS = 4
#: Between tries to stop code that catches every exception.
_AGAIN_SECONDS = 1.0
#: Frames of the stack that are shown.
_FRAMES_MAX = 30
_DEBUGGERS = frozenset({"bdb", "pdb", "debugpy", "pydevd", "_pydevd_bundle"})


class TurnAbandoned(BaseException):
    """Raised in workflow code that has kept the worker for too long. Not an `Exception`: that is often caught."""

    def __str__(self) -> str:
        return "workflow code kept the worker for too long in one turn, which was abandoned; the log shows where."


class Watchdog:
    """Watches the thread it is made on, whose turns are seen at `monitor`. `warn` and `limit` are seconds; 0: never."""

    def __init__(self, monitor: TurnMonitor, warn: float, limit: float) -> None:
        self._monitor = monitor
        self._warn = warn
        self._limit = limit
        self._interval = min(seconds for seconds in (warn, limit, _AGAIN_SECONDS * _LOOKS) if seconds) / _LOOKS
        self._watched = threading.get_ident()
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        #: How often turns were taken, and whether that goes on at this moment.
        self._beats = 0
        self._at_work = False
        #: Whether the thread waits without end. True at first, so that the first turn starts it.
        self.idle = bool(warn or limit)
        self._closed = False
        #: The turn that is under way: its loop and the record it began with, since when, and what was done about it.
        self._turn: tuple[RunLoop, int] | None = None
        self._since = 0.0
        self._reported = self._abandoned = False
        self._strike_at = 0.0
        self._striking = False

    def __enter__(self) -> None:
        """Turns are about to be taken."""
        self._beats += 1
        self._at_work = True
        if self.idle:
            self._awake()

    def __exit__(self, *_: object) -> None:
        self._at_work = False

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _awake(self) -> None:
        if self._closed:
            return
        if self._thread is None:
            self.idle = False
            self._start()
        else:
            self._wake.set()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="perdure-watchdog", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # a limit of threads or of memory; turns are taken all the same
            self._closed = True
            logger.warning("turns are not watched: the watchdog's thread cannot be started (%s).", error)

    # -- on its own thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            beats = self._beats
            self._wake.wait(self._interval)
            if not self._look() and not self._at_work and beats == self._beats:
                self.idle = True
                # Only now is the last word: what began before this line is seen here, what begins later sets the event.
                if beats == self._beats and not self._closed:
                    self._wake.wait()
                self.idle = False
            # At the very end, so that the turn that woke it is not looked at before an interval has passed.
            self._wake.clear()

    def _look(self) -> bool:
        """Whether a turn is under way."""
        loop = self._monitor.loop
        if loop is None or loop.owner is None:
            self._turn = None
            return False
        now = time.monotonic()
        turn = (loop, getattr(loop.owner, "last_seq", 0))
        if self._turn is None or self._turn[0] is not loop or self._turn[1] != turn[1]:
            self._turn, self._since = turn, now
            self._reported = self._abandoned = False
            self._strike_at = now + self._limit
            return True
        held = now - self._since
        frame = _frame_of(self._watched)
        if _is_debugged(frame):
            self._since = now
        elif self._limit and now >= self._strike_at:
            self._strike_at = now + _AGAIN_SECONDS
            self._strike(loop, turn[1], held)
        elif self._warn and held >= self._warn and not self._reported:
            self._reported = True
            logger.warning(
                "run %r has kept the worker for %.1f seconds in one turn; every other run waits. Move what takes long "
                "into a step. Its code is at\n%s",
                getattr(loop.owner, "id", "?"),
                held,
                _stack(frame),
            )
        return True

    def _strike(self, loop: RunLoop, seq: int, held: float) -> None:
        if not loop.running:
            return
        run_id = getattr(loop.owner, "id", "?")
        stack = _stack(_frame_of(self._watched))
        reason = (
            f"workflow code kept the worker for {held:.0f} seconds in one turn without waiting for anything, so the "
            f"turn was abandoned. Look for a loop without an end, or move the work into a step. It was at\n{stack}"
        )
        self._striking = True
        try:
            loop.overdue = lambda: self._absorb(reason)
            # Looked at again, now that leaving the turn waits for us: what was seen before may have ended meanwhile.
            if self._monitor.loop is loop and loop.running and getattr(loop.owner, "last_seq", 0) == seq:
                loop.stopped = True  # nothing more of this run after the callback that is running
                _throw(self._watched)
                if not self._abandoned:
                    self._abandoned = True
                    logger.warning("the turn of run %r is abandoned after %.1f seconds", run_id, held)
            else:
                loop.overdue = None
        finally:
            self._striking = False

    # -- on the watched thread ---------------------------------------------------------------------------------------

    def _absorb(self, reason: str) -> NoReturn:
        """At the end of a turn that was given up on: make sure that nothing of it arrives later.

        What may still be under way is not taken back. CPython would go on looking for it before every loop and call,
        and stand still as soon as somebody traces the thread. It is thrown once more instead, and caught here
        (tests/guard/test_watchdog.py::test_a_debugger_after_a_turn_was_abandoned).
        """
        thrown = False
        while True:
            try:
                while self._striking:
                    time.sleep(0.001)
                if not thrown:
                    thrown = True
                    _throw(self._watched)
                while True:
                    pass
            except TurnAbandoned:
                if thrown:
                    break
        raise Spinning(reason)


def _throw(thread: int) -> None:
    """Raise `TurnAbandoned` in a thread, at one of its next instructions."""
    import ctypes  # for this rare case only: it is slow to import

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TurnAbandoned))


def _frame_of(thread: int) -> FrameType | None:
    """What a thread executes now.

    CPython 3.11 holds a lock of its own while it makes the frames, and needs that lock again if the garbage collector
    runs meanwhile and frees a `threading.local`: the process stands still for good. So the collector waits
    (tests/guard/test_watchdog_and_collector.py).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        if was_enabled:
            gc.enable()


def _is_debugged(frame: FrameType | None) -> bool:
    """Somebody looks at the code line by line and may take all day."""
    return any(module_of(one).partition(".")[0] in _DEBUGGERS for one in workflow_frames(frame))


def _stack(frame: FrameType | None) -> str:
    """Files, lines and source, without any value."""
    frames = [(one, one.f_lineno) for one in workflow_frames(frame)][:_FRAMES_MAX]
    return "".join(traceback.StackSummary.extract(iter(reversed(frames))).format()).rstrip()
