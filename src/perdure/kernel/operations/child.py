"""Children: runs that were started by this one. A child is asked for, then started, then ended.

ask ──▶ ChildStarted ──▶ ChildDone | ChildFailed | ChildCancelled
          (refused, or detached: settled at once)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from perdure import errors, limits
from perdure.kernel.commands import Command, Effect
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.effects import Entry, NewRun, ParentLink, Spawn
from perdure.kernel.eventloop.tasks import RunFuture
from perdure.kernel.journal import Body, Fault, Record, Row, started_record, to_row
from perdure.kernel.operations.base import Asker, EffectOperation, expect, never, settle
from perdure.kernel.operations.send import SendOperation
from perdure.kernel.values.digests import input_digest
from perdure.kernel.values.faults import decode_error

if TYPE_CHECKING:
    from perdure.kernel.items import ChildNotice
    from perdure.kernel.run import Run


class ChildStarted(Body, frozen=True, gc=False):
    """A child run exists, created in the same commit as this record; or why it could not be."""

    kind = "child_started"
    about = "child"
    opens = True

    child_id: str
    workflow: str
    version: str
    detached: bool = False
    refused: str = ""  # "conflict": the explicit id is taken by something else
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        child = expect(run, record, ChildOperation)
        if self.refused:
            run.pending.remove(child)
            error = errors.RunConflict(
                f"a run {self.child_id!r} already exists with another workflow or input, so it cannot be a child."
            )
            for future in (child.started, child.future):
                if not future.done():
                    future.set_exception(error)
                    # Only one of the two is awaited; the other must not complain that nobody looked.
                    future.exception()
            return
        child.is_running = True
        if child.detached:
            run.pending.remove(child)
        if not child.started.done():
            child.started.set_result(None)
        elif not child.detached:  # the code that asked for it was cancelled meanwhile: nothing has its handle
            cancel(run, child, child.site)

    def edited(self, value: Raw) -> Body:
        return ChildDone(value, self.child_id)


class _ChildEnd(Body, frozen=True, gc=False):
    """What the ends of children have in common."""

    about = "child"
    settles = True
    ends_child = True

    def _settle(self, run: Run, record: Record) -> ChildOperation:
        child = settle(run, record, ChildOperation)
        child.future.operation = None  # its handle keeps the future; see `Operation.take_future`
        return child


class ChildDone(_ChildEnd, frozen=True, gc=False):
    kind = "child_done"

    value: Raw
    child_id: str = ""

    def apply(self, run: Run, record: Record) -> None:
        child = self._settle(run, record)
        child.future.set_result(child.spec.result.decode(self.value, f"the result of child {child.child_id!r}"))


class ChildFailed(_ChildEnd, frozen=True, gc=False):
    kind = "child_failed"
    raised_as = "perdure.errors:ChildFailed"

    error: Fault
    child_id: str = ""

    def apply(self, run: Run, record: Record) -> None:
        child = self._settle(run, record)
        error = self.error
        failure = errors.ChildFailed(
            f"child {child.child_id!r} failed: {error.type.partition(':')[2]}: {error.message}"
        )
        failure.__cause__ = decode_error(error)
        child.future.set_exception(failure)


class ChildCancelled(_ChildEnd, frozen=True, gc=False):
    kind = "child_cancelled"

    reason: str = ""
    child_id: str = ""

    def apply(self, run: Run, record: Record) -> None:
        child = self._settle(run, record)
        child.future.set_exception(
            errors.ChildCancelled(f"child {child.child_id!r} was cancelled: {self.reason or 'no reason given'}")
        )


class ChildOperation(EffectOperation, eq=False):
    """A child run: asked for, then started, then ended. `started` is settled first, `future` last."""

    kind = "child"
    rank = 2
    answered_by = ChildStarted

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

    def request(self) -> Command | None:
        return None if self.settled or self.is_running else Effect(self)

    def awaits_answer(self) -> bool:
        return self.awaits_start

    def entry(self, seq: int, at: int, asker: Asker) -> Entry:
        spec = self.spec

        def row(refused: str) -> Row:
            body = ChildStarted(self.child_id, spec.name, spec.version, self.detached, refused, self.site)
            return to_row(Record(seq, at, self.location, body))

        seed = asker.draw_seed(self.child_id, 1)
        new = NewRun(
            id=self.child_id,
            workflow=spec.name,
            version=spec.version,
            input_digest=input_digest(spec.name, self.data),
            started=to_row(started_record(spec, self.data, seed, at, parent=asker.run_id)),
            created_at=at,
            parent=None if self.detached else ParentLink(asker.key, asker.generation, self.location),
            owner=asker.worker_id,
        )
        return Entry(row(""), Spawn(new, {"conflict": row("conflict")}))

    def end_of(self, notice: ChildNotice) -> Body | None:
        if notice.error is not None:
            return ChildFailed(notice.error, notice.child_id)
        if notice.value:
            return ChildDone(notice.value, notice.child_id)
        return ChildCancelled(notice.cancelled, notice.child_id)

    def give_up(self, run: Run) -> None:
        cancel(run, self, self.site)

    def abandon(self, run: Run) -> None:
        cancel(run, self, self.site)

    def answered_late(self, run: Run, body: Body) -> None:
        self.is_running = isinstance(body, ChildStarted) and not body.refused
        if self.is_running:
            _send_cancel(run, self, self.site)

    async def let_go(self, run: Run) -> bool:
        if not self.is_running:  # asked for in this very turn: it cannot be cancelled before it is there
            if self.started.cancelled():
                self.started = RunFuture(loop=run.loop)
            await asyncio.wait([self.started])
        if self.settled:  # detached, or refused
            return False
        cancel(run, self, self.site, wanted=True)
        await asyncio.wait([self.future])
        if not self.future.cancelled():
            self.future.exception()  # seen: how it ended matters to nobody
        return True

    def detail(self) -> str:
        return self.child_id


def ask(run: Run, spec: WorkflowSpec, data: bytes, child_id: str | None, detached: bool, site: str) -> ChildOperation:
    if run.is_ending():
        late = never(ChildOperation(spec.name, 0, 0, site, spec, "", data, detached))
        late.started = late.future = RunFuture(loop=run.loop)
        return late
    location = run.locate(spec.name)
    if child_id is None:
        child_id = _child_id(run, location)
    child = ChildOperation(location, run.count(), run.now, site, spec, child_id, data, detached)
    child.started = RunFuture(loop=run.loop)
    child.future = RunFuture(loop=run.loop)
    child.future.operation = child
    run.pending.add(child)
    if (scope := run.scope()) is not None:
        scope.watch(child)
        child.scope = scope
    if not run.replaying:
        run.commands.append(Effect(child))
    return child


def _child_id(run: Run, location: str) -> str:
    generation = f"~{run.generation}" if run.generation > 1 else ""
    child_id = f"{run.id}{generation}/{location}"
    if len(child_id.encode()) > limits.RUN_ID_BYTES_MAX:
        raise errors.BadArgument(
            f"the id of the child at {location!r} would be longer than {limits.RUN_ID_BYTES_MAX} bytes. "
            "Give it one: start_child(..., id=...)."
        )
    return child_id


def cancel(run: Run, child: ChildOperation, site: str, *, wanted: bool = False) -> None:
    """Ask a child to cancel. Unless `wanted`, nothing waits for its end any more."""
    if child.settled or child.detached:
        return
    if child.is_running:
        _send_cancel(run, child, site)
    elif not wanted:
        run.note_given_up(child)
    if not wanted:
        run.withdraw(child)


def _send_cancel(run: Run, child: ChildOperation, site: str) -> None:
    location = f"{child.location}/cancel"
    reason = f"its parent {run.id!r} was cancelled".encode()
    send = SendOperation(location, run.count(), run.now, site, child.child_id, "cancel", reason, None, True)
    send.future = RunFuture(loop=run.loop)
    send.awaited = False
    if location not in run.pending:
        run.pending.add(send)
        if child.scope is not None:
            child.scope.watch(send)
        if not run.replaying:
            run.commands.append(Effect(send))


def open_children(records: Sequence[Record]) -> dict[str, Record]:
    """Children that were started and have not ended, as far as these records go, by location."""
    found: dict[str, Record] = {}
    for record in records:
        body = record.body
        if isinstance(body, ChildStarted) and not body.detached and not body.refused:
            found[record.location] = record
        elif body.ends_child:
            found.pop(record.location, None)
    return found


def started_child(body: Body) -> str:
    """The id of the child that a record says was started; empty for any other record."""
    return body.child_id if isinstance(body, ChildStarted) and not body.refused else ""
