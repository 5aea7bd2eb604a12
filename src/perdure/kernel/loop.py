"""The deterministic event loop: stock asyncio on a ready queue and recorded timers, no selector, no clock.

Each run has its own loop. A worker pumps it from a plain callback of the host loop with `drain`, never from
inside a host task (newer Pythons allow one current task per thread). What it cannot offer deterministically
(sockets, executors, subprocesses, signals) raises `Forbidden` and names the way out.

asyncio keeps tasks and futures in sets, whose order follows their hash, which is their address. Ours hash to a number
that is the same on every replay (offset by the run's seed, so that runs do not collide in asyncio's global registries).
`kernel.ordering` sees to what asyncio makes without asking the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import sys
from _thread import get_ident
from asyncio import events, tasks
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NoReturn, Protocol, TypeVar

import msgspec

from perdure import limits
from perdure.errors import BadArgument, Forbidden, Spinning
from perdure.kernel import cancel_scopes
from perdure.kernel.faults import summary
from perdure.kernel.forgotten import FailedTasks, is_unseen, report, reported
from perdure.kernel.generators import Generator as AsyncGenerator
from perdure.kernel.generators import OpenGenerator, OpenGenerators, entry_of
from perdure.kernel.operation import Branch, Operation, TimerOperation
from perdure.kernel.sites import caller_site, stop_at
from perdure.native import in_c

T = TypeVar("T")

MICROSECONDS = 1_000_000


class LoopOwner(Protocol):
    """What the loop needs from its run."""

    def ask_timer(self, name: str, at: int, fire: Callable[[], None], site_depth: int = ...) -> TimerOperation: ...

    def withdraw(self, operation: Operation) -> None: ...

    def give_up(self, operation: Operation) -> None: ...

    def complain_of(self, text: str) -> None: ...

    def can_rest(self) -> bool: ...


class RunFuture(asyncio.Future[Any]):
    """A future that hashes to a number of its own, given at first use. With an `operation`, cancelling it tells the run
    that nobody waits for that any more. Made with `RunFuture(loop=loop)`. Those of steps are asyncio's own (0094)."""

    __slots__ = ("_number", "operation")
    _number: int
    operation: Operation | None

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop: Any = self.get_loop()
            self._number = number = int(loop.next_number())
            return number

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        operation: Operation | None = getattr(self, "operation", None)
        if cancelled and operation is not None:
            loop: Any = self.get_loop()
            if loop.owner is not None:
                loop.owner.give_up(operation)
        return cancelled


#: Without `super()`, which makes an object to look it up: a wide run has many tasks.
_init_task: Callable[..., None] = asyncio.Task.__init__


class RunTask(asyncio.Task[Any]):
    """A task that hashes to its creation number and knows its branch, and the context that its code runs in (asyncio
    tells that only from Python 3.12 on)."""

    __slots__ = ("_number", "branch", "context")

    def __init__(self, coroutine: Any, loop: RunLoop, branch: Branch, context: contextvars.Context | None) -> None:
        if hasattr(self, "branch"):  # Python 3.12 crashes where a task that runs is made anew
            raise RuntimeError("a task is initialised once.")
        # All before asyncio's own part, which puts the task into a WeakSet and so hashes it.
        self._number = loop.next_number() if branch.scope is None else branch.scope.next_number()
        self.branch = branch
        if context is None:
            context = contextvars.copy_context()
        self.context = context
        _init_task(self, coroutine, loop=loop, name=branch.path or "main", context=context)

    def __hash__(self) -> int:
        return self._number


def path_of(task: Any) -> str:
    """The path of a task of a run, also of one that the loop did not make (`RunLoop.adopt`)."""
    branch: Branch = task.branch if type(task) is RunTask else task.perdure_branch
    return branch.path


#: A turn looks for callbacks that call themselves again each time it has run so many, if only so many are left then.
POLLS_LOOKED_FOR_AFTER, POLLS_MAX = 4096, 64
#: What is left of a callback that was cancelled: a call that does nothing.
_NOTHING = (tuple,)


class RunCallback(msgspec.Struct, eq=False):
    """What `call_soon` returns: an `asyncio.Handle` in all but its class, which is slow to make, and one is made for
    every callback."""

    #: The callback and its arguments.
    call: tuple[Any, ...]
    context: contextvars.Context
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.call = _NOTHING  # not looked at before it is called: few are ever cancelled

    def cancelled(self) -> bool:
        return self.is_cancelled

    def get_context(self) -> contextvars.Context:
        return self.context


def run_handle(handle: RunCallback) -> None:
    """For the accelerated `_run_ready`: run a handle that code has changed."""
    handle.context.run(*handle.call)


def _take_repeated(handle: RunCallback, ready: list[RunCallback], known: int) -> list[RunCallback]:
    """Callbacks that `handle` has put behind the `known` ones and that do the same again."""
    function, *args = handle.call
    if type(function) not in (MethodType, FunctionType):
        return []
    repeated = [
        one
        for one in ready[known:]
        if one.call[0] == function
        and len(one.call) == len(args) + 1
        and all(theirs is ours for theirs, ours in zip(one.call[1:], args, strict=True))
    ]
    if repeated:
        ready[known:] = [one for one in ready[known:] if one not in repeated]
    return repeated


class RunTimer(asyncio.TimerHandle):
    """A `call_at` handle. `operation` is None when it was due at once and only went through the ready queue."""

    __slots__ = ("operation", "queued")
    operation: TimerOperation | None
    #: What is put into the ready queue when its time has come.
    queued: RunCallback


class entered:  # reads as what it does: `with entered(loop): ...`
    """Makes a run's loop the running one, whatever the host runs; puts everything back at the end.

    A worker enters once for all the turns of a batch: inside, another run's loop simply takes the place of the last.
    """

    __slots__ = ("_before", "_loop", "context", "hooks", "host")

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self.host = _get_running_loop()
        self.hooks = sys.get_asyncgen_hooks()
        self.context = contextvars.copy_context()
        thread = get_ident()
        self._before = hosts.get(thread)
        if type(self.host) is not RunLoop:
            hosts[thread] = self
        _set_running_loop(self._loop)
        # The host's hooks would hand our async generators to the host loop.
        sys.set_asyncgen_hooks(_begin_generator, _leave_generator)

    def __exit__(self, *_: object) -> None:
        _set_running_loop(self.host)
        sys.set_asyncgen_hooks(*self.hooks)
        if self._before is None:
            del hosts[get_ident()]
        else:
            hosts[get_ident()] = self._before


#: What the host had running before runs took its place, by thread.
hosts: dict[int, entered] = {}


def _begin_generator(generator: Any) -> None:
    loop = _get_running_loop()
    if type(loop) is RunLoop and loop.owner is not None:
        loop.begin_generator(generator)


def _leave_generator(generator: Any) -> None:
    """Python hands over a generator that was left in the middle: see `kernel.generators`."""
    entry = entry_of(generator)
    loop = entry.loop() if entry is not None else None
    if entry is None or loop is None or loop.stopped or entry.is_closing:
        return  # of a run that has ended: it is simply let go
    # In a collection the host's loop is the running one (`kernel.collector`).
    if loop.running and _get_running_loop() is loop:
        loop.close_generator(entry, generator, loop.branch())
    else:
        entry.kept = generator


#: Code of coroutines that are one operation: a task made of one lends it its path (see `Branch`).
single_operation_codes: set[CodeType] = {asyncio.sleep.__code__}


class StepName(str):
    """The qualified name of a step's coroutines. Its class tells them from others: for a look at their code Python
    calls the audit hook (`engine.guarding`), which costs as much as a good part of making their task."""

    __slots__ = ()


# On Python 3.11 `wait_for` runs its coroutine in a task of its own, from 3.12 on it awaits it in place (except for a
# timeout of zero). Giving that task the branch of its parent makes locations, and so journals, the same everywhere.
_WAIT_FOR_CODE, _WAIT_FOR_GLOBALS = asyncio.wait_for.__code__, asyncio.wait_for.__globals__
#: Frames between `_branch_for` and `wait_for`: ensure_future, before 3.12 with a helper of its own, and create_task.
_WAIT_FOR_DEPTH = 4 if sys.version_info < (3, 12) else 3

#: What asyncio calls when a timer is due -> what people call that timer.
_TIMER_NAMES = {
    "_set_result_unless_cancelled": "sleep",
    "_on_timeout": "timeout",
    "_release_waiter": "timeout",
    "_handle_timeout": "timeout",
}


_get_running_loop, _set_running_loop = events._get_running_loop, events._set_running_loop

#: `asyncio.current_task`, which is written in Python before 3.12; every operation asks.
current_task: Callable[[Any], Any] = (
    getattr(tasks, "_current_tasks").get if sys.version_info < (3, 12) else asyncio.current_task  # noqa: B009
)


class Post:
    """Where another thread can see whose turn it is: the loop whose code is running, while it is.

    Written by every turn, because the frames of a thread do not tell: reading the variables of a frame from outside
    destroys them while a debugger traces it.
    """

    __slots__ = ("loop",)

    def __init__(self) -> None:
        self.loop: RunLoop | None = None


#: For runs that nobody watches.
UNWATCHED = Post()


class RunLoop(asyncio.AbstractEventLoop):
    """See the module docstring. `now` is the run's time in microseconds, moved only by records."""

    #: Tells it from other loops where its class is not known.
    is_of_run: Final = True

    __slots__ = (
        "_compact_at", "_numbers", "_ready", "_tasks", "failed_tasks", "generators", "iterations", "now", "overdue",
        "owner", "post", "root", "running", "stopped",
    )  # fmt: skip

    def __init__(self, owner: LoopOwner | None, seed: int, post: Post) -> None:
        self.owner: LoopOwner | None = owner
        self.post = post
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
        running = _get_running_loop()
        if running is not self:
            if type(running) is not RunLoop:
                with entered(self):
                    self._run_ready()
                return
            # Inside the turns of a batch, or of a replay: whoever entered puts the host back.
            _set_running_loop(self)
        self.running = True
        self.post.loop = self
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
            self.post.loop = None
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
                polls += _take_repeated(handle, ready, known)
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
            name = _TIMER_NAMES.get(getattr(callback, "__name__", ""), "timer")
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
        is_step = _is_of_step(coro)
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
        """Report it if this task fails and nobody asks for its outcome (`kernel.forgotten`)."""
        task.add_done_callback(_note_failure, context=_NO_CONTEXT)

    def watch_waiters(self, future: Any) -> None:
        """The same for the task of a step whose future is about to fail."""
        for callback, _ in future._callbacks or ():
            task = getattr(callback, "__self__", None)
            if type(task) is RunTask and _is_of_step(task.get_coro()):
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


def _is_of_step(coroutine: Any) -> bool:
    return type(getattr(coroutine, "__qualname__", None)) is StepName


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


def _forbid(name: str) -> Callable[..., NoReturn]:
    def refuse(self: RunLoop, *args: Any, **kwargs: Any) -> NoReturn:
        raise Forbidden(
            f"workflow code called loop.{name}(), which does I/O or uses threads. "
            "Move it into a function decorated with @step and await that."
        )

    refuse.__name__ = name
    return refuse


for _name in (
    "add_reader", "add_signal_handler", "add_writer", "call_soon_threadsafe", "close", "connect_accepted_socket",
    "connect_read_pipe", "connect_write_pipe", "create_connection", "create_datagram_endpoint", "create_server",
    "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo", "remove_reader",
    "remove_signal_handler", "remove_writer", "run_forever", "run_in_executor", "run_until_complete", "sendfile",
    "set_default_executor", "set_exception_handler", "set_task_factory", "shutdown_default_executor", "sock_accept",
    "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall",
    "sock_sendfile", "sock_sendto", "start_tls", "stop", "subprocess_exec", "subprocess_shell",
):  # fmt: skip
    setattr(RunLoop, _name, _forbid(_name))
# Whatever a newer asyncio adds is missing here, and says so when it is called rather than when a run starts.
setattr(RunLoop, "__abstractmethods__", frozenset())  # noqa: B010


stop_at(RunLoop.drain.__code__)


def batch() -> entered:
    """For a worker, around many turns: one way in and out of the host's loop for all of them."""
    return entered(between_runs)


@in_c
def make_loop(owner: LoopOwner | None, seed: int, post: Post = UNWATCHED) -> RunLoop:
    loop_class: Any = RunLoop  # for type checkers it is abstract: they do not see what the loop above added
    return loop_class(owner, seed, post)  # type: ignore[no-any-return]


#: Runs between the turns of a batch: a loop of no run.
between_runs = make_loop(None, 0)
