"""One run: records in, commands out.

`deliver(record)` hands one record to workflow code, lets it run until it is idle, and returns what it asked for.
`replay(records, frontier)` rebuilds a run from its journal and checks that the code still matches. Everything a
run does is a pure function of the records it was given; the engine around it decides which records come next and
makes them durable.

Life of a run object

    Run(spec, ...) -> deliver(Started) -> deliver(...)* -> outcome set -> close()
                  or  replay(records)  -> deliver(...)* -> ...

Raises `Diverged` (the code changed), `NotDecodable`, `Forbidden` (the code ended by one), `Spinning` or `Stuck` out of
`deliver` and `replay`: the engine parks the run. After that, or after `close`, the object is only good for the garbage
collector.

Over 600 lines, and still one thing: the meeting point of loop, journal, operations and commands, which each have their
own module; what is here changes together.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.futures import Future
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar
from zlib import crc32

import msgspec
from msgspec import Raw

from perdure import limits, native
from perdure.errors import (
    BadArgument,
    ChildCancelled,
    ChildFailed,
    Diverged,
    Forbidden,
    InboxFull,
    NotStorable,
    RunConflict,
    RunFinished,
    RunNotFound,
    Stuck,
    TooLarge,
)
from perdure.kernel import answers, changes, collector, journal
from perdure.kernel.codec import UNREAD, ValueCodec, codec_for
from perdure.kernel.commands import (
    CancelStep,
    Command,
    Complete,
    Continue,
    Effect,
    EndCancelled,
    Fail,
    Log,
    Mark,
    Note,
    Outcome,
    RunStep,
    SendItem,
    StartChild,
    Warn,
)
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy, EventSpec, EventTypes, StepSpec, WorkflowSpec
from perdure.kernel.divergence import ended_early, frontier_mismatch, record_mismatch
from perdure.kernel.draws import Draws
from perdure.kernel.faults import decode_error, encode_error, is_recorded, tame, with_attempts
from perdure.kernel.generators import OpenGenerator
from perdure.kernel.iterations import Loops
from perdure.kernel.journal import ABSENT, LoopState, Record, StepDone
from perdure.kernel.loop import (
    POLLS_LOOKED_FOR_AFTER,
    POLLS_MAX,
    UNWATCHED,
    Post,
    RunCallback,
    RunFuture,
    RunLoop,
    RunTask,
    StepName,
    batch,
    current_task,
    make_loop,
    path_of,
    run_handle,
)
from perdure.kernel.operation import (
    Branch,
    ChildOperation,
    EffectOperation,
    Frontier,
    LoopOperation,
    Operation,
    PublishOperation,
    ReceiveOperation,
    ReplyOperation,
    SendOperation,
    StepOperation,
    TimerOperation,
    WatchOperation,
    detail_of,
)
from perdure.kernel.pending import Pending
from perdure.kernel.sites import caller_site
from perdure.kernel.teardown import close_tasks

Op = TypeVar("Op", bound=Operation)


class OpenSaga(Protocol):
    """What the run needs from a saga (`kernel.saga`)."""

    is_undoing: bool

    def holds_anything(self) -> bool: ...

    def cancel(self) -> None: ...


ArgumentsCheck = Literal["off", "warn", "park"]
#: What becomes of I/O in workflow code: see `kernel.guard`.
IOCheck = Literal["off", "warn", "refuse"]

#: Location of the timer that ends a cancelled run which does not come to an end by itself.
GRACE_LOCATION = "cancel-grace"

#: Async generators that a workflow left open are closed so many at a time.
_CLOSED_AT_ONCE = 1_000

_ANY = codec_for(Any)
_STEP = StepOperation.kind_digest
_NONE: frozenset[str] = frozenset()
_NOTHING: frozenset[int] = frozenset()


class _Shared(dict[str, Any]):
    """What most runs never have, shared and never put into: a thousand runs are many dictionaries. A class of its own,
    because msgspec gives every object a dictionary of its own where the default is a plain one."""


_NO_VALUES, _NO_OPERATIONS, _NO_DEADLINES = _Shared(), _Shared(), _Shared()
_UNCHANGED = changes.NONE


class _Closing(msgspec.Struct, eq=False):
    """The workflow has come to its end, and async generators that it left open are being closed."""

    #: Tasks that were cancelled before.
    abandoned: tuple[str, ...]
    left: list[OpenGenerator]
    tasks: Sequence[RunTask] = ()


class Run(msgspec.Struct, eq=False):
    """See the module docstring. Public attributes are for reading only.

    A msgspec class, so that making one runs no Python: whoever starts a thousand runs makes as many.
    """

    spec: WorkflowSpec
    id: str
    generation: int
    latest: Callable[[str], WorkflowSpec]
    arguments_check: ArgumentsCheck = "warn"
    io_check: IOCheck = "refuse"
    post: Post = UNWATCHED
    #: Whether all that a turn has to say of the run is which steps it waits for. True when a first generation starts,
    #: and again when whoever builds turns has said everything else; made False by whatever else the code asks for.
    is_plain: bool = False
    parent_id: str | None = None
    outcome: Outcome | None = None
    replaying: bool = False
    cancel_requested: bool = False
    cancel_reason: str = ""
    custom_status: bytes | None = None
    state: dict[str, Any] = {}
    _has_state: bool = False
    last_seq: int = 0
    seed: int = 0
    closed: bool = False
    loop: RunLoop = None  # type: ignore[assignment]  # made by Started, which holds the seed
    _draws: Draws | None = None
    _main: RunTask | None = None
    pending: Pending = msgspec.field(default_factory=Pending)
    _commands: list[Command] = []
    _operations: int = 0
    _refusals: int = 0
    _patches: frozenset[str] = _NONE
    #: Values that were read without an effect, by location; see `noted`.
    _noted: dict[str, Raw] = _NO_VALUES
    changes: changes.Changes = _UNCHANGED
    #: Effects that were given up before they were answered. Their answers may be under way: see `_answered_late`.
    _given_up: dict[str, Operation] = _NO_OPERATIONS
    #: Events that were received and whose senders wait for a reply.
    requests: answers.Requests = {}
    _first_deadlines: dict[str, int] = _NO_DEADLINES
    _journal: Sequence[Record] = ()  # while replaying, for the divergence report
    #: Durable loops; None while there are none, as in most runs.
    loops: Loops | None = None
    #: Sagas that are neither over nor undone.
    sagas: Sequence[OpenSaga] = ()
    _closing: _Closing | None = None

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"  # what it holds is the user's, and logs show this

    # -- records in ----------------------------------------------------------------------------------------

    def deliver(self, record: Record, known: Any = UNREAD) -> list[Command]:
        """Hand over one record, run until idle, return the commands asked for since the last call.

        `known`: what the result of a step decodes to, if whoever made the record has it (`ValueCodec.scalars`).
        """
        seq, at, location, body = record.seq, record.at, record.location, record.body
        self.last_seq = seq
        loop = self.loop
        if loop is not None and at > loop.now:
            loop.now = at
        if self.loops is not None:
            self.loops.note(seq, location)
        if type(body) is StepDone:  # before all others: most records are
            pending = self.pending
            operations = pending.operations
            step = operations.get(location)
            if type(step) is not StepOperation:
                raise record_mismatch(self.id, record, self._unexplained())
            pending.remove(step)
            if self.replaying and body.digest != crc32(step.data):
                self._check_arguments(step, body.digest)
            if known is UNREAD:
                spec = step.spec
                known = spec.result.decode(body.value, spec.what)
            self._go_on(step, known)
        else:
            self._hand_over(record)
            self._run_until_idle()
        return self.take_commands()

    def deliver_result(self, seq: int, at: int, step: StepOperation, value: Any) -> list[Command]:
        """`deliver` for a record that somebody else makes: a pending step has returned what the code will see as is."""
        self.last_seq = seq
        loop = self.loop
        if at > loop.now:
            loop.now = at
        if self.loops is not None:
            self.loops.note(seq, step.location)
        self.pending.remove(step)
        self._go_on(step, value)
        return self.take_commands()

    def _go_on(self, step: StepOperation, value: Any) -> None:
        step.take_future().set_result(value)
        self.loop.drain()
        if self.outcome is not None or not self.pending.operations or self._main.done():  # type: ignore[union-attr]
            self._see_what_ended()

    def _hand_over(self, record: Record) -> None:
        """Any record but a step's result."""
        if self._given_up and self._answered_late(record):
            return
        body = record.body
        match body:
            case journal.Started():
                self._start(record, body)
            case journal.TimerFired():
                self._settle(record, TimerOperation).fire()
            case journal.EventReceived():
                receive = self._settle(record, ReceiveOperation)
                event = receive.types.specs.get(body.type)
                if event is None or receive.wanted:
                    raise record_mismatch(self.id, record, self._unexplained(), accepted=receive)
                value = event.codec.decode(body.value, f"the recorded event {body.type!r}")
                if body.request:
                    answers.note_request(self.requests, value, body.request)
                receive.take_future().set_result(value)
            case journal.StepRetry():
                step = self._expect(record, StepOperation)
                if self.replaying:
                    self._check_arguments(step, body.digest)
                step.attempts = body.attempt
                step.next_at = body.next_at
                self.pending.back_off(step)
            case journal.StepFailed():
                step = self._settle(record, StepOperation)
                if self.replaying:
                    self._check_arguments(step, body.digest)
                future = step.take_future()
                self.loop.watch_waiters(future)
                future.set_exception(with_attempts(decode_error(body.error), body.attempt))
            case journal.ChildStarted():
                self._child_started(record, body)
            case journal.ChildDone():
                child = self._settle(record, ChildOperation)
                child.future.set_result(child.spec.result.decode(body.value, f"the result of child {child.child_id!r}"))
            case journal.ChildFailed():
                child = self._settle(record, ChildOperation)
                failure = ChildFailed(
                    f"child {child.child_id!r} failed: {body.error.type.partition(':')[2]}: {body.error.message}"
                )
                failure.__cause__ = decode_error(body.error)
                child.future.set_exception(failure)
            case journal.ChildCancelled():
                child = self._settle(record, ChildOperation)
                child.future.set_exception(
                    ChildCancelled(f"child {child.child_id!r} was cancelled: {body.reason or 'no reason given'}")
                )
            case journal.Sent():
                self._sent(record, body)
            case journal.PatchChosen() | journal.Recorded() | journal.LoopState():
                pass  # looked up when the code asks; see `patched` and `replay`
            case journal.EventsReceived():
                receive = self._settle(record, ReceiveOperation)
                found = answers.events_of(receive, body, self.requests) if receive.wanted else None
                if found is None:
                    raise record_mismatch(self.id, record, self._unexplained(), accepted=receive)
                receive.take_future().set_result(found)
            case journal.Published():
                self._settle(record, PublishOperation).take_future().set_result(None)
            case journal.Replied():
                self._settle(record, ReplyOperation).take_future().set_result(None)
            case journal.RunWatched():
                watch = self._expect(record, WatchOperation)
                watch.is_watched = True
                if body.refused:
                    answers.refuse_watch(self._settle(record, WatchOperation))
            case journal.RunEnded():
                answers.settle_watch(self._settle(record, WatchOperation), body)
            case journal.CancelRequested():
                self._cancel(body)
            case journal.Hurried():
                self.pending.hurry(record.location, self.now)
            case journal.Resumed():
                self.pending.begin_again(self.now)
            case journal.Continued() | journal.Completed() | journal.Failed() | journal.Cancelled():
                # Only met when replaying a finished generation: the code must have come to its end as well.
                if self._closing is not None and self.outcome is None:
                    self._close_no_more(self._closing)
                if self.outcome is None and not isinstance(body, journal.Cancelled):
                    raise record_mismatch(self.id, record, self._unexplained())
            case _:  # a new kind of body must say here what it does to a run
                raise AssertionError(f"no delivery for {type(body).__name__}")

    def replay(self, records: Sequence[Record], frontier: Frontier | None) -> list[Command]:
        """Rebuild the run. Returns the commands still to be carried out; those already answered are left out.

        Records up to the frontier are replayed in silence; later ones (written by the last commit, not yet seen
        by the code) are delivered live.
        """
        seen = frontier.seq if frontier is not None else 0
        journal.check_semantics(records)
        kinds = {type(record.body) for record in records}  # most journals have few, and are gone through only once
        if journal.PatchChosen in kinds:
            self._patches = frozenset(r.location for r in records if isinstance(r.body, journal.PatchChosen))
        if journal.Recorded in kinds:
            self._noted = {r.location: r.body.value for r in records if isinstance(r.body, journal.Recorded)}
        if LoopState in kinds:
            self.loops = Loops(records)
        if frontier is not None:
            self._first_deadlines = frontier.deadlines | {
                w.location: w.deadline for w in frontier.operations if w.kind == "timer" and w.deadline
            }
        self.replaying = True
        self._journal = records
        try:
            with batch():
                commands = self._replay(records, kinds, frontier, seen)
        except Diverged as error:
            raise self.changes.explained(error, self.pending) from error.__cause__
        return [command for command in commands if _still_wanted(command)]

    def _replay(
        self, records: Sequence[Record], kinds: set[type[journal.Body]], frontier: Frontier | None, seen: int
    ) -> list[Command]:
        taken_back = changes.taken_back(records) if journal.Resumed in kinds else _NOTHING
        loops = self.loops
        commands: list[Command] = []
        for index, record in enumerate(records):
            if loops is not None:
                commands += self._resume_loops(loops, record.seq)
            if self.replaying and record.seq > seen:
                commands += self._end_replay(frontier)
            if record.seq in taken_back or (self.changes is not changes.NONE and self.changes.passes_over(record)):
                self.last_seq, self.loop.now = record.seq, max(record.at, self.loop.now)
                if loops is not None:
                    loops.note(record.seq, record.location)
                continue
            if self.outcome is not None and not _is_end(record) and record.location not in self._given_up:
                raise ended_early(self.id, records[index:], self._raised())
            if loops is not None and self._pass_over(loops, record):
                continue
            commands += self.deliver(record)
        if loops is not None:
            commands += self._resume_loops(loops, limits.NEVER)
        if self.replaying:
            commands += self._end_replay(frontier)
        return commands

    def _resume_loops(self, loops: Loops, seq: int) -> list[Command]:
        """Loops whose next iteration began before the record at `seq` was delivered go on, at the time it was then."""
        points = list(loops.due(seq))
        for record in points:
            state = record.body
            if not isinstance(state, LoopState):
                raise AssertionError(f"record {record.seq} is no state of a loop")
            self.loop.now = max(self.loop.now, state.now)
            if state.status:
                self.custom_status = bytes(state.status)
            if state.values:
                self.state = _ANY.decode(state.values, f"the state of run {self.id!r}")
            self._settle(record, LoopOperation).resume(state)
        if points:
            self._run_until_idle()
        return self.take_commands()

    def _pass_over(self, loops: Loops, record: Record) -> bool:
        """Whether a record need not be delivered: an iteration that is not repeated, or what stands in for it."""
        if isinstance(record.body, LoopState):
            loops.note_state(record.seq, record.location)
        elif loops.is_past(record):
            loops.note(record.seq, record.location)
        else:
            return False
        self.last_seq = record.seq
        return True

    def _end_replay(self, frontier: Frontier | None) -> list[Command]:
        """The code is where it was when the frontier was stored. Returns what is still to be done for it."""
        self.replaying = False
        self._journal = ()
        self._first_deadlines = _NO_DEADLINES
        self._check_frontier(frontier)
        if frontier is not None:
            if frontier.untold or frontier.unchecked:
                answers.watch_again(self.pending)
            else:
                self.pending.receives_changed = False  # what it waits for now was stored with the frontier
        return [request for operation in self.pending if (request := _request(operation)) is not None]

    def _check_frontier(self, frontier: Frontier | None) -> None:
        if frontier is None or frontier.unchecked:
            return
        if self.changes.withdrawn(frontier):
            # The code went on from where it waited: what it asks for now is new. The rest must still be there.
            rest = self.changes.rest(frontier)
            if any(waiting.location not in self.pending for waiting in rest.operations):
                raise self._frontier_mismatch(rest, list(self.pending))
            return
        asked: list[Operation] = []
        if frontier.count != len(self.pending) or frontier.digest != self.pending.digest:
            asked = list(self.pending)
        elif not (asked := _retyped(frontier, self.pending)):
            return
        raise self._frontier_mismatch(frontier, asked)

    def _frontier_mismatch(self, frontier: Frontier, asked: Sequence[Operation]) -> Diverged:
        return frontier_mismatch(self.id, frontier, asked, ended=self.outcome is not None, raised=self._raised())

    def _raised(self) -> BaseException | None:
        """What the code ended with, if it raised."""
        main = self._main
        return None if main is None or not main.done() or main.cancelled() else main.exception()

    def take_commands(self) -> list[Command]:
        """What was asked for outside of `deliver`: by code that was closed."""
        commands, self._commands = self._commands, []
        return commands

    # -- what the engine asks ------------------------------------------------------------------------------

    @property
    def draws(self) -> Draws:
        """The run's source of chance. Made on first use: its state is large, and most runs never draw."""
        if self.loops is not None and (scope := self.loop.branch().scope) is not None:
            return scope.draws
        if self._draws is None:
            self._draws = Draws(self.seed)
        return self._draws

    @property
    def now(self) -> int:
        """The run's time: the timestamp of the last delivered record, in microseconds."""
        return self.loop.now if self.loop is not None else 0

    def frontier(self) -> bytes:
        return self.pending.frontier(self.last_seq)

    def check_state(self, key: str, value: Any) -> None:
        """Refuse what cannot be stored where it is put, rather than at the commit."""
        _ANY.encode(value, f"state[{key!r}] of run {self.id!r}")

    def encoded_state(self) -> bytes | None:
        """The run's `state`, or None while nothing was ever put into it."""
        if not self.state and not self._has_state:
            return None
        self._has_state = True
        return _ANY.encode(self.state, f"the state of run {self.id!r}")

    def close(self) -> None:
        """Drop the run from memory: close its coroutines here and now, with commands disabled.

        Left to the garbage collector they would run their `finally` blocks anywhere, at any time.
        """
        if self.closed:
            return
        self.closed = True
        if self.loop is None:
            return
        close_tasks(self.loop)
        # Cut the cycles, so that a run's memory comes back at once and not at some garbage collection.
        if self.pending.operations:
            self.pending.clear()
        self._commands.clear()
        self.requests.clear()
        self._main = None

    # -- what workflow code asks (through `kernel.verbs`) -----------------------------------------------------

    def ask_step(self, spec: StepSpec, args: tuple[Any, ...] | None, data: bytes, site: str) -> StepOperation:
        """Ask for a step. Whoever awaits its future must `give_up` the step when that is cancelled: the future is one
        of asyncio's own, which does not tell, because those are waited for and woken up from in C."""
        loop = self.loop
        if (self.outcome is not None or self.closed) and self._is_ending():
            return _never(StepOperation(spec.name, 0, 0, site, spec, args, data, future=Future(loop=loop)))
        self._operations = number = self._operations + 1
        task = current_task(loop)
        location = (task.branch if type(task) is RunTask else loop.branch()).locate(spec.name)
        digest = crc32(location.encode(), _STEP)
        step = StepOperation(
            location, number, loop.now, site, spec, args, data, future=Future(loop=loop), digest=digest
        )
        if not self.replaying:
            self._commands.append(RunStep(step))
        pending = self.pending  # `Pending.add`, without the call: every step comes by
        pending.operations[location] = step
        pending.digest += digest
        return step

    def ask_timer(self, name: str, at: int, fire: Callable[[], None], site_depth: int = 2) -> TimerOperation:
        if self.outcome is not None or self.closed:
            # Without raising: asyncio sets timers where it does not expect to be cancelled.
            return _never(TimerOperation(name, 0, 0, "", limits.NEVER, fire))
        self.is_plain = False
        location = self._locate(name)
        # The deadline a replay derives can only differ if the code's duration changed; the first one stands.
        at = self._first_deadlines.get(location, at)
        site = caller_site(site_depth) or self.loop.branch().site
        timer = TimerOperation(location, self._count(), self.now, site, at, fire)
        self.pending.add(timer)
        self._watch(timer)
        return timer

    def ask_receive(self, types: EventTypes, name: str, site: str) -> tuple[ReceiveOperation, RunFuture]:
        if self._is_ending():
            return _never(ReceiveOperation(name, 0, 0, site, types)), RunFuture(loop=self.loop)
        self.is_plain = False
        receive = ReceiveOperation(self._locate(name), self._count(), self.now, site, types)
        return receive, self._wait_for(receive)

    def ask_child(
        self, spec: WorkflowSpec, data: bytes, child_id: str | None, detached: bool, site: str
    ) -> ChildOperation:
        if self._is_ending():
            late = _never(ChildOperation(spec.name, 0, 0, site, spec, "", data, detached))
            late.started = late.future = RunFuture(loop=self.loop)
            return late
        location = self._locate(spec.name)
        if child_id is None:
            child_id = self._child_id(location)
        child = ChildOperation(location, self._count(), self.now, site, spec, child_id, data, detached)
        child.started = RunFuture(loop=self.loop)
        child.future = RunFuture(loop=self.loop)
        child.future.operation = child
        self.pending.add(child)
        self._watch(child)
        if not self.replaying:
            self._commands.append(StartChild(child))
        return child

    def ask_send(
        self,
        target: str,
        type: str,  # noqa: A002
        data: bytes,
        dedup: str | None,
        is_cancel: bool,
        name: str,
        site: str,
        policy: EventPolicy = DEFAULT_POLICY,
    ) -> RunFuture:
        if self._is_ending():
            return RunFuture(loop=self.loop)
        send = SendOperation(self._locate(name), self._count(), self.now, site, target, type, data, dedup, is_cancel)
        send.policy = policy
        if not self.replaying:
            self._commands.append(SendItem(send))
        return self._wait_for(send)

    def ask_publish(self, event: EventSpec, data: bytes, name: str, site: str) -> RunFuture:
        if self._is_ending():
            return RunFuture(loop=self.loop)
        return self._ask_effect(PublishOperation(self._locate(name), self._count(), self.now, site, data, event))

    def ask_reply(self, request: str, data: bytes, name: str, site: str) -> RunFuture:
        if self._is_ending():
            return RunFuture(loop=self.loop)
        return self._ask_effect(ReplyOperation(self._locate(name), self._count(), self.now, site, data, request))

    def ask_watch(self, run_id: str, name: str, site: str) -> RunFuture:
        if self._is_ending():
            return RunFuture(loop=self.loop)
        return self._ask_effect(WatchOperation(self._locate(name), self._count(), self.now, site, b"", run_id))

    def _ask_effect(self, operation: EffectOperation) -> RunFuture:
        if not self.replaying:
            self._commands.append(Effect(operation))
        return self._wait_for(operation)

    def take_request(self, event: Any) -> str:
        return answers.take_request(self.requests, event)

    def note_request(self, event: Any, request: str) -> None:
        answers.note_request(self.requests, event, request)

    def cancel_child(self, child: ChildOperation, site: str, *, wanted: bool = False) -> None:
        """Ask a child to cancel. Unless `wanted`, nobody waits for its end any more."""
        if child.settled or child.detached:
            return
        if child.is_running:
            self._send_cancel(child, site)
        elif not wanted:
            self._note_given_up(child)
        if not wanted:
            self.withdraw(child)

    def _send_cancel(self, child: ChildOperation, site: str) -> None:
        location = f"{child.location}/cancel"
        send = SendOperation(
            location, self._count(), self.now, site, child.child_id, "cancel",
            f"its parent {self.id!r} was cancelled".encode(), None, True,
        )  # fmt: skip
        send.future = RunFuture(loop=self.loop)
        send.awaited = False
        if location not in self.pending:
            self.pending.add(send)
            if child.scope is not None:
                child.scope.watch(send)
            if not self.replaying:
                self._commands.append(SendItem(send))

    def _watch(self, operation: TimerOperation | ChildOperation) -> None:
        """An iteration of a loop must not end before what was asked for in it, also if nobody waits for that."""
        if self.loop.iterations and (scope := self.loop.branch().scope) is not None:
            scope.watch(operation)
            if isinstance(operation, ChildOperation):
                operation.scope = scope

    # -- durable loops (see `kernel.iterations`) ---------------------------------------------------------------

    def open_loops(self) -> Loops:
        if self.loops is None:
            self.is_plain = False
            self.loops = Loops()
        return self.loops

    def ask_loop(self, location: str, resume: Callable[[LoopState], None]) -> None:
        self.pending.add(LoopOperation(location, self._count(), self.now, "", resume))

    def loop_state(self, iteration: int, data: bytes) -> LoopState:
        """What a replay needs to go on after this iteration."""
        status, values = self.custom_status, self.encoded_state()
        return LoopState(
            iteration,
            Raw(data),
            self.last_seq,
            self.now,
            ABSENT if status is None else Raw(status),
            ABSENT if values is None else Raw(values),
        )

    def forget_patches(self, path: str) -> None:
        """An iteration is over, and with it what was chosen in it."""
        if self._patches:
            self._patches = frozenset(one for one in self._patches if not one.startswith(f"{path}/")) or _NONE

    def patched(self, patch_id: str) -> bool:
        """Whether the code from here on may take the new way. Recorded, so that every replay answers the same."""
        if self._is_ending():
            return False
        location = self._locate(f"patched({patch_id})")
        if location in self._patches:
            return True
        if self.replaying:
            return False
        self._patches |= {location}
        self._commands.append(Mark(location, caller_site(2)))
        return True

    def noted(self, name: str, read: Callable[[], bytes]) -> bytes:
        """A value of this process, read once: written with the next commit, and given again by every replay.

        For what has no effect outside: if the process dies before that commit nobody has seen the value, and another
        one is as good. So code that reads one more, or one less, than the journal knows is no divergence.
        """
        if self._is_ending():
            return read()
        location = self._locate(name)
        known = self._noted.pop(location, None)
        if known is not None:
            return bytes(known)
        data = read()
        self._commands.append(Note(location, data, caller_site(2)))
        return data

    def removed(self, name: str, kind: str) -> None:
        """An operation that stood here is gone: its place stays taken, its records are passed over."""
        if not self._is_ending():
            self.changes = self.changes.without(self._locate(name), kind, caller_site(2))

    def continue_as(self, spec: WorkflowSpec, data: bytes) -> None:
        if self._is_ending():
            return
        if any(saga.holds_anything() for saga in self.sagas):
            raise BadArgument(
                f"run {self.id!r} cannot continue_as inside a saga: how to undo what was done would be forgotten. "
                "Leave the `async with saga()` block first."
            )
        self.outcome = Continue(spec, data)
        self.loop.stopped = True

    def set_status(self, value: Any) -> None:
        self.is_plain = False
        self.custom_status = _ANY.encode(value, f"the status of run {self.id!r}")

    def log(self, level: int, message: str, args: tuple[Any, ...]) -> None:
        if not self.replaying:
            self._commands.append(Log(level, message, args))

    def complain(self, message: str) -> None:
        if not self.replaying and not self.closed:
            self._commands.append(Warn(message))

    def complain_of(self, text: str) -> None:
        self.complain(f"run {self.id!r}: {text}")

    def can_rest(self) -> bool:
        """Whether something will come of waiting, or the code has come to its end."""
        return bool(self.pending.operations) or self.outcome is not None or self._main is None or self._main.done()

    def withdraw(self, operation: Operation) -> None:
        """Nobody waits for this operation any more. It leaves no trace."""
        self.pending.remove(operation)

    def _is_ending(self) -> bool:
        """Whether a request comes too late: from a cancelled leftover task, or a finally block of a closed run.

        The first time it raises CancelledError. Code that swallows even that, in a loop, would keep the worker busy
        for ever, so later requests are answered with something that never happens, which makes the code suspend
        (tests/kernel/test_teardown.py).
        """
        if self.outcome is None and not self.closed:
            return False
        self._refusals += 1
        if self._refusals == 1:
            raise asyncio.CancelledError(f"run {self.id!r} has ended")
        return True

    # -- operations ------------------------------------------------------------------------------------------

    def _locate(self, name: str) -> str:
        return self.loop.branch().locate(name)

    def _count(self) -> int:
        self._operations += 1
        return self._operations

    def _wait_for(self, operation: Operation) -> RunFuture:
        future = operation.future = RunFuture(loop=self.loop)
        future.operation = operation
        self.pending.add(operation)
        return future

    def give_up(self, operation: Operation) -> None:
        """Whoever waited for this operation was cancelled: stop what was begun for it."""
        if operation.settled:
            return
        if isinstance(operation, ChildOperation):
            self.cancel_child(operation, operation.site)
            return
        self.pending.remove(operation)
        if type(operation) in _ANSWERS:
            self._note_given_up(operation)
        if operation.future is not None:
            operation.take_future()
        if isinstance(operation, StepOperation) and not self.closed and not self.replaying:
            self._commands.append(CancelStep(operation.location))

    def _note_given_up(self, operation: Operation) -> None:
        if self._given_up is _NO_OPERATIONS:
            self._given_up = {}
        self._given_up[operation.location] = operation

    def _answered_late(self, record: Record) -> bool:
        """Whether this answers an effect that was given up after the turn with it was taken.

        Answers of one turn are delivered one by one, and the first may make the code give up what the others are for
        (tests/events/test_given_up_answers.py). What was carried out stays so, but a child is asked to cancel.
        """
        operation = self._given_up.get(record.location)
        if operation is None or type(record.body) is not _ANSWERS.get(type(operation)):
            return False
        del self._given_up[record.location]
        if isinstance(operation, ChildOperation) and isinstance(record.body, journal.ChildStarted):
            operation.is_running = not record.body.refused
            if operation.is_running:
                self._send_cancel(operation, operation.site)
        return True

    def _expect(self, record: Record, kind: type[Op]) -> Op:
        operation = self.pending.get(record.location)
        if type(operation) is not kind:
            raise record_mismatch(self.id, record, self._unexplained())
        return operation

    def _settle(self, record: Record, kind: type[Op]) -> Op:
        operation = self._expect(record, kind)
        self.pending.remove(operation)
        if isinstance(operation, ChildOperation):
            operation.future.operation = None  # its handle keeps the future; see `Operation.take_future`
        return operation

    def _unexplained(self) -> list[Operation]:
        """Pending operations that no later record speaks of: what the code asks for instead."""
        explained = {record.location for record in self._journal if record.seq > self.last_seq}
        unexplained = [operation for operation in self.pending if operation.location not in explained]
        return unexplained or list(self.pending)

    def _check_arguments(self, step: StepOperation, recorded: int) -> None:
        if self.arguments_check == "off" or not recorded or recorded == step.arguments_digest():
            return
        message = (
            f"step {step.location!r} of run {self.id!r} was recorded with other arguments than the code gives now "
            f"({step.site}). Its recorded result is used."
        )
        if self.arguments_check == "park":
            raise record_mismatch(self.id, None, [step], note=message)
        self._commands.append(Warn(message))

    # -- particular records ------------------------------------------------------------------------------------

    def _start(self, record: Record, body: journal.Started) -> None:
        self.loop = make_loop(self, body.seed, self.post)
        self.loop.now = record.at
        self.seed = body.seed
        self.is_plain = self.generation == 1
        self.parent_id = body.parent
        if body.state:
            self.state = _ANY.decode(body.state, f"the state of run {self.id!r}")
        args, kwargs = self.spec.arguments.decode(body.input)
        coroutine = self.spec.function(*args, **kwargs)
        # An empty context: what the host happens to have set must not leak into a replay.
        self._main = RunTask(coroutine, self.loop, self.loop.root, contextvars.Context())
        self.loop._tasks.append(self._main)

    def _child_started(self, record: Record, body: journal.ChildStarted) -> None:
        child = self._expect(record, ChildOperation)
        if body.refused:
            self.pending.remove(child)
            error = RunConflict(
                f"a run {body.child_id!r} already exists with another workflow or input, so it cannot be a child."
            )
            for future in (child.started, child.future):
                if not future.done():
                    future.set_exception(error)
                    # Only one of the two is awaited; the other must not complain that nobody looked.
                    future.exception()
            return
        child.is_running = True
        if child.detached:
            self.pending.remove(child)
        if not child.started.done():
            child.started.set_result(None)
        elif not child.detached:  # whoever asked for it was cancelled meanwhile: nobody has its handle
            self.cancel_child(child, child.site)

    def _sent(self, record: Record, body: journal.Sent) -> None:
        send = self._settle(record, SendOperation)
        future = send.take_future()
        if future.done():
            return
        if not body.refused or send.is_cancel:
            future.set_result(not body.refused)
            return
        match body.refused:
            case "not_found":
                future.set_exception(RunNotFound(f"no run has the id {body.target!r}."))
            case "full":
                future.set_exception(
                    InboxFull(f"run {body.target!r} has too many unread events of type {body.type!r}.")
                )
            case _:
                future.set_exception(RunFinished(f"run {body.target!r} has ended and takes no more events."))

    def _cancel(self, body: journal.CancelRequested) -> None:
        if self.cancel_requested or self.outcome is not None or self._main is None:
            return
        self.cancel_requested = True
        self.cancel_reason = body.reason
        if body.grace_until:
            timer = TimerOperation(GRACE_LOCATION, self._count(), self.now, "", body.grace_until, self._grace_is_over)
            self.pending.add(timer)
        self._main.cancel(body.reason or None)
        if self._closing is not None:
            self._closing.left.clear()
            for task in self._closing.tasks:
                task.cancel(body.reason or None)

    def _grace_is_over(self) -> None:
        if self.sagas:
            self.complain(f"run {self.id!r} was ended by its cancel grace before its sagas were undone.")
        self.outcome = EndCancelled(self.cancel_reason, terminated=True)
        self.loop.stopped = True

    def _child_id(self, location: str) -> str:
        generation = f"~{self.generation}" if self.generation > 1 else ""
        child_id = f"{self.id}{generation}/{location}"
        if len(child_id.encode()) > limits.RUN_ID_BYTES_MAX:
            raise BadArgument(
                f"the id of the child at {location!r} would be longer than {limits.RUN_ID_BYTES_MAX} bytes. "
                "Give it one: start_child(..., id=...)."
            )
        return child_id

    # -- running and ending ------------------------------------------------------------------------------------

    def _run_until_idle(self) -> None:
        if self.outcome is None:
            self.loop.drain()
        self._see_what_ended()

    def _see_what_ended(self) -> None:
        """The code is idle: because it waits, because it has come to its end, or for no reason that anybody knows."""
        if self.outcome is not None:
            if not self.closed and isinstance(self.outcome, (Continue, EndCancelled)):
                self._wind_up(cancel_tasks=False)
        elif self._main is not None and self._main.done():
            if self._is_undoing_sagas() and self.pending:
                return
            if self.loop.generators is None:
                self._finish(self._main)
            elif not self._is_closing_generators(self._main):
                self._end(self._main, self._wind_up(cancel_tasks=True, main=self._main))
        elif not self.pending:
            raise Stuck(
                f"run {self.id!r} waits for something that perdure does not know, so nothing could ever wake it: "
                f"{self._where()}. Wait for a step, a sleep, an event or a child instead."
            )

    def _is_undoing_sagas(self) -> bool:
        """Whether the end has to wait: a saga in some task that is left (the loser of a race) is undone first."""
        if not self.sagas:
            return False
        for saga in list(self.sagas):
            saga.cancel()
        self.loop.drain()
        return any(saga.is_undoing for saga in self.sagas)

    def _is_closing_generators(self, main: RunTask) -> bool:
        """Whether the end has to wait: async generators that were left open are closed first, as `asyncio.run` does.

        Tasks that are left go before, since they may be using some. What the cleanup asks for is durable. One that is
        left in a cycle is closed here, and not when a collection finds it: that moment is another one on every replay
        (tests/plain_python/test_collections.py).
        """
        closing = self._closing
        if closing is None:
            abandoned = self._wind_up(cancel_tasks=True, main=main, keep_grace=True)
            generators = self.loop.generators
            closing = self._closing = _Closing(abandoned, [] if generators is None else generators.to_close())
        while True:
            unfinished = [task for task in closing.tasks if not task.done()]
            if unfinished:
                if self.pending:
                    return True
                for task in unfinished:  # they wait for something that perdure does not know
                    task.cancel("the workflow ended")
                self.loop.drain()
                if self.pending:
                    return True
            if not closing.left:
                return False
            # Not all at once: a turn may only run so many callbacks.
            closing.tasks = self.loop.close_generators(closing.left[:_CLOSED_AT_ONCE])
            del closing.left[:_CLOSED_AT_ONCE]
            self.loop.drain()

    def _close_no_more(self, closing: _Closing) -> None:
        """A replay has come to the recorded end: of a run that ended before perdure waited for its generators."""
        closing.left.clear()
        if self._main is not None:
            self._end(self._main, self._wind_up(cancel_tasks=True, main=self._main))

    def _finish(self, main: RunTask) -> None:
        self._end(
            main,
            self._wind_up(cancel_tasks=True, main=main)
            if self.pending or len(self.loop._tasks) > 1 or self.loop.failed_tasks is not None
            else (),
        )

    def _end(self, main: RunTask, abandoned: tuple[str, ...]) -> None:
        if self._closing is not None:
            abandoned = self._closing.abandoned + abandoned
        if main.cancelled():
            error: BaseException | None = asyncio.CancelledError("workflow code raised CancelledError by itself")
        else:
            error = main.exception()
        if main.cancelled() and self.cancel_requested:
            self.outcome = EndCancelled(self.cancel_reason, abandoned=abandoned)
        elif error is not None:
            error = tame(error)
            refused = _refusal_in(error)
            if refused is not None:
                # The code is at fault, and other code can mend it: parked, with nothing of this turn kept.
                raise refused
            self.outcome = Fail(encode_error(error), abandoned)
        else:
            self.outcome = self._completed(main.result(), abandoned)

    def _completed(self, value: Any, abandoned: tuple[str, ...]) -> Outcome:
        try:
            return Complete(
                Raw(self.spec.result.encode(value, f"the result of workflow {self.spec.name!r}")), abandoned
            )
        except (NotStorable, TooLarge) as error:
            return Fail(encode_error(error), abandoned)

    def _wind_up(self, *, cancel_tasks: bool, main: RunTask | None = None, keep_grace: bool = False) -> tuple[str, ...]:
        """Let go of whatever still runs when the workflow ends: tasks are cancelled in the order of creation,
        steps too, children are asked to cancel. Nothing new is started on the way."""
        left = [task for task in self.loop.unfinished_tasks() if task is not main]
        abandoned = tuple(path_of(task) for task in left) if cancel_tasks else ()
        for operation in list(self.pending):
            if isinstance(operation, ChildOperation):
                self.cancel_child(operation, operation.site)
            elif isinstance(operation, StepOperation):
                self.pending.remove(operation)
                self._commands.append(CancelStep(operation.location))
        if abandoned:
            self._drain_cancelled(left)
            names = ", ".join(repr(path) for path in abandoned)
            self.complain(f"run {self.id!r} ended while tasks were still running; they were cancelled: {names}.")
        for operation in list(self.pending):
            # Cancel requests to children, and what was asked for in the last turn, are still to be carried out.
            if not isinstance(operation, (SendOperation, PublishOperation, ReplyOperation)) and not (
                keep_grace and operation.location == GRACE_LOCATION
            ):
                self.pending.remove(operation)
                if type(operation) in _ANSWERS:
                    self._note_given_up(operation)
        for text in self.loop.take_forgotten(main):
            self.complain_of(text)
        return abandoned

    def _drain_cancelled(self, left: list[RunTask]) -> None:
        placeholder = EndCancelled("")  # makes every further request of these tasks raise CancelledError
        self.outcome = placeholder
        for task in left:
            task.cancel("the workflow ended")
        self.loop.drain()
        self.outcome = None

    def _where(self) -> str:
        for task in self.loop.unfinished_tasks():
            stack = task.get_stack(limit=1)
            if stack:
                return f"{stack[-1].f_code.co_name}, line {stack[-1].f_lineno} of {stack[-1].f_code.co_filename}"
        return "no task is left"


def _refusal_in(error: BaseException) -> Forbidden | None:
    """What the code was not allowed to do, if that is why it ended; not an error of this kind that a step raised."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for member in error.exceptions if (found := _refusal_in(tame(member))) is not None), None)
    return error if isinstance(error, Forbidden) and not is_recorded(error) else None


def _never(operation: Op) -> Op:
    """An operation that is not part of the run: nothing will ever settle it, withdrawing it does nothing."""
    operation.settled = True
    return operation


def _request(operation: Operation) -> Command | None:
    """The command that a pending operation stands for, if it is one the engine has to carry out."""
    match operation:
        case StepOperation():
            return RunStep(operation)
        case ChildOperation():
            return None if operation.is_running else StartChild(operation)
        case SendOperation():
            return SendItem(operation)
        case EffectOperation():
            return None if isinstance(operation, WatchOperation) and operation.is_watched else Effect(operation)
        case _:
            return None


def _retyped(frontier: Frontier, pending: Pending) -> list[Operation]:
    """Receives that no longer take a type they took when they were asked for. Taking more is no harm."""
    return [
        operation
        for waiting in frontier.operations
        if isinstance(operation := pending.get(waiting.location), ReceiveOperation)
        and not set(waiting.detail.split(" or ")) <= set(detail_of(operation).split(" or "))
    ]


#: The records that answer effects, by the operations that ask for them.
_ANSWERS: dict[type[Operation], type[journal.Body]] = {
    SendOperation: journal.Sent,
    PublishOperation: journal.Published,
    ReplyOperation: journal.Replied,
    WatchOperation: journal.RunWatched,
    ChildOperation: journal.ChildStarted,
}


def _still_wanted(command: Command) -> bool:
    match command:
        case RunStep(operation) | StartChild(operation) | SendItem(operation):
            return not operation.settled and not (isinstance(operation, ChildOperation) and operation.is_running)
        case Effect(operation):
            return not operation.settled and not (isinstance(operation, WatchOperation) and operation.is_watched)
        case CancelStep():
            return False  # nothing of a run that was just loaded is under way
        case Mark() | Note() | Log() | Warn():
            return True


def _is_end(record: Record) -> bool:
    return isinstance(
        record.body,
        (
            journal.Completed,
            journal.Failed,
            journal.Cancelled,
            journal.Continued,
            journal.Sent,
            journal.Published,
            journal.Replied,
            journal.Resumed,
            # Written beside the last thing the code did, so behind the record that brought it to its end.
            journal.PatchChosen,
            journal.Recorded,
        ),
    )


collector.install()
native.bind_kernel({
    "RunLoop": RunLoop, "RunCallback": RunCallback, "RunTask": RunTask, "Post": Post, "Run": Run, "Pending": Pending,
    "Branch": Branch, "StepSpec": StepSpec, "StepOperation": StepOperation, "RunStep": RunStep, "Record": Record,
    "StepName": StepName, "Started": journal.Started, "StepDone": StepDone, "Row": journal.Row, "Complete": Complete,
    "Raw": Raw, "WorkflowSpec": WorkflowSpec, "ValueCodec": ValueCodec, "Future": Future, "current_task": current_task,
    "init_task": asyncio.tasks.Task.__init__, "get_running_loop": asyncio._get_running_loop,
    "set_running_loop": asyncio._set_running_loop, "UNREAD": UNREAD, "encode_json": msgspec.json.Encoder().encode,
    "POLLS_LOOKED_FOR_AFTER": POLLS_LOOKED_FOR_AFTER, "POLLS_MAX": POLLS_MAX,
    "run_handle": run_handle, "step_digest": _STEP, "limits": vars(limits),
})  # fmt: skip
