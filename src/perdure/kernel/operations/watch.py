"""Waits for the end of a run that need not be a child: asked for, then watched, then ended.

`wait_for_run` is one of them; `wait_for_any` is one for each of its runs, and gives up the others when one has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from perdure.errors import RunCancelled, RunFailed, RunNotFound
from perdure.kernel.commands import Command, Effect
from perdure.kernel.effects import Entry, Watch
from perdure.kernel.eventloop.tasks import RunFuture
from perdure.kernel.journal import ABSENT, Body, Fault, Record, Row, to_row
from perdure.kernel.operations.base import Asker, EffectOperation, ask_effect, expect, settle
from perdure.kernel.values.faults import decode_error

if TYPE_CHECKING:
    from perdure.kernel.items import ChildNotice
    from perdure.kernel.pending import Pending
    from perdure.kernel.run import Run


class RunWatched(Body, frozen=True, gc=False):
    """From now on the end of another run is told to this one; or why not."""

    kind = "run_watched"
    about = "wait_for_run"
    opens = True

    run_id: str
    refused: str = ""  # "not_found"
    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        watch = expect(run, record, WatchOperation)
        watch.is_watched = True
        if self.refused:
            run.pending.remove(watch)
            watch.take_future().set_exception(RunNotFound(f"no run has the id {watch.run_id!r}."))


class RunEnded(Body, frozen=True, gc=False):
    """The run that `wait_for_run` waited for has ended. Without value and error it was cancelled."""

    kind = "run_ended"
    about = "wait_for_run"
    settles = True

    run_id: str
    value: Raw = ABSENT
    error: Fault | None = None
    cancelled: str = ""

    def apply(self, run: Run, record: Record) -> None:
        future = settle(run, record, WatchOperation).take_future()
        error = self.error
        if error is not None:
            failure = RunFailed(f"run {self.run_id!r} failed: {error.type.partition(':')[2]}: {error.message}")
            failure.__cause__ = decode_error(error)
            future.set_exception(failure)
        elif self.value:
            future.set_result(self.value)
        else:
            reason = self.cancelled or "no reason given"
            future.set_exception(RunCancelled(f"run {self.run_id!r} was cancelled: {reason}"))


class WatchOperation(EffectOperation, eq=False):
    """A wait for the end of another run."""

    kind = "wait_for_run"
    rank = 2
    answered_by = RunWatched

    run_id: str
    is_watched: bool = False

    def request(self) -> Command | None:
        return None if self.settled or self.is_watched else Effect(self)

    def entry(self, seq: int, at: int, asker: Asker) -> Entry:
        def row(refused: str) -> Row:
            return to_row(Record(seq, at, self.location, RunWatched(self.run_id, refused, self.site)))

        return Entry(row(""), Watch(self.run_id, self.location, {"not_found": row("not_found")}))

    def end_of(self, notice: ChildNotice) -> Body | None:
        return RunEnded(notice.child_id, notice.value, notice.error, notice.cancelled)

    def detail(self) -> str:
        return self.run_id


#: Characters of a run id that mean something in a location, and the one that they are written with: as in a URL, so
#: that no two ids are written alike.
_MARKS: Final = re.compile(r"[/#~ %]")


def ask(run: Run, run_id: str, name: str, site: str) -> RunFuture:
    return _ask_at(run, run_id, run.locate(name), site)


def ask_each(run: Run, run_ids: Iterable[str], name: str, site: str) -> dict[str, RunFuture]:
    """A wait for each of these runs, below one location: `wait_for_any/order-1`.

    Named by the run and not by its place in the list: code that lists the same runs in another order still gets the end
    of the run that it names (tests/events/test_wait_for_any.py).
    """
    outer = run.loop.branch()
    inner = outer.below(outer.locate(name))
    return {run_id: _ask_at(run, run_id, inner.locate(_part(run_id)), site) for run_id in run_ids}


def _part(run_id: str) -> str:
    return _MARKS.sub(lambda found: f"%{ord(found[0]):02X}", run_id)


def _ask_at(run: Run, run_id: str, location: str, site: str) -> RunFuture:
    if run.is_ending():
        return RunFuture(loop=run.loop)
    return ask_effect(run, WatchOperation(location, run.count(), run.now, site, run_id))


def watch_again(pending: Pending) -> None:
    """The store may not know which ends this run waits to hear of: it is told again."""
    for operation in pending:
        if isinstance(operation, WatchOperation):
            operation.is_watched = False
