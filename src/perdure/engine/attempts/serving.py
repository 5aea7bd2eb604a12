"""Serving: tasks that begin queued attempts, so that code that never waits shares a task.

A server begins one attempt after another for as long as they end without waiting for anything: a burst. The first that
waits keeps the task to itself and another one serves the queue, so code that does I/O has a task of its own as usual; a
burst of steps that only compute does not pay for a task each (docs/decisions/0015). When a server is through with all
that is queued it calls `burst_is_over`, outside of any task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from perdure import limits
from perdure.engine.attempts.attempt import Attempt, Waits, rest_of
from perdure.engine.attempts.calling import Calling
from perdure.engine.attempts.capacity import Capacity
from perdure.engine.attempts.interruptions import Interruptions
from perdure.engine.attempts.outcomes import Outcomes
from perdure.engine.fast_path import FastPath
from perdure.engine.host import detached
from perdure.engine.resident import Resident
from perdure.errors import StepTimeout

#: Attempts begun in a row before the event loop gets to look at everything else.
_SERVED_IN_A_ROW = 64
#: Bursts in a row, each with the turns that follow from it, before it does.
_BURSTS_IN_A_ROW = 8
#: How many outcomes of one run, and for how long, are gathered for one turn if all that is queued is of that run: every
#: turn is a commit. Not longer, because a crash repeats what was not recorded.
_GATHERED_MAX = 512
_GATHERING_SECONDS = 0.005


class Serving:
    """Begins what is queued, and sees each attempt to its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        capacity: Capacity,
        calling: Calling,
        outcomes: Outcomes,
        interruptions: Interruptions,
        burst_is_over: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._capacity = capacity
        self._calling = calling
        self._outcomes = outcomes
        self._interruptions = interruptions
        self._burst_is_over = burst_is_over
        #: Set by the worker; None: everything takes the general path.
        self.fast_path: FastPath | None = None
        #: Whether a server is running the code of steps just now. It calls `burst_is_over` afterwards, so the worker,
        #: when it hears of a finished step, has no need to arrange for a callback.
        self.is_serving = False
        #: Admitted, about to begin.
        self.queue: deque[Attempt] = deque()
        #: Whether a server is about to look at the queue.
        self.is_due = False
        self.tasks: set[asyncio.Task[None]] = set()
        #: Of attempts that were told to stop and go on all the same: only kept alive, no longer counted.
        self._stuck: set[asyncio.Task[None]] = set()

    def add(self, attempt: Attempt) -> None:
        """Begin it in its turn."""
        self.queue.append(attempt)
        if not self.is_due:
            self.send_for_server()

    def send_for_server(self) -> None:
        if self._interruptions.is_paused:
            return  # one is sent for when that is over
        self.is_due = True
        task = self._loop.create_task(self._serve())
        task.add_done_callback(self._never_began)
        self.tasks.add(task)

    def send_if_queued(self) -> None:
        if self.queue and not self.is_due:
            self.send_for_server()

    def leave_behind(self, task: asyncio.Task[None]) -> None:
        """Of an attempt that was told to stop and goes on."""
        self.tasks.discard(task)
        self._stuck.add(task)

    async def finish(self, grace: float) -> None:
        """Give running attempts `grace` seconds, then cancel what is left."""
        tasks = set(self.tasks)
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        for task in self.tasks | self._stuck:
            task.cancel()
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=limits.STEP_STOP_SECONDS)

    def _never_began(self, task: asyncio.Task[None]) -> None:
        """A server was cancelled before its first line (tests/steps/test_cancelled_by_strangers.py)."""
        self.tasks.discard(task)
        self.is_due = False
        self._interruptions.pause()

    async def _serve(self) -> None:
        """A task that begins queued attempts, one after another for as long as they end without waiting for anything.

        The first that waits keeps the task to itself and another one serves the queue, so code that does I/O has a task
        of its own as usual; a burst of steps that only compute does not pay for a task each. Every attempt has a
        context of its own. If what follows from a burst is durable at once, the same task goes on with that.
        """
        self.is_due = False
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a coroutine of the event loop runs in a task")
        task.remove_done_callback(self._never_began)
        queue = self.queue
        served = bursts = 0
        began = self._loop.time()
        try:
            while queue:
                self.is_serving = True
                count, last, waits = self._serve_some(_SERVED_IN_A_ROW - served % _SERVED_IN_A_ROW)
                if waits is not None:
                    self._end_burst(task)
                    self.send_if_queued()
                    await self._carry_on(last, task, waits)
                    break
                served += count
                if not queue:
                    bursts += 1
                if not queue or not self._gathers(last.resident, began):
                    self.is_due = True  # it is here, for whatever is queued now
                    try:
                        self._end_burst(task)
                    finally:
                        self.is_due = False
                    began = self._loop.time()
                if queue and (not served % _SERVED_IN_A_ROW or bursts == _BURSTS_IN_A_ROW):
                    bursts = 0
                    await asyncio.sleep(0)
        except asyncio.CancelledError:  # between two attempts
            self._interruptions.pause()
        finally:
            if self.is_serving:  # left in the middle
                self.is_serving = False
                self._loop.call_soon(self._burst_is_over)
            # Not by a done callback: that would keep the loop busy for another round, and a lone turn that finds the
            # loop idle is committed on the spot.
            self.tasks.discard(task)
            self._stuck.discard(task)
            self.send_if_queued()

    def _serve_some(self, most: int) -> tuple[int, Attempt, Waits | None]:
        """Begin attempts that are queued, until one waits, or so many have come to their end without, or none is left.

        Returns how many have, the last one (which may not have been wanted any more), and the wait, if it waits.
        """
        queue, served = self.queue, 0
        while True:
            attempt = queue.popleft()
            if attempt.unwanted:
                self._capacity.leave(attempt)
            else:
                try:
                    value = self._calling.begin(attempt)
                except BaseException as error:
                    self._outcomes.raised(attempt, error)
                else:
                    if type(value) is Waits:
                        return served, attempt, value
                    self._capacity.leave(attempt)
                    self.ended(attempt, value)
                served += 1
            if served == most or not queue:
                return served, attempt, None

    def _gathers(self, resident: Resident, began: float) -> bool:
        """Whether a turn of this run had better wait for the next burst: a thousand parallel steps would otherwise be
        stored a few at a time."""
        if self.queue[0].resident is not resident or len(resident.arrivals.outcomes) >= _GATHERED_MAX:
            return False
        return self._loop.time() - began < _GATHERING_SECONDS

    def _end_burst(self, task: asyncio.Task[Any]) -> None:
        """Let what came of the steps so far be delivered: outside of any task, as if from a callback of the loop."""
        self.is_serving = False
        with detached(task):
            self._burst_is_over()

    async def _carry_on(self, attempt: Attempt, task: asyncio.Task[Any], begun: Waits) -> None:
        """The rest of an attempt that waits, in a task that is all its own from now on."""
        attempt.task = task
        if attempt.unwanted:  # given up by its own first lines
            task.cancel()
        try:
            value = await rest_of(begun, task)
        except BaseException as error:
            if begun.is_closed:
                raise
            self._outcomes.raised(attempt, error, task.cancelling() > begun.own_cancels)
        else:
            self._capacity.leave(attempt)
            if attempt.expired:  # the code swallowed its cancellation: what it returned comes too late
                self._outcomes.fail(attempt, StepTimeout(attempt.expired))
            else:
                self.ended(attempt, value)

    def ended(self, attempt: Attempt, value: Any) -> None:
        """The code of an attempt came to its end."""
        if self.fast_path is None or not self.fast_path.take_result(attempt, value):
            self._outcomes.returned(attempt, value)
