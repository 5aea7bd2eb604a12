"""Attempts: running the code of steps, deciding about retries, and handing outcomes to the worker.

An attempt starts only after the turn that asked for it is durable (law 2). Async code runs as a task of the host
loop, sync code in a thread, isolated code in a process of its own. A cancelled or timed-out attempt is told at
once; what it still returns is refused, and if it goes on all the same it loses its place after a short grace.

What the code raises is a failure of that attempt, whatever it is: `sys.exit()` and a `CancelledError` of its own
included. Only what comes from outside is not: a cancellation that perdure did not ask for (a host that ends cancels all
tasks of its event loop) and the exception of a signal leave the attempt as a crash does, with nothing recorded
(docs/decisions/0111).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import logging
import random
import threading
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from perdure import limits, native
from perdure.authoring.options import FailedAttempt
from perdure.authoring.step import StepContext, step_context
from perdure.engine.clock import Timekeeper
from perdure.engine.host import is_interrupt, outside
from perdure.engine.processes import StepProcesses, outcome_of, value_of
from perdure.engine.resident import Inbox, Outcome, Resident
from perdure.engine.threads import Call, Carried, DaemonThreads
from perdure.errors import EncodingError, NotStorable, StepFailed, StepTimeout, describe_line
from perdure.kernel import journal
from perdure.kernel.codec import UNREAD, ValueCodec
from perdure.kernel.definitions import StepSpec
from perdure.kernel.faults import decode_error, encode_error, tame
from perdure.kernel.journal import Body, StepDone
from perdure.kernel.operation import StepOperation
from perdure.kernel.retry import next_attempt_at, total_deadline
from perdure.store.base import PLAIN, CommitResult, Turn

logger = logging.getLogger("perdure.steps")

_set_step = step_context.set

#: Attempts begun in a row before the event loop gets to look at everything else.
_SERVED_IN_A_ROW = 64
#: Bursts in a row, each with the turns that follow from it, before it does.
_BURSTS_IN_A_ROW = 8
#: How many outcomes of one run, and for how long, are gathered for one turn if all that is queued is of that run: every
#: turn is a commit. Not longer, because a crash repeats what was not recorded.
_GATHERED_MAX = 512
_GATHERING_SECONDS = 0.005


class Attempt(msgspec.Struct, eq=False):
    """One try of one step."""

    resident: Resident
    operation: StepOperation
    number: int
    #: Whether the run waits for this step and for nothing else, as far as whoever started it knew.
    alone: bool = False
    task: asyncio.Task[None] | None = None
    unwanted: bool = False
    _context: StepContext | None = None
    #: What it took too long for, once it has.
    expired: str = ""
    #: Whether its place was given to others although its code goes on.
    has_left: bool = False
    #: How often this attempt was cancelled by code that is neither perdure's nor the end of the host.
    strange_cancels: int = 0
    #: For whichever limit comes next.
    timer: asyncio.TimerHandle | None = None
    #: The limit that keeps it from beginning: "steps_max", "concurrency" or nothing.
    held_by: str = ""
    #: When it began to wait for its place, by the clock of the loop.
    waiting_since: float = 0.0
    #: Of code that runs elsewhere.
    call: Call | None = None

    def __repr__(self) -> str:
        return f"<attempt {self.number} of {self.operation.location!r}>"

    @property
    def context(self) -> StepContext:
        """What the step's code may know. Made when somebody asks, which few do."""
        if self._context is None:
            with _making_context:  # several threads of one step may ask at once
                if self._context is None:
                    run, operation = self.resident.run, self.operation
                    self._context = StepContext(
                        run.id, operation.location, operation.spec.name, self.number, f"{run.seed:x}"
                    )
            if self.unwanted:
                self._context.mark_cancelled()
        return self._context

    @property
    def waits_for(self) -> str:
        """What its code waits for before it begins, named as the setting that limits it; nothing once it has."""
        if self.held_by or self.call is None or self.call.has_begun:
            return self.held_by
        return "step_processes" if self.operation.spec.isolation == "process" else "step_threads"

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        self.unwanted = True
        if self._context is not None:
            self._context.mark_cancelled()
        if self.task is not None:
            self.task.cancel()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


_making_context = threading.Lock()


class Waits(msgspec.Struct, eq=False):
    """The code of an attempt has begun and waits for something."""

    coroutine: Coroutine[Any, Any, Any]
    context: Context
    awaited: Any
    #: How often the code has asked for the cancellation of the task that it runs in.
    own_cancels: int = 0
    #: Whether the coroutine was closed before its end: the event loop is gone, and nothing can be done any more.
    is_closed: bool = False


StandIn: TypeAlias = Callable[[Attempt, tuple[Any, ...], dict[str, Any]], Coroutine[Any, Any, Any] | None]


class StepRunner:
    """Runs attempts within the worker's and each step's own cap; the rest waits its turn, first come first served."""

    __slots__ = (
        "__dict__", "_burst_is_over", "_clock", "_finished", "_held", "_loop", "_park", "_paused", "_processes",
        "_queue", "_rng", "_running", "_running_by_step", "_server_is_due", "_steps_max", "_stuck", "_tasks",
        "_threads", "_waiting", "accepting", "delays", "ended", "is_serving", "stand_in", "sweeper",
    )  # fmt: skip

    def __init__(
        self,
        clock: Timekeeper,
        steps_max: int,
        threads: int,
        processes: int | None,
        rng: random.Random,
        finished: Callable[[Resident], None],
        burst_is_over: Callable[[], None],
        park: Callable[[Resident, BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._steps_max = steps_max
        self._threads = DaemonThreads(threads)
        self._processes = StepProcesses(processes)
        self._rng = rng
        self._finished = finished
        self._burst_is_over = burst_is_over
        #: For a run whose step has an outcome that cannot even be recorded as a failure.
        self._park = park
        #: Whether a server is running the code of steps just now. When it is through with all that is queued it calls
        #: `burst_is_over`, so that whoever hears of a finished step has no need to arrange for a callback.
        self.is_serving = False
        #: What the burst that is going on has brought so far: attempts whose code came to its end without waiting, and
        #: what it returned, if that is a scalar and all the run waits for. Whoever hears that the burst is over takes
        #: them.
        self.ended: deque[tuple[Attempt, Any]] = deque()
        self._running = 0
        self._running_by_step: dict[str, int] = {}
        self._waiting: deque[Attempt] = deque()
        self._held: dict[str, deque[Attempt]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Of attempts that were told to stop and go on all the same: only kept alive, no longer counted.
        self._stuck: set[asyncio.Task[None]] = set()
        #: Nothing is begun for now: the host seems to end.
        self._paused = False
        #: The engine's own task. Code that cancels that one, and is not the engine's, cancels everything on the loop.
        self.sweeper: asyncio.Task[None] | None = None
        #: Admitted, about to begin.
        self._queue: deque[Attempt] = deque()
        self._server_is_due = False
        self.accepting = True
        #: For tests: what to call in the place of a step's code (None: the code itself), and whether retries wait.
        self.stand_in: StandIn | None = None
        self.delays = True

    def start(self, resident: Resident, operation: StepOperation, alone: bool = False) -> None:
        """Begin the next attempt of a step, unless it is settled, under way, or in a backoff that is not over. `alone`:
        if it succeeds it may be all there is to know for the next turn."""
        location, attempts = operation.location, resident.attempts
        # One in its backoff comes again when that is over.
        if operation.settled or operation.next_at or location in attempts or not self.accepting:
            return
        attempts[location] = attempt = Attempt(resident, operation, operation.attempts + 1, alone)
        if self._running >= self._steps_max or operation.spec.concurrency is not None:
            self._admit(attempt)
            return
        self._running += 1
        self._queue.append(attempt)
        if not self._server_is_due:
            self._send_for_server()

    def start_all(
        self, residents: Sequence[Resident], turns: Sequence[Turn], results: Sequence[CommitResult]
    ) -> list[tuple[Resident, Turn, CommitResult]]:
        """Start the steps that follow from turns which are durable now, where nothing else does. Returns the rest."""
        left: list[tuple[Resident, Turn, CommitResult]] = []
        for resident, turn, result in zip(residents, turns, results, strict=True):
            following = resident.following
            if result is not PLAIN or not resident.is_current or following is None or resident.inbox.unread:
                left.append((resident, turn, result))
                continue
            resident.in_flight = resident.following = None
            resident.next_seq = turn.expected_seq + len(turn.entries)
            self.start(resident, following, True)
        return left

    def cancel(self, resident: Resident, location: str) -> None:
        attempt = resident.attempts.pop(location, None)
        if attempt is None:
            return
        attempt.stop_timer()
        attempt.cancel()
        if attempt.task is not None:
            attempt.timer = self._loop.call_later(limits.STEP_STOP_SECONDS, self._goes_on, attempt)

    def cancel_all(self, resident: Resident) -> None:
        for location in list(resident.attempts):
            self.cancel(resident, location)

    @property
    def running(self) -> int:
        return self._running

    async def drain(self, grace: float) -> None:
        """Start nothing more, give running attempts `grace` seconds, then cancel what is left."""
        self.accepting = False
        for attempt in itertools.chain(self._waiting, *self._held.values()):
            attempt.stop_timer()
        self._waiting.clear()
        self._held.clear()
        tasks = set(self._tasks)
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        for task in self._tasks | self._stuck:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limits.STEP_STOP_SECONDS)
        self._threads.close()
        self._processes.close()
        await asyncio.wait({self._clock.outside(self._processes.gone())}, timeout=limits.STEP_STOP_SECONDS)

    def abandon(self) -> None:
        """Begin and record nothing more, as after a crash."""
        self.accepting = False
        self._processes.close()

    # -- capacity ----------------------------------------------------------------------------------------------

    def _admit(self, attempt: Attempt) -> None:
        if self._running >= self._steps_max:
            self._hold(attempt, "steps_max")
            self._waiting.append(attempt)
            return
        spec = attempt.operation.spec
        if spec.concurrency is not None:
            if self._running_by_step.get(spec.name, 0) >= spec.concurrency:
                self._hold(attempt, "concurrency")
                self._held.setdefault(spec.name, deque()).append(attempt)
                return
            self._running_by_step[spec.name] = self._running_by_step.get(spec.name, 0) + 1
        attempt.held_by = ""
        attempt.stop_timer()
        self._running += 1
        self._queue.append(attempt)
        if not self._server_is_due:
            self._send_for_server()

    def _hold(self, attempt: Attempt, limit: str) -> None:
        attempt.held_by = limit
        if not attempt.operation.spec.is_bare:
            self._limit_the_wait(attempt)

    def _leave(self, attempt: Attempt) -> None:
        attempt.stop_timer()
        if attempt.has_left:
            return
        attempt.has_left = True
        self._running -= 1
        spec = attempt.operation.spec
        if spec.concurrency is not None:
            self._running_by_step[spec.name] -= 1
            held = self._held.get(spec.name)
            while held and held[0].unwanted:
                held.popleft()
            if held:
                self._waiting.appendleft(held.popleft())
        while self._waiting and self._running < self._steps_max and self.accepting:
            following = self._waiting.popleft()
            if not following.unwanted:
                self._admit(following)

    # -- one attempt -------------------------------------------------------------------------------------------

    def _send_for_server(self) -> None:
        if self._paused:
            return  # `_resume` sends for one
        self._server_is_due = True
        task = self._loop.create_task(self._serve())
        task.add_done_callback(self._never_began)
        self._tasks.add(task)

    def _never_began(self, task: asyncio.Task[None]) -> None:
        """A server was cancelled before its first line (tests/steps/test_cancelled_by_strangers.py)."""
        self._tasks.discard(task)
        self._server_is_due = False
        self._pause()

    async def _serve(self) -> None:
        """A task that begins queued attempts, one after another for as long as they end without waiting for anything.

        The first that waits keeps the task to itself and another one serves the queue, so code that does I/O has a task
        of its own as usual; a burst of steps that only compute does not pay for a task each. Every attempt has a
        context of its own. If what follows from a burst is durable at once, the same task goes on with that.
        """
        self._server_is_due = False
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a coroutine of the event loop runs in a task")
        task.remove_done_callback(self._never_began)
        queue = self._queue
        served = bursts = 0
        began = self._loop.time()
        try:
            while queue:
                self.is_serving = True
                count, last, waits = self._serve_some(_SERVED_IN_A_ROW - served % _SERVED_IN_A_ROW)
                if waits is not None:
                    self._end_burst(task)
                    self._server_waits()
                    await self._carry_on(last, task, waits)
                    break
                served += count
                if not queue:
                    bursts += 1
                if not queue or not self._gathers(last.resident, began):
                    self._server_is_due = True  # it is here, for whatever is queued now
                    try:
                        self._end_burst(task)
                    finally:
                        self._server_is_due = False
                    began = self._loop.time()
                if queue and (not served % _SERVED_IN_A_ROW or bursts == _BURSTS_IN_A_ROW):
                    bursts = 0
                    await asyncio.sleep(0)
        except asyncio.CancelledError:  # between two attempts
            self._pause()
        finally:
            if self.is_serving:  # left in the middle
                self.is_serving = False
                self._loop.call_soon(self._burst_is_over)
            # Not by a done callback: that would keep the loop busy for another round, and a lone turn that finds the
            # loop idle is committed on the spot.
            self._tasks.discard(task)
            self._stuck.discard(task)
            self._server_waits()

    def _serve_some(self, most: int) -> tuple[int, Attempt, Waits | None]:
        """Begin attempts that are queued, until one waits, or so many have come to their end without, or none is left.

        Returns how many have, the last one (which may not have been wanted any more), and the wait, if it waits.
        """
        queue, served = self._queue, 0
        while True:
            attempt = queue.popleft()
            if attempt.unwanted:
                self._leave(attempt)
            else:
                try:
                    value = self._begin(attempt)
                except BaseException as error:
                    self._raised(attempt, error)
                else:
                    if type(value) is Waits:
                        return served, attempt, value
                    self._leave(attempt)
                    if attempt.alone and attempt.operation.spec.result.is_scalar(value):
                        self.ended.append((attempt, value))
                    else:  # encoded at once, before other code can change it
                        self.returned(attempt, value)
                served += 1
            if served == most or not queue:
                return served, attempt, None

    def _gathers(self, resident: Resident, began: float) -> bool:
        """Whether a turn of this run had better wait for the next burst: a thousand parallel steps would otherwise be
        stored a few at a time."""
        if self._queue[0].resident is not resident or len(resident.outcomes) >= _GATHERED_MAX:
            return False
        return self._loop.time() - began < _GATHERING_SECONDS

    def _end_burst(self, task: asyncio.Task[Any]) -> None:
        """Let what came of the steps so far be delivered: outside of any task, as if from a callback of the loop."""
        self.is_serving = False
        with outside(self._loop, task):
            self._burst_is_over()

    def _server_waits(self) -> None:
        if self._queue and not self._server_is_due:
            self._send_for_server()

    def _begin(self, attempt: Attempt) -> Any:
        """Run the code of an attempt, in a context of its own, until its end or until it waits for the first time: what
        it returned, or a `Waits`."""
        operation = attempt.operation
        spec, args = operation.spec, operation.args
        coroutine: Coroutine[Any, Any, Any]
        if args is not None and spec.is_bare and self.stand_in is None:
            coroutine = spec.function(*args)  # nothing has to be around it
        else:
            coroutine = self._limited(attempt)
        context = copy_context()
        context.run(_set_step, attempt)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration as returned:
            return returned.value
        return Waits(coroutine, context, awaited)

    async def _carry_on(self, attempt: Attempt, task: asyncio.Task[Any], begun: Waits) -> None:
        """The rest of an attempt that waits, in a task that is all its own from now on."""
        attempt.task = task
        if attempt.unwanted:  # given up by its own first lines
            task.cancel()
        try:
            value = await _rest_of(begun, task)
        except BaseException as error:
            if begun.is_closed:
                raise
            self._raised(attempt, error, task.cancelling() > begun.own_cancels)
        else:
            self._leave(attempt)
            if attempt.expired:  # the code swallowed its cancellation: what it returned comes too late
                self._fail(attempt, StepTimeout(attempt.expired))
            else:
                self.returned(attempt, value)

    def returned(self, attempt: Attempt, value: Any) -> None:
        """The code of an attempt, which has left, came to its end."""
        operation = attempt.operation
        spec = operation.spec
        try:
            encoded = spec.result.encode(value, spec.what)
            args, digest = _recorded_arguments(operation)
            body = StepDone(Raw(encoded), attempt.number, args, digest, operation.site)
            known = value if spec.result.is_scalar(value) else UNREAD
        except BaseException as error:
            self._unstorable(attempt, error)
        else:
            self._note(attempt, body, known)

    def _unstorable(self, attempt: Attempt, error: BaseException) -> None:
        """The step has a result that cannot be stored. It is not tried again: what it did is done, and would be done
        once more (docs/decisions/0112)."""
        if is_interrupt(error):
            self._abandon(attempt)
            raise error
        if not isinstance(error, EncodingError):  # of the value's own code, or of its class
            what = attempt.operation.spec.what
            refused = NotStorable(f"{what} cannot be stored: looking at it raised {describe_line(error)}")
            refused.__cause__ = error
            error = refused
        self._fail(attempt, error, is_final=True)

    def _raised(self, attempt: Attempt, error: BaseException, was_told: bool = False) -> None:
        """The code raised. `was_told`: somebody else has cancelled the task in which it runs."""
        self._leave(attempt)
        is_final = False
        error = tame(error)
        if isinstance(error, Carried):
            is_final = error.is_final
            error = tame(error.error)
        elif is_interrupt(error):
            self._abandon(attempt)
            raise error
        if attempt.unwanted:
            return  # as it was asked to
        if attempt.expired and isinstance(error, (asyncio.CancelledError, TimeoutError)):
            timeout = StepTimeout(attempt.expired)
            timeout.__cause__ = error
            self._fail(attempt, timeout)
        elif was_told and not self._is_of_the_step(attempt, error):
            self._abandon(attempt)
        else:
            self._fail(attempt, error, is_final)

    def _is_of_the_step(self, attempt: Attempt, error: BaseException) -> bool:
        """Whether what the code raised in a cancelled task is its own affair."""
        if not self.accepting or self._host_ends():
            return False  # whatever it made of the cancellation: it was meant for the process, not for the step
        if not isinstance(error, asyncio.CancelledError):
            return True
        attempt.strange_cancels += 1
        return attempt.strange_cancels > limits.STRANGE_CANCELS_MAX

    # -- what is not an outcome --------------------------------------------------------------------------------

    def _host_ends(self) -> bool:
        return self.sweeper is not None and self.sweeper.cancelling() > 0

    def _pause(self) -> None:
        """Somebody cancels the tasks of this loop. Begin nothing for a while: a loop that ends must not get new tasks,
        and one that goes on gets to work again."""
        if not self._paused and self.accepting:
            self._paused = True
            self._loop.call_later(limits.CANCELLED_BY_OTHERS_SECONDS, self._resume)

    def _resume(self) -> None:
        self._paused = False
        self._server_waits()

    def _abandon(self, attempt: Attempt) -> None:
        """As by a crash: nothing is recorded. If the process goes on, the same attempt begins again after a while."""
        if not self.accepting or attempt.unwanted:
            return
        operation = attempt.operation
        logger.warning(
            "attempt %d of step %r of run %r was cancelled by something else than perdure, such as the end of the "
            "event loop. Nothing is recorded of it: it begins again, here or in the next process.",
            attempt.number, operation.location, attempt.resident.id,
        )  # fmt: skip
        if self._host_ends():
            self._pause()
        self._loop.call_later(limits.CANCELLED_BY_OTHERS_SECONDS, self._begin_again, attempt)

    def _begin_again(self, attempt: Attempt) -> None:
        resident, location = attempt.resident, attempt.operation.location
        if self.accepting and resident.attempts.get(location) is attempt:
            del resident.attempts[location]
            self.start(resident, attempt.operation)
            resident.attempts[location].strange_cancels = attempt.strange_cancels

    def _goes_on(self, attempt: Attempt) -> None:
        """The code was told to stop and had its time for that."""
        attempt.timer = None
        if attempt.has_left:
            return
        logger.warning(
            "attempt %d of step %r of run %r was told to stop %g s ago and goes on. Others get its place, and what it "
            "still returns is refused. Let `CancelledError` out of the step's code.",
            attempt.number, attempt.operation.location, attempt.resident.id, limits.STEP_STOP_SECONDS,
        )  # fmt: skip
        if attempt.expired and not attempt.unwanted:
            self._fail(attempt, StepTimeout(attempt.expired))
        attempt.unwanted = True
        if attempt.task is not None:
            self._tasks.discard(attempt.task)
            self._stuck.add(attempt.task)
        self._leave(attempt)

    # -- outcomes ----------------------------------------------------------------------------------------------

    def _fail(self, attempt: Attempt, error: BaseException, is_final: bool = False) -> None:
        """A failure of this attempt. Whatever else goes wrong while it is described: the run does not hang."""
        try:
            self._note(attempt, self._failure(attempt, error, is_final))
        except BaseException as raised:
            if is_interrupt(raised):
                self._abandon(attempt)
                raise
            logger.error("a failure of step %r cannot be recorded", attempt.operation.location, exc_info=raised)
            self._park(attempt.resident, raised)

    def _note(self, attempt: Attempt, body: Body, known: Any = UNREAD) -> None:
        """An outcome, if anybody still wants it."""
        operation, resident = attempt.operation, attempt.resident
        attempts, location = resident.attempts, operation.location
        if not attempt.unwanted and attempts.get(location) is attempt:
            del attempts[location]
            resident.outcomes.append(Outcome(operation, body, self._clock.now(), known))
            self._finished(resident)

    async def _limited(self, attempt: Attempt) -> Any:
        """Run the code within its timeouts."""
        spec = attempt.operation.spec
        policy = spec.policy
        if policy.timeout is None and policy.queue_timeout is None and policy.total_timeout is None:
            return await self._call(attempt)
        if _runs_here(spec):
            self._code_begins(attempt)
        else:  # it waits for a thread or a process first
            self._limit_the_wait(attempt)
        try:
            if attempt.expired:
                raise StepTimeout(attempt.expired)
            return await self._call(attempt)
        finally:
            if not attempt.expired:
                attempt.stop_timer()

    def _limit_the_wait(self, attempt: Attempt) -> None:
        """An attempt waits for its place, or goes on waiting."""
        policy = attempt.operation.spec.policy
        if attempt.timer is None and (policy.queue_timeout is not None or policy.total_timeout is not None):
            now = self._loop.time()
            attempt.waiting_since = attempt.waiting_since or now
            left = None if policy.queue_timeout is None else attempt.waiting_since + policy.queue_timeout - now
            name = f"attempt {attempt.number} of step {attempt.operation.location!r}"
            what = f"{name} waited longer than its queue_timeout of {policy.queue_timeout} s and did not begin."
            self._set_timer(attempt, left, what, self._waited_too_long)

    def _code_begins(self, attempt: Attempt) -> None:
        """From now on the timeout of the attempt counts."""
        attempt.stop_timer()
        if not attempt.expired:
            seconds = attempt.operation.spec.policy.timeout
            name = f"attempt {attempt.number} of step {attempt.operation.location!r}"
            what = f"{name} took longer than its timeout of {seconds} s."
            self._set_timer(attempt, seconds, what, self._time_is_up)

    def _set_timer(
        self, attempt: Attempt, seconds: float | None, what: str, then: Callable[[Attempt, str], None]
    ) -> None:
        """For that limit, or for what is left of `total_timeout`. One that is over already is kept by the attempt."""
        operation = attempt.operation
        deadline = total_deadline(operation.spec.policy, operation.asked_at)
        if deadline is not None:
            left = (deadline - self._clock.now()) / 1_000_000
            if seconds is None or left < seconds:
                seconds, total = left, operation.spec.policy.total_timeout
                what = f"step {operation.location!r} took longer than its total_timeout of {total} s."
        if seconds is None:
            return
        if seconds <= 0 and attempt.call is None and not attempt.held_by:
            attempt.expired = what
        else:
            attempt.timer = self._loop.call_later(seconds, then, attempt, what)

    def _waited_too_long(self, attempt: Attempt, what: str) -> None:
        attempt.timer = None
        if attempt.held_by:
            self._fail(attempt, StepTimeout(what))
            attempt.unwanted = True  # those who look for the next one pass it over
        elif attempt.call is None or attempt.call.withdraw():
            attempt.expired = what
            if attempt.task is not None:
                attempt.task.cancel()
        # Otherwise its code has just begun, and `_code_begins` comes next.

    def _time_is_up(self, attempt: Attempt, what: str) -> None:
        attempt.expired = what
        attempt.context.mark_cancelled()
        if attempt.task is not None:
            attempt.task.cancel()
        attempt.timer = self._loop.call_later(limits.STEP_STOP_SECONDS, self._goes_on, attempt)

    def _call(self, attempt: Attempt) -> Coroutine[Any, Any, Any] | asyncio.Future[Any]:
        operation = attempt.operation
        spec = operation.spec
        args, kwargs = _arguments(operation)
        if self.stand_in is not None and (instead := self.stand_in(attempt, args, kwargs)) is not None:
            if not _runs_here(spec):
                self._code_begins(attempt)
            return instead
        if _runs_here(spec):
            return spec.function(*args, **kwargs)  # type: ignore[no-any-return]
        has_limits = spec.policy.timeout is not None or attempt.timer is not None
        begun = functools.partial(self._code_begins, attempt) if has_limits else None
        if spec.isolation == "process":
            return self._clock.outside(self._isolated(attempt, begun))
        context = copy_context()
        attempt.call = self._threads.submit(lambda: context.run(spec.function, *args, **kwargs), begun)
        return self._clock.outside(attempt.call.future)

    async def _isolated(self, attempt: Attempt, begun: Callable[[], None] | None) -> Any:
        operation = attempt.operation
        attempt.call = self._processes.ask(operation.spec, operation.data, attempt.context, begun)
        return value_of(operation.spec, await outcome_of(attempt.call), operation.location)

    def _failure(self, attempt: Attempt, error: BaseException, is_final: bool) -> Body:
        operation = attempt.operation
        policy = operation.spec.policy
        now, draw = self._clock.now(), self._rng.random()
        shown, next_at = _as_failure(attempt, error), None
        if not is_final:
            try:
                # A class named by retry_on is meant as the step raised it; a function sees what the workflow would.
                judged = error if isinstance(policy.retry_on, tuple) and isinstance(error, policy.retry_on) else shown
                next_at = next_attempt_at(policy, attempt.number, judged, operation.asked_at, now, draw)
            except BaseException as raised:  # a retry_on that raises: the step fails with both errors shown
                if is_interrupt(raised):
                    raise
                raised.__context__ = error
                shown = _as_failure(attempt, raised)
        if next_at is not None and not self.delays:
            next_at = now
        fault = encode_error(shown)
        args, digest = _recorded_arguments(operation)
        if next_at is None:
            return journal.StepFailed(attempt.number, fault, args, digest, operation.site)
        return journal.StepRetry(attempt.number, fault, next_at, args, digest, operation.site)


#: What these mean to Python and asyncio is about the task or the process; a workflow that gets one as the failure of a
#: step would end by it, past every `except Exception`.
_CONTROL = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


def _as_failure(attempt: Attempt, error: BaseException) -> BaseException:
    """What is recorded of an error: the error, or in the place of one that would end its workflow, a `StepFailed`."""
    if not isinstance(error, _CONTROL):
        return error
    fault = encode_error(error)
    name = fault.type.rpartition(":")[2]
    text = f"{name}: {fault.message}" if fault.message else name
    failed = StepFailed(
        f"attempt {attempt.number} of step {attempt.operation.location!r} raised {text}",
        type_name=fault.type,
        original_message=fault.message,
    )
    failed.__cause__ = error
    return failed.with_traceback(error.__traceback__)


@types.coroutine
def _rest_of(begun: Waits, task: asyncio.Task[Any]) -> Generator[Any, Any, Any]:
    """Run a coroutine that waits to its end, inside the current task but in a context of its own.

    Counts how often the code itself cancels that task: only while it runs can nobody else.
    """
    coroutine, context, awaited = begun.coroutine, begun.context, begun.awaited
    cancelling = task.cancelling
    before = 0
    try:
        while True:
            if (asked := cancelling()) > before:
                begun.own_cancels += asked - before
            try:
                value = yield awaited
            except GeneratorExit:
                begun.is_closed = True
                coroutine.close()
                raise
            except BaseException as error:
                before = cancelling()
                awaited = context.run(coroutine.throw, error)
            else:
                before = cancelling()
                awaited = context.run(coroutine.send, value)
    except StopIteration as returned:
        return returned.value


def _runs_here(spec: StepSpec) -> bool:
    """Whether the code runs on this loop, and so begins at once."""
    return spec.is_async and spec.isolation == "none"


def _arguments(operation: StepOperation) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What to call the step's function with. Fresh copies of everything that can change: what the step does to its
    arguments must not reach the workflow, which would see the change live and miss it on replay."""
    return (operation.args, {}) if operation.args is not None else operation.spec.arguments.decode(operation.data)


def _recorded_arguments(operation: StepOperation) -> tuple[Raw, int]:
    data = operation.data
    kept = Raw(data) if len(data) <= limits.RECORDED_ARGUMENTS_BYTES_MAX else journal.ABSENT
    return kept, operation.arguments_digest()


def call_retry_hooks(resident: Resident) -> list[Coroutine[Any, Any, None]]:
    """Tell `on_retry` hooks about attempts whose failure is now recorded. A hook that raises is only logged. Returns
    what is left to be run of those that are async."""
    hooks, resident.hooks = resident.hooks, ()
    left: list[Coroutine[Any, Any, None]] = []
    for outcome in hooks:
        operation, body = outcome.operation, outcome.body
        if not isinstance(body, (journal.StepRetry, journal.StepFailed)) or operation.spec.on_retry is None:
            continue
        next_at = body.next_at if isinstance(body, journal.StepRetry) else None
        failed = FailedAttempt(resident.id, operation.location, body.attempt, decode_error(body.error), next_at)
        try:
            answer: object = operation.spec.on_retry(failed)
            if inspect.isawaitable(answer):  # which its class may answer by raising
                left.append(_rest_of_hook(operation.location, answer))
        except BaseException as error:
            _report_hook(operation.location, error)
    return left


async def _rest_of_hook(location: str, answer: Awaitable[object]) -> None:
    try:
        await answer
    except asyncio.CancelledError:  # the engine is closed, or the loop ends
        raise
    except BaseException as error:
        _report_hook(location, error)


def _report_hook(location: str, error: BaseException) -> None:
    if is_interrupt(error):
        raise error
    logger.error("the on_retry hook of step %r raised", location, exc_info=error)


native.bind_steps({
    "StepRunner": StepRunner, "Attempt": Attempt, "Waits": Waits, "Resident": Resident, "Outcome": Outcome,
    "StepOperation": StepOperation, "StepSpec": StepSpec, "ValueCodec": ValueCodec, "StepDone": StepDone, "Raw": Raw,
    "ABSENT": journal.ABSENT, "UNREAD": UNREAD, "step_context": step_context,
    "limits": vars(limits), "PLAIN": PLAIN, "Turn": Turn, "Inbox": Inbox,
})  # fmt: skip
