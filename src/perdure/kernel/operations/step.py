"""Steps: functions of the user that run outside of the workflow's code, at least once, with a recorded outcome.

ask ──▶ pending ──▶ StepRetry* ──▶ StepDone | StepFailed
"""

from __future__ import annotations

from asyncio.futures import Future
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from msgspec import Raw

from perdure import limits
from perdure.kernel.commands import CancelStep, Command, RunStep, Warn
from perdure.kernel.definitions import StepSpec
from perdure.kernel.divergence import record_mismatch
from perdure.kernel.eventloop.tasks import RunTask, current_task
from perdure.kernel.journal import ABSENT, Body, Fault, Record
from perdure.kernel.operations.base import Operation, expect, never, settle
from perdure.kernel.values.faults import decode_error, with_attempts

if TYPE_CHECKING:
    from perdure.kernel.frontier import Waiting
    from perdure.kernel.run import Run


class StepDone(Body, frozen=True, gc=False):
    """A step's result. After this the step never runs again. Delivered by `Run.deliver` itself: most records are."""

    kind = "step_done"
    about = "step"
    settles = True

    value: Raw
    attempt: int = 1
    args: Raw = ABSENT
    digest: int = 0  # crc32 of the encoded arguments
    site: str = ""  # "orders.py:41", where the workflow asked

    def edited(self, value: Raw) -> Body:
        return StepDone(value, 1, self.args, self.digest, self.site)


class StepRetry(Body, frozen=True, gc=False):
    """A failed attempt that will be followed by another one at `next_at`."""

    kind = "step_retry"
    about = "step"
    is_failure = True
    is_beside = True

    attempt: int
    error: Fault
    next_at: int
    args: Raw = ABSENT
    digest: int = 0
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        step = expect(run, record, StepOperation)
        if run.replaying:
            check_arguments(run, step, self.digest)
        step.attempts = self.attempt
        step.next_at = self.next_at
        run.pending.back_off(step)

    def edited(self, value: Raw) -> Body:
        return StepDone(value, 1, self.args, self.digest, self.site)


class StepFailed(Body, frozen=True, gc=False):
    """The step's last failure: raised into the workflow."""

    kind = "step_failed"
    about = "step"
    is_failure = True
    settles = True
    raised_as = "perdure.errors:StepFailed"

    attempt: int
    error: Fault
    args: Raw = ABSENT
    digest: int = 0
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        step = settle(run, record, StepOperation)
        if run.replaying:
            check_arguments(run, step, self.digest)
        future = step.take_future()
        run.loop.watch_waiters(future)
        future.set_exception(with_attempts(decode_error(self.error), self.attempt))

    def edited(self, value: Raw) -> Body:
        return StepDone(value, 1, self.args, self.digest, self.site)


class StepOperation(Operation, eq=False):
    """A step that has been asked for and has no outcome yet."""

    kind = "step"
    rank = 0

    spec: StepSpec
    #: What to call it with; None: decode `data` for each attempt.
    args: tuple[Any, ...] | None
    data: bytes
    #: Recorded failures.
    attempts: int = 0
    next_at: int = 0

    def request(self) -> Command | None:
        return None if self.settled else RunStep(self)

    def take_future(self) -> Any:
        future, self.future = self.future, None
        return future

    def deadline(self) -> int | None:
        return self.next_at or None

    def give_up(self, run: Run) -> None:
        run.pending.remove(self)
        self.future = None
        if not run.closed and not run.replaying:
            run.commands.append(CancelStep(self.location))

    def abandon(self, run: Run) -> None:
        run.pending.remove(self)
        run.commands.append(CancelStep(self.location))

    def detail(self) -> str:
        if not self.attempts:
            return ""
        return f"after {self.attempts} failed attempt{'s' if self.attempts > 1 else ''}"

    @classmethod
    def edited(cls, waiting: Waiting, value: Raw) -> Body | None:
        return StepDone(value, site=waiting.site)

    def returned(self, value: Any, attempt: int) -> Body:
        """Its record, when an attempt has returned. Raises what says why the value cannot be stored."""
        spec, data = self.spec, self.data
        args = Raw(data) if len(data) <= limits.RECORDED_ARGUMENTS_BYTES_MAX else ABSENT
        return StepDone(Raw(spec.result.encode(value, spec.what)), attempt, args, crc32(data), self.site)

    def failed(self, attempt: int, error: Fault, next_at: int | None) -> Body:
        """Its record, when an attempt has failed; without another one to follow, the last."""
        args = Raw(self.data) if len(self.data) <= limits.RECORDED_ARGUMENTS_BYTES_MAX else ABSENT
        digest = crc32(self.data)
        if next_at is None:
            return StepFailed(attempt, error, args, digest, self.site)
        return StepRetry(attempt, error, next_at, args, digest, self.site)

    def arguments_digest(self) -> int:
        return crc32(self.data)


_KIND_DIGEST = StepOperation.kind_digest


def ask(run: Run, spec: StepSpec, args: tuple[Any, ...] | None, data: bytes, site: str) -> StepOperation:
    """Ask for a step. What awaits its future must `give_up` the step when that is cancelled: the future is one of
    asyncio's own, which does not tell, because those are waited for and woken up from in C."""
    loop = run.loop
    if (run.outcome is not None or run.closed) and run.is_ending():
        return never(StepOperation(spec.name, 0, 0, site, spec, args, data, future=Future(loop=loop)))
    run.asked = number = run.asked + 1
    task = current_task(loop)
    location = (task.branch if type(task) is RunTask else loop.branch()).locate(spec.name)
    digest = crc32(location.encode(), _KIND_DIGEST)
    step = StepOperation(location, number, loop.now, site, spec, args, data, future=Future(loop=loop), digest=digest)
    if not run.replaying:
        run.commands.append(RunStep(step))
    pending = run.pending  # `Pending.add`, without the call: every step comes by
    pending.operations[location] = step
    pending.digest += digest
    return step


def check_arguments(run: Run, step: StepOperation, recorded: int) -> None:
    """Whether the code gives a step the arguments that its record was made with."""
    if run.arguments_check == "off" or not recorded or recorded == crc32(step.data):
        return
    message = (
        f"step {step.location!r} of run {run.id!r} was recorded with other arguments than the code gives now "
        f"({step.site}). Its recorded result is used."
    )
    if run.arguments_check == "park":
        raise record_mismatch(run.id, None, [step], note=message)
    run.commands.append(Warn(message))


class Failure(NamedTuple):
    """A failed attempt, as its record has it. Without `next_at` it was the last."""

    attempt: int
    error: Fault
    next_at: int | None


def failure_of(body: Body) -> Failure | None:
    """The failed attempt that a record is about, if it is about one."""
    if isinstance(body, (StepRetry, StepFailed)):
        return Failure(body.attempt, body.error, body.next_at if isinstance(body, StepRetry) else None)
    return None


def last_failure(records: Sequence[Record], location: str) -> Fault | None:
    """The error of the last attempt at a location that is followed by another one."""
    for record in reversed(records):
        if record.location == location and isinstance(record.body, StepRetry):
            return record.body.error
    return None
