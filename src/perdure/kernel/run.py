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

Here is what all of it shares: the fields, delivery, and what operations ask of their run. What can be waited for and
what its records do: `kernel.operations`. Rebuilding: `kernel.replay`. Coming to an end: `kernel.ending`.

The class has more than 25 methods: what records do, what the engine asks and what operations use, two lines each.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Literal
from zlib import crc32

import msgspec
from msgspec import Raw

from perdure.kernel import changes, ending, marks
from perdure.kernel.commands import Command, Warn
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.divergence import record_mismatch
from perdure.kernel.ending import Closing, OpenSaga
from perdure.kernel.eventloop import collector
from perdure.kernel.eventloop.hosting import NO_MONITOR, TurnMonitor
from perdure.kernel.eventloop.loop import RunLoop, make_loop
from perdure.kernel.eventloop.tasks import RunTask
from perdure.kernel.eventloop.teardown import close_tasks
from perdure.kernel.frontier import Frontier
from perdure.kernel.iterations import Iteration, Loops
from perdure.kernel.journal import Record
from perdure.kernel.operations import timer
from perdure.kernel.operations.base import Operation, unexplained
from perdure.kernel.operations.receive import Requests
from perdure.kernel.operations.step import StepDone, StepOperation, check_arguments
from perdure.kernel.operations.timer import TimerOperation
from perdure.kernel.outcomes import Outcome
from perdure.kernel.pending import Pending
from perdure.kernel.randomness import SeededRandom
from perdure.kernel.replay import replay
from perdure.kernel.values import codec_for

ArgumentsCheck = Literal["off", "warn", "park"]
#: What becomes of I/O in workflow code: see `kernel.guard`.
IOCheck = Literal["off", "warn", "refuse"]

_ANY = codec_for(Any)


class _Shared(dict[str, Any]):
    """What most runs never have, shared and never put into: a thousand runs are many dictionaries. A class of its own,
    because msgspec gives every object a dictionary of its own where the default is a plain one."""


_NO_VALUES, _NO_OPERATIONS, _NO_DEADLINES = _Shared(), _Shared(), _Shared()


class Run(msgspec.Struct, eq=False):
    """See the module docstring. Attributes are for reading only, but by the modules named there.

    A msgspec class, so that making one runs no Python: a caller that starts a thousand runs makes as many.
    """

    spec: WorkflowSpec
    id: str
    generation: int
    latest: Callable[[str], WorkflowSpec]
    arguments_check: ArgumentsCheck = "warn"
    io_check: IOCheck = "refuse"
    monitor: TurnMonitor = NO_MONITOR
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
    #: See `kernel.randomness`.
    random: SeededRandom | None = None
    main: RunTask | None = None
    pending: Pending = msgspec.field(default_factory=Pending)
    #: What was asked for since the last delivery.
    commands: list[Command] = []
    #: How many operations were asked for, and how many requests came too late.
    asked: int = 0
    _refusals: int = 0
    #: What `kernel.marks` keeps: patches that were chosen, and values that were read, by location.
    patches: frozenset[str] = marks.NO_PATCHES
    notes: dict[str, Raw] = _NO_VALUES
    changes: changes.Changes = changes.NONE
    #: Effects that were given up before they were answered. Their answers may be under way: see `_answered_late`.
    given_up: dict[str, Operation] = _NO_OPERATIONS
    #: Events that were received and whose senders wait for a reply.
    requests: Requests = {}
    #: While replaying: deadlines of timers as they were first set, and the journal, for the divergence report.
    first_deadlines: dict[str, int] = _NO_DEADLINES
    journal: Sequence[Record] = ()
    #: Durable loops; None while there are none, as in most runs.
    loops: Loops | None = None
    #: Sagas that are neither over nor undone.
    sagas: Sequence[OpenSaga] = ()
    closing: Closing | None = None

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"  # what it holds is the user's, and logs show this

    # -- records in ----------------------------------------------------------------------------------------

    def deliver(self, record: Record) -> list[Command]:
        """Hand over one record, run until idle, return the commands asked for since the last call."""
        self.hand_over(record)
        return self.take_commands()

    def hand_over(self, record: Record) -> None:
        """The same, with the commands left to be taken."""
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
                raise record_mismatch(self.id, record, unexplained(self))
            pending.remove(step)
            if self.replaying and body.digest != crc32(step.data):
                check_arguments(self, step, body.digest)
            spec = step.spec
            self._go_on(step, spec.result.decode(body.value, spec.what))
        else:
            if not self.given_up or not self._answered_late(record):
                body.apply(self, record)
            self.run_until_idle()

    def deliver_scalar(self, seq: int, at: int, step: StepOperation, value: Any) -> list[Command]:
        """`deliver` of the record at `seq` by which a pending step returned a value that is the same decoded."""
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
        if self.outcome is not None or not self.pending.operations or self.main.done():  # type: ignore[union-attr]
            ending.look(self)

    def replay(self, records: Sequence[Record], frontier: Frontier | None) -> list[Command]:
        """Rebuild the run. Returns the commands still to be carried out; those already answered are left out."""
        return replay(self, records, frontier)

    def run_until_idle(self) -> None:
        if self.outcome is None:
            self.loop.drain()
        ending.look(self)

    def take_commands(self) -> list[Command]:
        """What was asked for outside of `deliver`: by code that was closed."""
        commands, self.commands = self.commands, []
        return commands

    # -- what records do (`Body.apply`) ------------------------------------------------------------------------

    def begin(self, at: int, seed: int, parent: str | None, arguments: Raw, state: Raw) -> None:
        """A generation starts: the workflow's function is called."""
        self.loop = make_loop(self, seed, self.monitor)
        self.loop.now = at
        self.seed = seed
        self.parent_id = parent
        if state:
            self.set_state(state)
        args, kwargs = self.spec.arguments.decode(arguments)
        coroutine = self.spec.function(*args, **kwargs)
        # An empty context: what the host happens to have set must not leak into a replay.
        self.main = RunTask(coroutine, self.loop, self.loop.root, contextvars.Context())
        self.loop._tasks.append(self.main)

    def cancel(self, reason: str, grace_until: int) -> None:
        ending.cancel(self, reason, grace_until)

    def meet_end(self, record: Record, *, forced: bool = False) -> None:
        """In a replay: the generation ended here, so the code must have, unless it was ended by force."""
        ending.close_no_more(self)
        if self.outcome is None and not forced:
            raise record_mismatch(self.id, record, unexplained(self))

    # -- what the engine asks ------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The run's time: the timestamp of the last delivered record, in microseconds."""
        return self.loop.now if self.loop is not None else 0

    def frontier(self) -> bytes:
        return self.pending.frontier(self.last_seq)

    def set_state(self, data: Raw) -> None:
        self.state = _ANY.decode(data, f"the state of run {self.id!r}")

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
        self.commands.clear()
        self.requests.clear()
        self.main = None

    # -- what operations and verbs ask -----------------------------------------------------------------------

    def is_ending(self) -> bool:
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

    def locate(self, name: str) -> str:
        return self.loop.branch().locate(name)

    def count(self) -> int:
        self.asked += 1
        return self.asked

    def scope(self) -> Iteration | None:
        """The iteration of a loop that the code is in. It must not end before what was asked for in it."""
        return self.loop.branch().scope if self.loop.iterations else None

    def ask_timer(self, name: str, at: int, fire: Callable[[], None]) -> TimerOperation:
        """For the loop of the run."""
        return timer.ask(self, name, at, fire, 3)

    def withdraw(self, operation: Operation) -> None:
        """Nothing waits for this operation any more. It leaves no trace."""
        self.pending.remove(operation)

    def give_up(self, operation: Operation) -> None:
        """The code that waited for this operation was cancelled: stop what was begun for it."""
        if not operation.settled:
            operation.give_up(self)

    def note_given_up(self, operation: Operation) -> None:
        if self.given_up is _NO_OPERATIONS:
            self.given_up = {}
        self.given_up[operation.location] = operation

    def _answered_late(self, record: Record) -> bool:
        """Whether this answers an effect that was given up after the turn with it was taken.

        Answers of one turn are delivered one by one, and the first may make the code give up what the others are for
        (tests/events/test_given_up_answers.py). What was carried out stays so, but a child is asked to cancel.
        """
        operation = self.given_up.get(record.location)
        if operation is None or type(record.body) is not operation.answered_by:
            return False
        del self.given_up[record.location]
        operation.answered_late(self, record.body)
        return True

    def can_rest(self) -> bool:
        """Whether something will come of waiting, or the code has come to its end."""
        return bool(self.pending.operations) or self.outcome is not None or self.main is None or self.main.done()

    def complain(self, message: str) -> None:
        if not self.replaying and not self.closed:
            self.commands.append(Warn(message))

    def complain_of(self, text: str) -> None:
        self.complain(f"run {self.id!r}: {text}")


collector.install()
