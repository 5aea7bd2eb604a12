"""The supervisor of `perdure worker --processes N`: starts workers, and others in the place of those that die.

Small on purpose: no event loop, no connection to the store, no code of the user's. One thread decides; others only put
into its queue what happened (`children`). A child that dies is started again after a growing pause; one that ends for a
reason which a restart does not help is not, and if no child is left, the supervisor ends with its code.

    SIGTERM, SIGINT   all children drain; a second signal ends them at once
    SIGHUP            rolling restart: one child after another is replaced by a process that loads the code anew. The
                      old one leaves only when the new one is ready; a new one that does not become ready ends the
                      rolling restart, and the old ones stay
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from perdure import limits
from perdure.cli.children import Child, Ended, Happening, Signalled, Told
from perdure.cli.exits import ExitCode
from perdure.cli.relay import Relay
from perdure.cli.restarts import Backoff, exit_code_of, is_incurable, manner

#: The longest sleep of the thread that decides. Nothing depends on it; signals and children wake it.
_LOOK_SECONDS = 1.0


class _Place:
    """One of the N: the child that is there, or when the next one comes."""

    def __init__(self, process: int, rng: random.Random) -> None:
        self.process = process
        self.child: Child | None = None
        self.backoff = Backoff(rng)
        #: When a child is started again here.
        self.restart_at: float | None = None
        #: With which code the last one ended, if a restart would not help.
        self.given_up: int | None = None


class Supervisor:
    """`arguments_of` and `environment`: what the child with a number is started with. `leaving_seconds`: what children
    may take to leave in order."""

    def __init__(
        self,
        processes: int,
        arguments_of: Callable[[int], Sequence[str]],
        environment: Mapping[str, str],
        leaving_seconds: float,
        relay: Relay,
    ) -> None:
        rng = random.Random()
        self._places = [_Place(number, rng) for number in range(1, processes + 1)]
        self._arguments_of = arguments_of
        self._environment = environment
        self._leaving_seconds = leaving_seconds + limits.CHILD_LEAVING_SECONDS
        self._relay = relay
        self._happenings: queue.SimpleQueue[Happening] = queue.SimpleQueue()
        #: Every process that has not ended.
        self._living: set[Child] = set()
        #: The signal that told to stop.
        self._stopping: int | None = None
        #: The second one.
        self._killed_by: int | None = None
        self._left_badly = 0
        #: Only when the first child is ready are the others started: a mistake is then reported once, and a schema is
        #: migrated by one.
        self._has_begun = False
        #: Places that a rolling restart still has to do; the new child of the one that it is at, and until when that
        #: has to be ready; the old one that leaves.
        self._to_roll: deque[_Place] = deque()
        self._new: tuple[_Place, Child, float] | None = None
        self._old: Child | None = None
        self._terminal = _terminal()

    def run(self) -> int:
        """Until everybody is gone. Returns the exit code."""
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda number, _: self._happenings.put(Signalled(number)))
        self._relay.say("supervising", pid=os.getpid(), processes=len(self._places))
        self._start(self._places[0])
        while self._living or (self._stopping is None and self._waits_for_restart()):
            with contextlib.suppress(queue.Empty):
                self._handle(self._happenings.get(timeout=self._pause()))
            self._look_at_clock()
        return self._code()

    def _waits_for_restart(self) -> bool:
        return any(place.restart_at is not None for place in self._places)

    def _code(self) -> int:
        if self._stopping is None:
            codes = [place.given_up for place in self._places if place.given_up is not None]
            return exit_code_of(codes[-1]) if codes else ExitCode.ERROR
        if self._killed_by is not None:
            return 128 + self._killed_by
        self._relay.say("all stopped", **({"not_in_order": self._left_badly} if self._left_badly else {}))
        if self._left_badly:
            return ExitCode.ERROR
        return ExitCode.INTERRUPTED if self._stopping == signal.SIGINT else ExitCode.OK

    # -- time --------------------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        moments = [place.restart_at for place in self._places if place.restart_at is not None]
        moments += [child.leaves_by for child in self._living if child.leaves_by is not None]
        moments += [self._new[2]] if self._new is not None else []
        return max(0.0, min([_LOOK_SECONDS, *(moment - time.monotonic() for moment in moments)]))

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.restart_at is not None and now >= place.restart_at:
                self._start(place)
        for child in self._living:
            if child.leaves_by is not None and now >= child.leaves_by:
                self._relay.say("killed", process=child.process, pid=child.pid, detail="it did not leave in time")
                child.leaves_by = None
                child.kill()
        if self._new is not None and now >= self._new[2]:
            child = self._new[1]
            self._stop_rolling(child, f"it was not ready within {limits.CHILD_READY_SECONDS_MAX:g} s")
            child.kill()

    # -- what happens ------------------------------------------------------------------------------------------------

    def _handle(self, happening: Happening) -> None:
        match happening:
            case Signalled(number):
                self._signalled(number)
            case Told(child, "ready"):
                self._ready(child)
            case Told(child, _):
                child.refused = True
            case Ended(child, code):
                self._ended(child, code)

    def _signalled(self, number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):
            if not _is_gone(self._terminal):
                self._roll()
                return
            number = signal.SIGTERM  # nobody asked for a restart: the terminal was closed
        if self._stopping is not None:
            self._killed_by = number
            for child in self._living:
                child.kill()
            return
        self._stopping = number
        self._relay.say("stopping", signal=signal.Signals(number).name, processes=len(self._living))
        self._to_roll.clear()
        self._new = None
        for place in self._places:
            place.restart_at = None
        for child in self._living:
            child.leave(self._leaving_seconds)

    def _ready(self, child: Child) -> None:
        child.is_ready = True
        if self._new is not None and self._new[1] is child:
            self._replace()
        elif not self._has_begun:
            self._has_begun = True
            for place in self._places:
                if place.child is None and place.restart_at is None and self._stopping is None:
                    self._start(place)

    def _ended(self, child: Child, code: int) -> None:
        self._living.discard(child)
        if self._stopping is not None:
            self._left_badly += child.is_ready and code not in (ExitCode.OK, ExitCode.INTERRUPTED)
            return
        if self._new is not None and self._new[1] is child:
            self._stop_rolling(child, f"it ended with {manner(code)}")
            return
        if self._old is child:
            self._old = None
            self._roll_next()
            return
        for place in self._places:
            if place.child is child:
                self._bring_back(place, child, code)

    # -- children ----------------------------------------------------------------------------------------------------

    def _start(self, place: _Place) -> Child:
        place.restart_at = place.given_up = None
        place.child = child = self._new_child(place)
        return child

    def _new_child(self, place: _Place) -> Child:
        arguments = self._arguments_of(place.process)
        child = Child(place.process, arguments, self._environment, self._relay, self._happenings)
        self._living.add(child)
        self._relay.say("started", process=place.process, pid=child.pid)
        return child

    def _bring_back(self, place: _Place, child: Child, code: int) -> None:
        place.child = None
        facts = {"process": child.process, "pid": child.pid, "ended": manner(code)}
        if is_incurable(code, was_ready=child.is_ready, refused=child.refused):
            place.given_up = code
            others = "; the others go on, and SIGHUP tries again" if self._living else ""
            self._relay.say("gave up", **facts, detail=f"starting it again would not help{others}")
            return
        pause = place.backoff.died(child.lived_seconds())
        place.restart_at = time.monotonic() + pause
        self._relay.say("died", **facts, restart_in_seconds=round(pause, 2))

    # -- rolling restart ---------------------------------------------------------------------------------------------

    def _roll(self) -> None:
        """All of them, from the first: also if that was under way, for the code may have changed since."""
        if self._stopping is not None or not self._has_begun:
            return  # those that are being started load the code that is there
        self._relay.say("rolling restart", processes=len(self._places))
        is_under_way = self._new is not None or self._old is not None
        self._to_roll = deque(self._places)
        if not is_under_way:
            self._roll_next()

    def _roll_next(self) -> None:
        if not self._to_roll:
            self._relay.say("rolling restart done", processes=len(self._places))
            return
        place = self._to_roll.popleft()
        self._new = (place, self._new_child(place), time.monotonic() + limits.CHILD_READY_SECONDS_MAX)

    def _replace(self) -> None:
        if self._new is None:
            raise AssertionError("only a new child replaces an old one")
        place, child, _ = self._new
        self._new = None
        old, place.child = place.child, child
        place.restart_at = place.given_up = None
        if old is not None and old in self._living:
            self._old = old
            old.leave(self._leaving_seconds)
        else:
            self._roll_next()

    def _stop_rolling(self, child: Child, why: str) -> None:
        self._new = None
        self._to_roll.clear()
        self._relay.say(
            "rolling restart stopped", process=child.process, pid=child.pid,
            detail=f"the new process did not become ready: {why}. The old ones stay. Fix it and send SIGHUP again",
        )  # fmt: skip


def _terminal() -> int | None:
    """A descriptor of the terminal that this was started on, if it was."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if os.isatty(stream.fileno()):
                return stream.fileno()
    return None


def _is_gone(terminal: int | None) -> bool:
    if terminal is None:
        return False
    try:
        os.ttyname(terminal)
        os.tcgetpgrp(terminal)
    except OSError:
        return True
    return False
