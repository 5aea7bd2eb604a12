"""Attempts: running the code of steps, deciding about retries, and handing outcomes to the worker.

An attempt starts only after the turn that asked for it is durable (law 2). Async code runs as a task of the host
loop, sync code in a thread, isolated code in a process of its own. A cancelled or timed-out attempt is told at
once; whatever it still returns is refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from perdure import limits, native
from perdure.authoring.options import FailedAttempt
from perdure.authoring.step import StepContext, step_context
from perdure.engine.clock import Timekeeper
from perdure.engine.host import outside
from perdure.engine.isolation import run_isolated
from perdure.engine.resident import Inbox, Outcome, Resident
from perdure.engine.threads import DaemonThreads
from perdure.errors import StepTimeout
from perdure.kernel import journal
from perdure.kernel.codec import UNREAD, ValueCodec
from perdure.kernel.definitions import StepSpec
from perdure.kernel.faults import decode_error, encode_error
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

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        self.unwanted = True
        if self._context is not None:
            self._context.mark_cancelled()
        if self.task is not None:
            self.task.cancel()


_making_context = threading.Lock()


class Waits(msgspec.Struct, eq=False):
    """The code of an attempt has begun and waits for something."""

    coroutine: Coroutine[Any, Any, Any]
    context: Context
    awaited: Any


StandIn: TypeAlias = Callable[[Attempt, tuple[Any, ...], dict[str, Any]], Coroutine[Any, Any, Any] | None]


class StepRunner:
    """Runs attempts within the worker's and each step's own cap; the rest waits its turn, first come first served."""

    __slots__ = (
        "__dict__", "_burst_is_over", "_clock", "_finished", "_held", "_loop", "_queue", "_rng", "_running",
        "_running_by_step", "_server_is_due", "_steps_max", "_tasks", "_threads", "_waiting", "accepting", "delays",
        "ended", "is_serving", "stand_in",
    )  # fmt: skip

    def __init__(
        self,
        clock: Timekeeper,
        steps_max: int,
        threads: int,
        rng: random.Random,
        finished: Callable[[Resident], None],
        burst_is_over: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._steps_max = steps_max
        self._threads = DaemonThreads(threads)
        self._rng = rng
        self._finished = finished
        self._burst_is_over = burst_is_over
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
        attempt.cancel()

    def cancel_all(self, resident: Resident) -> None:
        for location in list(resident.attempts):
            self.cancel(resident, location)

    @property
    def running(self) -> int:
        return self._running

    async def drain(self, grace: float) -> None:
        """Start nothing more, give running attempts `grace` seconds, then cancel what is left."""
        self.accepting = False
        self._waiting.clear()
        self._held.clear()
        tasks = set(self._tasks)
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)
        self._threads.close()

    # -- capacity ----------------------------------------------------------------------------------------------

    def _admit(self, attempt: Attempt) -> None:
        if self._running >= self._steps_max:
            self._waiting.append(attempt)
            return
        spec = attempt.operation.spec
        if spec.concurrency is not None:
            if self._running_by_step.get(spec.name, 0) >= spec.concurrency:
                self._held.setdefault(spec.name, deque()).append(attempt)
                return
            self._running_by_step[spec.name] = self._running_by_step.get(spec.name, 0) + 1
        self._running += 1
        self._queue.append(attempt)
        if not self._server_is_due:
            self._send_for_server()

    def _leave(self, attempt: Attempt) -> None:
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
        self._server_is_due = True
        task = self._loop.create_task(self._serve())
        self._tasks.add(task)

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
        finally:
            if self.is_serving:  # left in the middle
                self.is_serving = False
                self._loop.call_soon(self._burst_is_over)
            # Not by a done callback: that would keep the loop busy for another round, and a lone turn that finds the
            # loop idle is committed on the spot.
            self._tasks.discard(task)
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
            value = await _rest_of(begun)
        except BaseException as error:
            self._raised(attempt, error)
        else:
            self._leave(attempt)
            self.returned(attempt, value)

    def returned(self, attempt: Attempt, value: Any) -> None:
        """The code of an attempt, which has left, came to its end."""
        operation = attempt.operation
        spec = operation.spec
        codec = spec.result
        try:
            encoded = codec.encode(value, spec.what)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._note(attempt, self._failure(attempt, error))
            return
        args, digest = _recorded_arguments(operation)
        body = StepDone(Raw(encoded), attempt.number, args, digest, operation.site)
        self._note(attempt, body, value if codec.is_scalar(value) else UNREAD)

    def _raised(self, attempt: Attempt, error: BaseException) -> None:
        self._leave(attempt)
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            raise error
        if isinstance(error, asyncio.CancelledError) and (attempt.unwanted or not self.accepting):
            return  # as it was asked to
        self._note(attempt, self._failure(attempt, error))

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
        operation = attempt.operation
        policy = operation.spec.policy
        context = attempt.context
        if policy.timeout is None and policy.total_timeout is None:
            return await self._call(attempt)
        seconds = policy.timeout
        what = f"attempt {attempt.number} of step {operation.location!r} took longer than its timeout of {seconds} s."
        deadline = total_deadline(policy, operation.asked_at)
        if deadline is not None:
            left = (deadline - self._clock.now()) / 1_000_000
            if seconds is None or left < seconds:
                seconds = left
                what = f"step {operation.location!r} took longer than its total_timeout of {policy.total_timeout} s."
        if seconds is not None and seconds <= 0:
            raise StepTimeout(what)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                value = await self._call(attempt)
            if limit.expired():  # the code swallowed its cancellation: what it returned comes too late
                raise TimeoutError
            return value
        except TimeoutError as error:
            if limit.expired():
                context.mark_cancelled()
                raise StepTimeout(what) from (None if error.__cause__ is None else error)
            raise

    def _call(self, attempt: Attempt) -> Coroutine[Any, Any, Any] | asyncio.Future[Any]:
        operation = attempt.operation
        spec = operation.spec
        args, kwargs = _arguments(operation)
        if self.stand_in is not None and (instead := self.stand_in(attempt, args, kwargs)) is not None:
            return instead
        if spec.isolation == "process":
            return self._clock.outside(run_isolated(spec, operation.data, attempt.context))
        if spec.is_async:
            return spec.function(*args, **kwargs)  # type: ignore[no-any-return]
        context = copy_context()
        return self._clock.outside(self._threads.run(lambda: context.run(spec.function, *args, **kwargs)))

    def _failure(self, attempt: Attempt, error: BaseException) -> Body:
        operation = attempt.operation
        now = self._clock.now()
        try:
            next_at = next_attempt_at(
                operation.spec.policy, attempt.number, error, operation.asked_at, now, self._rng.random()
            )
        except Exception as raised:  # a retry_on predicate that raises: the step fails with both errors shown
            raised.__context__ = error
            error, next_at = raised, None
        if next_at is not None and not self.delays:
            next_at = now
        fault = encode_error(error)
        args, digest = _recorded_arguments(operation)
        if next_at is None:
            return journal.StepFailed(attempt.number, fault, args, digest, operation.site)
        return journal.StepRetry(attempt.number, fault, next_at, args, digest, operation.site)


@types.coroutine
def _rest_of(begun: Waits) -> Generator[Any, Any, Any]:
    """Run a coroutine that waits to its end, inside the current task but in a context of its own."""
    coroutine, context, awaited = begun.coroutine, begun.context, begun.awaited
    try:
        while True:
            try:
                value = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                awaited = context.run(coroutine.throw, error)
            else:
                awaited = context.run(coroutine.send, value)
    except StopIteration as returned:
        return returned.value


def _arguments(operation: StepOperation) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What to call the step's function with. Fresh copies of everything that can change: what the step does to its
    arguments must not reach the workflow, which would see the change live and miss it on replay."""
    return (operation.args, {}) if operation.args is not None else operation.spec.arguments.decode(operation.data)


def _recorded_arguments(operation: StepOperation) -> tuple[Raw, int]:
    data = operation.data
    kept = Raw(data) if len(data) <= limits.RECORDED_ARGUMENTS_BYTES_MAX else journal.ABSENT
    return kept, operation.arguments_digest()


def call_retry_hooks(resident: Resident) -> None:
    """Tell `on_retry` hooks about attempts whose failure is now recorded. A hook that raises is only logged."""
    hooks, resident.hooks = resident.hooks, ()
    for outcome in hooks:
        operation, body = outcome.operation, outcome.body
        if not isinstance(body, (journal.StepRetry, journal.StepFailed)) or operation.spec.on_retry is None:
            continue
        next_at = body.next_at if isinstance(body, journal.StepRetry) else None
        failed = FailedAttempt(resident.id, operation.location, body.attempt, decode_error(body.error), next_at)
        try:
            operation.spec.on_retry(failed)
        except Exception:
            logger.exception("the on_retry hook of step %r raised", operation.location)


native.bind_steps({
    "StepRunner": StepRunner, "Attempt": Attempt, "Waits": Waits, "Resident": Resident, "Outcome": Outcome,
    "StepOperation": StepOperation, "StepSpec": StepSpec, "ValueCodec": ValueCodec, "StepDone": StepDone, "Raw": Raw,
    "ABSENT": journal.ABSENT, "UNREAD": UNREAD, "step_context": step_context,
    "RECORDED_ARGUMENTS_BYTES_MAX": limits.RECORDED_ARGUMENTS_BYTES_MAX, "PLAIN": PLAIN, "Turn": Turn, "Inbox": Inbox,
})  # fmt: skip
