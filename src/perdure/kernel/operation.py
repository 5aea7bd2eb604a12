"""Operations: durable requests of workflow code, where they are (locations), and what a run waits for.

A location is a readable path that is the same on every replay: the path of the branch (one for each task the
run creates) and a name, with `#n` from its second use in that branch. `charge`, `charge#2`, `fetch-all/user/get`.

Operations are plain slotted objects owned by one `Run`; nothing outside the kernel changes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure import limits
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy, EventSpec, EventTypes, StepSpec, WorkflowSpec
from perdure.native import in_c

if TYPE_CHECKING:
    from perdure.kernel.iterations import Iteration
    from perdure.kernel.journal import LoopState


class Branch(msgspec.Struct, eq=False):
    """Where a task of the run stands; counts the names used in it so that each operation gets its own location."""

    path: str = ""
    #: A task made of a single operation (`gather(ship(), notify())`) lends its own path to it, so that
    #: wrapping a step in a task does not change its location: `ship`, not `ship/ship`. False once it has.
    single: bool = False
    #: Where the task was made, for an operation in it that no code of the user's asks for (`gather(sleep(1))`).
    site: str = ""
    #: The iteration of a durable loop that everything in this branch is part of.
    scope: Iteration | None = None
    counts: dict[str, int] | None = None  # made when it is needed, which it is not in the branch of a single operation
    #: In library code (`kernel.branches`): tasks in it are called `task`, whatever the library calls them.
    names_no_tasks: bool = False

    def below(self, path: str) -> Branch:
        """A branch inside of this one."""
        return Branch(path, scope=self.scope, names_no_tasks=self.names_no_tasks)

    def locate(self, name: str) -> str:
        """The location of the next operation called `name` in this branch."""
        if self.single:
            self.single = False
            return self.path
        counts = self.counts
        if counts is None:
            counts = self.counts = {}
        counts[name] = count = counts.get(name, 0) + 1
        if count > 1:
            name = f"{name}#{count}"
        return f"{self.path}/{name}" if self.path else name


class _Fate(msgspec.Struct, eq=False, kw_only=True):
    """What becomes of an operation. Apart from the rest only so that these fields come last."""

    settled: bool = False
    future: Any = None
    #: Tells it from others at other locations or of other kinds; set when it is pending.
    digest: int = 0


class Operation(_Fate, eq=False):
    """Base of everything a run can wait for. `kind` is what people and divergence reports call it.

    A msgspec class because one is made for every step, and those are made without running any Python.
    """

    kind: ClassVar[str] = ""
    kind_digest: ClassVar[int] = 0

    location: str
    number: int
    asked_at: int
    site: str

    def __init_subclass__(cls, **_options: object) -> None:
        cls.kind_digest = zlib.crc32(cls.kind.encode())

    def take_future(self) -> Any:
        """The future to settle. Cuts the tie between the two: each step would otherwise leave a cycle of three objects
        for the garbage collector, whose full collections stop a busy worker for tens of milliseconds."""
        future, self.future = self.future, None
        future.operation = None
        return future

    def deadline(self) -> int | None:
        """When this operation wants to be looked at, if time matters to it."""
        return None

    def describe(self) -> str:
        return f"{self.kind} {self.location!r}"


class StepOperation(Operation, eq=False):
    """A step that has been asked for and has no outcome yet."""

    kind = "step"

    spec: StepSpec
    #: What to call it with; None: decode `data` for each attempt.
    args: tuple[Any, ...] | None
    data: bytes
    #: Recorded failures.
    attempts: int = 0
    next_at: int = 0

    def take_future(self) -> Any:
        future, self.future = self.future, None
        return future

    def deadline(self) -> int | None:
        return self.next_at or None

    def arguments_digest(self) -> int:
        return zlib.crc32(self.data)


class TimerOperation(Operation, eq=False):
    """A sleep or a timeout. Setting it writes nothing: its deadline follows from the journal."""

    kind = "timer"

    at: int
    fire: Callable[[], None]

    def deadline(self) -> int | None:
        return self.at


class ReceiveOperation(Operation, eq=False):
    """A wait for one event of some types; with `wanted` set, for so many."""

    kind = "receive"

    types: EventTypes
    #: Which events it takes, if not all of its types; what it said of each, by event id.
    match: Callable[[Any], object] | None = None
    judged: dict[int, bool] | None = None
    #: How many events it takes at once; 0: one, handed over as itself.
    wanted: int = 0
    #: Whether it takes what is there, without waiting for more.
    time_is_over: bool = False

    def describe(self) -> str:
        return f"{self.kind} {self.location!r} of {self.types.names()}"


class ChildOperation(Operation, eq=False):
    """A child run: asked for, then started, then ended. `started` is settled first, `future` last."""

    kind = "child"

    spec: WorkflowSpec
    child_id: str
    data: bytes
    detached: bool
    is_running: bool = False
    started: Any = None
    #: The iteration of a loop in which it was asked for.
    scope: Any = None
    #: Whether the code goes on when the child has started, rather than when it has ended.
    awaits_start: bool = False


class SendOperation(Operation, eq=False):
    """An event or a cancel request on its way to another run."""

    kind = "send"

    target: str
    type: str
    data: bytes
    dedup: str | None
    is_cancel: bool
    policy: EventPolicy = DEFAULT_POLICY
    #: Whether the code waits for it to have left.
    awaited: bool = True


class LoopOperation(Operation, eq=False):
    """Only in a replay: a loop that stands still until the replay has passed the iterations it need not repeat."""

    kind = "loop"

    resume: Callable[[LoopState], None]


class EffectOperation(Operation, eq=False):
    """Something that becomes part of the turn's commit and is answered by the record written there."""

    data: bytes


class PublishOperation(EffectOperation, eq=False):
    """An event on its way to whoever is to have it."""

    kind = "publish"

    event: EventSpec


class ReplyOperation(EffectOperation, eq=False):
    """The answer to a request, on its way to whoever asked."""

    kind = "reply"

    request: str


class WatchOperation(EffectOperation, eq=False):
    """A wait for the end of another run: asked for, then watched, then ended."""

    kind = "wait_for_run"

    run_id: str
    is_watched: bool = False


# -- what a run waits for, seen from outside --------------------------------------------------------------


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One pending operation, as other processes see it."""

    kind: str
    location: str
    since: int
    deadline: int | None = None
    site: str = ""
    detail: str = ""


class Frontier(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Stored with every turn: how far the code had run, and what it was then waiting for.

    Three uses. People see why a run is not moving. A replay knows which records the code has already seen
    (`seq`), so logs are not repeated. And code that changed without yet contradicting a record is caught
    all the same: after replaying to `seq` it must wait for exactly these operations (`count`, `digest`).
    """

    seq: int
    count: int
    digest: int
    operations: tuple[Waiting, ...] = ()
    #: Deadlines of timers that are not among the operations shown.
    deadlines: dict[str, int] = {}
    #: Made from outside (a resumed or forked run), where nobody could know what the code will wait for.
    unchecked: bool = False
    #: Of a run that was brought in from outside: its store does not know yet which events and ends it waits for.
    untold: bool = False


_encode_frontier = msgspec.json.Encoder().encode
_frontier_decoder = msgspec.json.Decoder(Frontier)


def detail_of(operation: Operation) -> str:
    match operation:
        case StepOperation(attempts=0):
            return ""
        case ReceiveOperation():
            return operation.types.names()
        case ChildOperation():
            return operation.child_id
        case StepOperation():
            return f"after {operation.attempts} failed attempt{'s' if operation.attempts > 1 else ''}"
        case SendOperation():
            return operation.target
        case WatchOperation():
            return operation.run_id
        case PublishOperation():
            return operation.event.name
        case _:
            return ""


def _waiting(operation: Operation) -> Waiting:
    if type(operation) is StepOperation and not operation.attempts:  # the usual case, without any calls
        return Waiting("step", operation.location, operation.asked_at, None, operation.site)
    return Waiting(
        operation.kind,
        operation.location,
        operation.asked_at,
        operation.deadline(),
        operation.site,
        detail_of(operation),
    )


@in_c
def encode_step_frontier(seq: int, step: StepOperation) -> bytes:
    """The frontier of a run that waits for one step, which has not failed yet, and for nothing else."""
    waiting = Waiting("step", step.location, step.asked_at, None, step.site)
    return _encode_frontier(Frontier(seq, 1, step.digest, (waiting,)))


def encode_frontier(
    seq: int, count: int, digest: int, operations: Iterable[Operation], timers: Iterable[TimerOperation]
) -> bytes:
    if not count:
        return _encode_frontier(Frontier(seq, 0, digest))
    shown = tuple([_waiting(o) for o in islice(operations, limits.FRONTIER_OPERATIONS_MAX)])
    if count <= limits.FRONTIER_OPERATIONS_MAX:
        return _encode_frontier(Frontier(seq, count, digest, shown))
    deadlines = {timer.location: timer.at for timer in islice(timers, limits.FRONTIER_DEADLINES_MAX)}
    return _encode_frontier(Frontier(seq, count, digest, shown, deadlines))


def unchecked_frontier(seq: int) -> bytes:
    """A frontier that only says how far the code had run."""
    return _encode_frontier(Frontier(seq, 0, 0, unchecked=True))


def decode_frontier(data: bytes) -> Frontier:
    return _frontier_decoder.decode(data)


def told_again(frontier: bytes | None) -> bytes | None:
    """The same frontier for another store, which has to be told what the run waits for. Damage is left as it is: the
    run is parked for it when it is loaded."""
    if frontier is None:
        return None
    try:
        found = decode_frontier(frontier)
    except msgspec.MsgspecError:
        return frontier
    return _encode_frontier(msgspec.structs.replace(found, untold=True))
