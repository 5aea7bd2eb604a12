"""The deterministic event loop: stock asyncio on a ready queue and recorded timers, no selector, no clock.

Each run has its own loop. A worker pumps it from a plain callback of the host loop with `drain`, never from
inside a host task (newer Pythons allow one current task per thread). What it cannot offer deterministically
(sockets, executors, subprocesses, signals) raises `Forbidden` and names the way out (`eventloop.refused`).

Tasks and futures hash to numbers that are the same on every replay (`eventloop.tasks`); `eventloop.ordering` sees to
what asyncio makes without asking the loop.

Over 450 lines and 25 methods, and still one thing: most of them are the interface of an asyncio event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import sys
from asyncio import events
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar

from perdure import limits
from perdure.errors import BadArgument, Spinning
from perdure.kernel.eventloop import cancel_scopes
from perdure.kernel.eventloop.callbacks import (
    POLLS_LOOKED_FOR_AFTER,
    POLLS_MAX,
    TIMER_NAMES,
    RunCallback,
    RunTimer,
    take_repeated,
)
from perdure.kernel.eventloop.forgotten import FailedTasks, is_unseen, report, reported
from perdure.kernel.eventloop.generators import Generator as AsyncGenerator
from perdure.kernel.eventloop.generators import OpenGenerator, OpenGenerators
from perdure.kernel.eventloop.hosting import NO_MONITOR, TurnMonitor, running
from perdure.kernel.eventloop.refused import refuse_io
from perdure.kernel.eventloop.tasks import RunFuture, RunTask, current_task, is_of_step, single_operation_codes
from perdure.kernel.locations import Branch
from perdure.kernel.sites import caller_site, stop_at
from perdure.kernel.values.faults import summary

if TYPE_CHECKING:
    from perdure.kernel.operations.base import Operation
    from perdure.kernel.operations.timer import TimerOperation

T = TypeVar("T")


_get_running_loop, _set_running_loop = events._get_running_loop, events._set_running_loop

MICROSECONDS = 1_000_000


class LoopOwner(Protocol):
    """What the loop needs from its run."""

    def ask_timer(self, name: str, at: int, fire: Callable[[], None]) -> TimerOperation: ...

    def withdraw(self, operation: Operation) -> None: ...

    def give_up(self, operation: Operation) -> None: ...

    def complain_of(self, text: str) -> None: ...

    def can_rest(self) -> bool: ...


# On Python 3.11 `wait_for` runs its coroutine in a task of its own, from 3.12 on it awaits it in place (except for a
# timeout of zero). Giving that task the branch of its parent makes locations, and so journals, the same everywhere.
_WAIT_FOR_CODE, _WAIT_FOR_GLOBALS = asyncio.wait_for.__code__, asyncio.wait_for.__globals__
#: Frames between `_branch_for` and `wait_for`: ensure_future, before 3.12 with a helper of its own, and create_task.
_WAIT_FOR_DEPTH = 4 if sys.version_info < (3, 12) else 3


class RunLoop(asyncio.AbstractEventLoop):
    """See the module docstring. `now` is the run's time in microseconds, moved only by records."""

    #: Tells it from other loops where its class is not known.
    is_of_run: Final = True

    __slots__ = (
        "_compact_at",
        "_numbers",
        "_ready",
        "_tasks",
        "failed_tasks",
        "generators",
        "iterations",
        "monitor",
        "now",
        "overdue",
        "owner",
        "root",
        "running",
        "stopped",
    )  # fmt: skip

    def __init__(self, owner: LoopOwner | None, seed: int, monitor: TurnMonitor) -> None:
        self.owner: LoopOwner | None = owner
        self.monitor = monitor
        self._ready: list[RunCallback] = []  # an empty deque takes 760 bytes
        self._numbers = (seed & 0xFFFF_FFFF) << 20
        self.now = 0
        self.root = Branch()
        self.running = False
        self.stopped = False
        self._tasks: list[RunTask] = []
        self._compact_at = 64
        #: Iterations of durable loops under way. What is made in one is numbered there (`kernel.iterations`).
        self.iterations = 0
        #: None while the code has begun no async generator.
        self.generators: OpenGenerators | None = None
        #: None while no task has failed.
        self.failed_tasks: FailedTasks | None = None
        #: Set by a watchdog that has given up on this turn; raises what the turn ends with.
        self.overdue: Callable[[], NoReturn] | None = None

    # -- used by the run ---------------------------------------------------------------------------------

    def next_number(self) -> int:
        if self.iterations and (scope := self.branch().scope) is not None:
            return scope.next_number()
        self._numbers += 1
        return self._numbers

    def drain(self) -> None:
        """Run callbacks until none is ready. Raises `Spinning` if that never happens.

        A function of its own around what does it: on the stack its frame says where the code of the run begins.
        """
        if self._ready and not self.stopped:
            self._run_ready()

    def _run_ready(self) -> None:
        ready = self._ready
        current = _get_running_loop()
        if current is not self:
            if type(current) is not RunLoop:
                with running(self):
                    self._run_ready()
                return
            # Inside the turns of a batch, or of a replay: the host is put back after the last of them.
            _set_running_loop(self)
        self.running = True
        self.monitor.loop = self
        try:
            most = limits.TURN_CALLBACKS_MAX
            first = POLLS_LOOKED_FOR_AFTER if most > POLLS_LOOKED_FOR_AFTER else most
            for handle in islice(ready, first):  # it grows meanwhile
                try:
                    handle.context.run(*handle.call)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"exception": error})
                if self.stopped:
                    return
            if len(ready) > first:
                self._run_on(ready, first, most)
        finally:
            ready.clear()
            self.running = False
            self.monitor.loop = None
            if self.overdue is not None:
                self.overdue()

    def _run_on(self, ready: list[RunCallback], count: int, most: int) -> None:
        """The rest of a long turn."""
        while count < len(ready):
            if count >= most:
                self._complain_of_spinning()
            if len(ready) - count < POLLS_MAX:
                self._run_polling(ready, count)
                return
            before, count = count, min(count + POLLS_LOOKED_FOR_AFTER, most)
            for handle in islice(ready, before, count):
                self._run_one(handle)
                if self.stopped:
                    return

    def _run_one(self, handle: RunCallback) -> None:
        try:
            handle.context.run(*handle.call)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.call_exception_handler({"exception": error})

    def _run_polling(self, ready: list[RunCallback], count: int) -> None:
        """The rest of a turn that has run many callbacks and has few to go: perhaps one that calls itself again until
        something has changed, as a cancel scope of anyio does while a task in it goes on waiting. Nothing changes
        without a record, so it waits for the next one (tests/plain_python/test_anyio.py)."""
        polls: list[RunCallback] = []
        while True:
            while count < len(ready):
                if count >= limits.TURN_CALLBACKS_MAX:
                    self._complain_of_spinning()
                handle, known = ready[count], len(ready)
                count += 1
                self._run_one(handle)
                if self.stopped:
                    return
                polls += take_repeated(handle, ready, known)
            if not polls or self.owner is None or self.owner.can_rest():
                self._ready = polls
                return
            ready += polls
            polls.clear()

    def _complain_of_spinning(self) -> NoReturn:
        raise Spinning(
            f"workflow code ran {limits.TURN_CALLBACKS_MAX:,} callbacks in one turn without waiting for "
            "anything durable. Look for a loop that awaits what is always ready."
        )

    def begin_generator(self, generator: AsyncGenerator) -> None:
        if self.generators is None:
            self.generators = OpenGenerators()
        task = current_task(self)
        self.generators.begin(self, generator, self.branch(), task.context if type(task) is RunTask else None)

    def close_generator(self, entry: OpenGenerator, generator: AsyncGenerator, parent: Branch) -> RunTask:
        """Run the `finally` of an async generator that was left in the middle, in a task of its own, as asyncio."""
        entry.is_closing = True
        branch = parent.below(parent.locate("aclose"))
        task = self.spawn(generator.aclose(), branch, entry.context)
        self.watch(task)
        return task

    def close_generators(self, entries: Iterable[OpenGenerator]) -> list[RunTask]:
        """Close those that are still open."""
        return [
            self.close_generator(entry, generator, entry.branch)
            for entry in entries
            if (generator := entry.generator()) is not None
        ]

    def close_quietly(self) -> None:
        """Let go of everything that could still refer to this loop."""
        self.stopped = True
        self._tasks.clear()
        self._ready.clear()
        self.owner = None
        if self.generators is not None:
            self.generators.forget()

    def branch(self) -> Branch:
        """The branch of the task that is running now."""
        task = current_task(self)
        if type(task) is RunTask:
            return task.branch
        return self.root if task is None else self.adopt(task)

    def adopt(self, task: Any) -> Branch:
        """The branch of a task that was made without asking the loop: of a subclass of `asyncio.Task`, or directly, by
        code that had the class before perdure was imported. It gets one here, when it first asks for something."""
        branch: Branch | None = getattr(task, "perdure_branch", None)
        if branch is None:
            parent = self.root if current_task(self) is task else self.branch()
            name = getattr(task.get_coro(), "__name__", None) or type(task).__name__
            branch = task.perdure_branch = parent.below(parent.locate(_name_in(parent, name)))
            self._tasks.append(task)
            self.watch(task)
            if parent.scope is not None:
                parent.scope.add_task(task)
        return branch

    def unfinished_tasks(self) -> list[RunTask]:
        """Tasks still running, in the order of their creation."""
        return [task for task in self._tasks if not task.done()]

    # -- what asyncio asks of a loop -----------------------------------------------------------------------

    def time(self) -> float:
        return self.now / MICROSECONDS

    def call_soon(  # type: ignore[override]
        self, *call: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """`call` is the callback and its arguments."""
        handle = RunCallback(call, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle  # type: ignore[return-value]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        if math.isnan(when) or limits.NEVER / MICROSECONDS < when < math.inf:
            raise BadArgument(
                "a timer needs a finite delay of at most a century. To wait without end, wait for an event."
            )
        if context is None:
            context = contextvars.copy_context()
        timer = RunTimer(when, callback, args, self, context)
        timer.operation = None
        timer.queued = queued = RunCallback((callback, *args), context)
        if when == math.inf:  # as on any loop: code that waits until it is cancelled, such as `anyio.sleep_forever`
            return timer
        at = round(when * MICROSECONDS)
        if at <= self.now:
            self._ready.append(queued)
        else:
            name = TIMER_NAMES.get(getattr(callback, "__name__", ""), "timer")
            if self.owner is not None:
                timer.operation = self.owner.ask_timer(name, at, lambda: self._ready.append(queued))
        return timer

    def _timer_handle_cancelled(self, timer: RunTimer) -> None:
        timer.queued.cancel()
        if timer.operation is not None and self.owner is not None:
            self.owner.withdraw(timer.operation)

    def create_future(self) -> asyncio.Future[Any]:
        return RunFuture(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: object = None,
        context: contextvars.Context | None = None, **_options: Any,
    ) -> asyncio.Task[T]:  # fmt: skip
        is_step = is_of_step(coro)
        if cancel_scopes.is_new():
            cancel_scopes.put_in_order(current_task(self))
        if is_step:
            # The usual member of a gather, located as if there were no task, so that it does not matter who made that.
            parent = self.branch()
            branch = Branch(parent.locate(coro.__name__), True, "", parent.scope)  # type: ignore[union-attr]
        else:
            branch = self._branch_for(coro)
        # `name` is ignored for the location: TaskGroup passes it here only from Python 3.13 on.
        task = self.spawn(coro, branch, context)
        if not is_step:  # those fail by a record, and are watched from then on
            self.watch(task)
        if name is not None:
            task.set_name(name)
        return task

    def spawn(self, coroutine: Any, branch: Branch, context: contextvars.Context | None = None) -> RunTask:
        """A task in a branch of its own choice."""
        task = RunTask(coroutine, self, branch, context)
        if branch.scope is not None:
            branch.scope.add_task(task)
        made = self._tasks
        made.append(task)
        if len(made) >= self._compact_at:
            self._tasks = self.unfinished_tasks()
            self._compact_at = max(64, 4 * len(self._tasks))
        return task

    def watch(self, task: RunTask) -> None:
        """Report it if this task fails and nobody asks for its outcome (`kernel.eventloop.forgotten`)."""
        task.add_done_callback(_note_failure, context=_NO_CONTEXT)

    def watch_waiters(self, future: Any) -> None:
        """The same for the task of a step whose future is about to fail."""
        for callback, _ in future._callbacks or ():
            task = getattr(callback, "__self__", None)
            if type(task) is RunTask and is_of_step(task.get_coro()):
                self.watch(task)

    def forget_ended_tasks(self) -> None:
        self._tasks = self.unfinished_tasks()

    def take_forgotten(self, main: RunTask | None) -> list[str]:
        """What is to be said, when the run ends, of tasks whose exception nobody has looked at. The main one's is how
        the run ends."""
        earlier = [] if self.failed_tasks is None else self.failed_tasks.take()
        return earlier + reported([task for task in self._tasks if task is not main and task.done()])

    def _branch_for(self, coroutine: Any) -> Branch:
        parent = self.branch()
        caller = sys._getframe(_WAIT_FOR_DEPTH)
        # The globals first: for a look at the code Python calls the audit hook (`engine.guarding`).
        if caller.f_globals is _WAIT_FOR_GLOBALS and caller.f_code is _WAIT_FOR_CODE:
            return parent
        name = getattr(coroutine, "__name__", None) or type(coroutine).__name__
        single = getattr(coroutine, "cr_code", None) in single_operation_codes
        frame = getattr(coroutine, "cr_frame", None)
        if single and frame is not None:
            name = frame.f_locals.get("name", name)  # a verb that was given a name of its own
        branch = parent.below(parent.locate(name if single else _name_in(parent, name)))
        if single:
            branch.single, branch.site = True, caller_site(2)
        return branch

    def is_running(self) -> bool:
        return self.running

    def is_closed(self) -> bool:
        return False

    #: `bool()` is False, and C code. asyncio asks for every future and task.
    get_debug = staticmethod(bool)  # pyright: ignore[reportAssignmentType]

    def set_debug(self, enabled: bool) -> None:
        return None

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        text = _text_of(context)
        if self.owner is not None and self.running and _get_running_loop() is self:
            self.owner.complain_of(text)
        elif not self.stopped:  # said by a collection, which comes at other moments on every replay
            self.failed_tasks = self.failed_tasks or FailedTasks()
            self.failed_tasks.keep(text)

    async def shutdown_asyncgens(self) -> None:
        return None


#: For callbacks of the loop's own.
_NO_CONTEXT = contextvars.Context()


def _name_in(parent: Branch, name: str) -> str:
    """What a task of this name is called in the locations of its branch."""
    return "task" if parent.names_no_tasks else name


def _note_failure(task: Any) -> None:
    if is_unseen(task):
        loop: RunLoop = task.get_loop()
        loop.failed_tasks = loop.failed_tasks or FailedTasks()
        loop.failed_tasks.add(loop, task)


def _text_of(context: dict[str, Any]) -> str:
    """What asyncio tells its exception handler, for people."""
    error, source = context.get("exception"), context.get("future")
    if error is not None and isinstance(source, asyncio.Task):
        return report(source.get_name(), error)
    what = str(context.get("message") or "unhandled exception in workflow code")
    return what if error is None else f"{what}: {summary(error)}"


refuse_io(RunLoop)
# Whatever a newer asyncio adds is missing here, and says so when it is called rather than when a run starts.
setattr(RunLoop, "__abstractmethods__", frozenset())  # noqa: B010


stop_at(RunLoop.drain.__code__)


def batch() -> running:
    """For a worker, around many turns: one way in and out of the host's loop for all of them."""
    return running(between_runs)


def make_loop(owner: LoopOwner | None, seed: int, monitor: TurnMonitor = NO_MONITOR) -> RunLoop:
    loop_class: Any = RunLoop  # for type checkers it is abstract: they do not see what the loop above added
    return loop_class(owner, seed, monitor)  # type: ignore[no-any-return]


#: Runs between the turns of a batch: a loop of no run.
between_runs = make_loop(None, 0)
