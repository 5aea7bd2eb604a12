"""What all operations have in common: durable requests of workflow code, pending until a record settles them.

Operations are plain slotted objects owned by one `Run`; nothing outside the kernel changes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from msgspec import Raw

from perdure.kernel.commands import Command, Effect
from perdure.kernel.divergence import record_mismatch
from perdure.kernel.effects import Entry, RunKey
from perdure.kernel.eventloop.tasks import RunFuture
from perdure.kernel.journal import Body, Record

if TYPE_CHECKING:
    from perdure.kernel.frontier import Waiting
    from perdure.kernel.items import ChildNotice
    from perdure.kernel.run import Run

Op = TypeVar("Op", bound="Operation")

#: Every kind of operation, by what people call it.
KINDS: dict[str, type[Operation]] = {}


class Asker(msgspec.Struct, frozen=True, gc=False):
    """The run that asks, as the runs that it creates and the store know it."""

    key: RunKey
    run_id: str
    generation: int
    #: The worker that goes on with new children.
    worker_id: str
    #: The seed of a new run, by its id and generation.
    draw_seed: Callable[[str, int], int]


class _Settlement(msgspec.Struct, eq=False, kw_only=True):
    """How an operation is settled. Apart from the rest only so that these fields come last."""

    settled: bool = False
    future: Any = None
    #: Tells it from others at other locations or of other kinds; set when it is pending.
    digest: int = 0


class Operation(_Settlement, eq=False):
    """Base of everything a run can wait for. `kind` is what people and divergence reports call it.

    A msgspec class because one is made for every step, and those are made without running any Python.
    """

    kind: ClassVar[str] = ""
    kind_digest: ClassVar[int] = 0
    #: The record by which the store answers it. Only effects have one.
    answered_by: ClassVar[type[Body] | None] = None
    #: Whether it is carried out all the same if the code ends in the turn that asked for it.
    outlives_code: ClassVar[bool] = False
    #: How much it says about why a run does not move: the least first.
    rank: ClassVar[int] = 9

    location: str
    number: int
    asked_at: int
    site: str

    def __init_subclass__(cls, **_options: object) -> None:
        cls.kind_digest = zlib.crc32(cls.kind.encode())
        if cls.kind:
            KINDS[cls.kind] = cls

    # -- what the engine has to do for it ----------------------------------------------------------------------

    def request(self) -> Command | None:
        """What the engine has still to do for it, if anything."""
        return None

    def deadline(self) -> int | None:
        """When this operation wants to be looked at, if time matters to it."""
        return None

    def end_of(self, notice: ChildNotice) -> Body | None:
        """The record by which it hears of the end of the run it waits for; None if it waits for no run."""
        return None

    # -- how it comes to its end -------------------------------------------------------------------------------

    def take_future(self) -> Any:
        """The future to settle. Cuts the tie between the two: each step would otherwise leave a cycle of three objects
        for the garbage collector, whose full collections stop a busy worker for tens of milliseconds."""
        future, self.future = self.future, None
        future.operation = None
        return future

    def give_up(self, run: Run) -> None:
        """The code that waited for it was cancelled: stop what was begun for it."""
        run.pending.remove(self)
        if self.answered_by is not None:
            run.note_given_up(self)
        if self.future is not None:
            self.take_future()

    def answered_late(self, run: Run, body: Body) -> None:
        """Its answer came after it was given up."""

    def abandon(self, run: Run) -> None:
        """The workflow has ended, and nothing will wait for this any more."""

    async def let_go(self, run: Run) -> bool:
        """The iteration of a loop in which it was asked for ends. True if something had to be cancelled for that."""
        run.withdraw(self)
        return False

    # -- for people --------------------------------------------------------------------------------------------

    def describe(self) -> str:
        return f"{self.kind} {self.location!r}"

    def detail(self) -> str:
        """What is waited for, beside where."""
        return ""

    def still_fits(self, waiting: Waiting) -> bool:
        """Whether the code asks now for what it asked for when the frontier was stored, at the same location."""
        return True

    @classmethod
    def edited(cls, waiting: Waiting, value: Raw) -> Body | None:
        """The record that settles one which is pending with a result from outside; None if that makes no sense."""
        return None


class EffectOperation(Operation, eq=False):
    """Something that becomes part of the turn's commit and is answered by the record written there."""

    def awaits_answer(self) -> bool:
        """Whether the code goes on only when it is answered."""
        return True

    def request(self) -> Command | None:
        return None if self.settled else Effect(self)

    def entry(self, seq: int, at: int, asker: Asker) -> Entry:
        """The record that says it was done, with what is to be done in the same commit."""
        raise NotImplementedError


def never(operation: Op) -> Op:
    """An operation that is not part of the run: nothing will ever settle it, withdrawing it does nothing."""
    operation.settled = True
    return operation


def wait_for(run: Run, operation: Operation) -> RunFuture:
    """Make an operation pending, with a future that gives it up when it is cancelled."""
    future = operation.future = RunFuture(loop=run.loop)
    future.operation = operation
    run.pending.add(operation)
    return future


def expect(run: Run, record: Record, kind: type[Op]) -> Op:
    """The pending operation that a record is about. Raises `Diverged`."""
    operation = run.pending.get(record.location)
    if type(operation) is not kind:
        raise record_mismatch(run.id, record, unexplained(run))
    return operation


def settle(run: Run, record: Record, kind: type[Op]) -> Op:
    """The pending operation that is over by this record. Raises `Diverged`."""
    operation = expect(run, record, kind)
    run.pending.remove(operation)
    return operation


def unexplained(run: Run) -> list[Operation]:
    """Pending operations that no later record speaks of: what the code asks for instead."""
    explained = {record.location for record in run.journal if record.seq > run.last_seq}
    found = [operation for operation in run.pending if operation.location not in explained]
    return found or list(run.pending)


def ask_effect(run: Run, operation: EffectOperation) -> RunFuture:
    if not run.replaying:
        run.commands.append(Effect(operation))
    return wait_for(run, operation)
