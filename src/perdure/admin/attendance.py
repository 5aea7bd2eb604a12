"""Who has a run, or should: the part of `why` that looks at workers.

A run is attended if a worker has it that lives, or if it only waits. Otherwise somebody has to take it: from a worker
that died or says nothing, or because it is due. That somebody must know its workflow and version, and must not be
leaving.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from perdure import limits
from perdure.admin.fleet import LeaseView, WorkerView, told_of
from perdure.admin.reason import Reason, text_of
from perdure.admin.views import moment
from perdure.store.model import RunRow, Status

#: How long after the end of a lease, at the latest, another worker looks for what it may take.
_SWEEP_SECONDS_MAX = 1.2 * limits.SWEEP_SECONDS_DEFAULT


class Attendance:
    """Of the runs of one store, as of one moment."""

    def __init__(self, workers: Sequence[WorkerView], now: int) -> None:
        self._workers = {one.id: one for one in workers}
        self._there = [one for one in workers if one.is_there]
        self._now = now

    @property
    def is_nobody_there(self) -> bool:
        return not self._there

    def owner(self, row: RunRow) -> WorkerView | None:
        return None if row.owner is None else self._workers.get(row.owner)

    # -- nobody does what is to be done ----------------------------------------------------------------------------

    def unattended(self, row: RunRow) -> Reason | None:
        """The run has something to do, and nobody does it."""
        owner = self.owner(row)
        if owner is not None and owner.state in ("alive", "draining"):
            return None
        rests = self._rests(row)
        if rests and (row.owner is None or self.is_nobody_there or (owner is not None and owner.state == "silent")):
            return None
        if owner is not None and owner.state == "silent":
            return self._silent(row, owner)
        if self.is_nobody_there:
            return self._unknown(row) if _was_unknown(row) else self._nobody(row, owner)
        if not self._takers(row):
            return self._nobody_takes(row)
        if row.owner is not None:
            return self._died(row, owner)
        if row.recoveries > 1:
            return self._suspected(row)
        text = f"it has been due since {text_of(_since(row))}, and waits for one of {len(self._takers(row))} workers "
        return Reason(row.id, "due", text + "to take it.", since=_since(row))

    def _rests(self, row: RunRow) -> bool:
        """It only waits, for what is not there yet. Not one that a worker gave back because it did not know its code:
        whatever that would do is nowhere (tests/admin/test_why.py)."""
        waits = row.status is Status.WAITING and (row.wake_at is None or row.wake_at > self._now)
        return waits and not _was_unknown(row)

    def _takers(self, row: RunRow) -> list[WorkerView]:
        """Who could take it from its owner, or because it is due."""
        return [one for one in self._knowing(row) if one.takes_runs and one.id != row.owner]

    def _knowing(self, row: RunRow) -> list[WorkerView]:
        return [one for one in self._there if one.may_run(row.workflow, row.version)]

    def _nobody(self, row: RunRow, owner: WorkerView | None) -> Reason:
        died = "" if owner is None else f" {_capital(owner.title)}, which had it, died{_said_last(owner.lease)}."
        text = f"no worker is alive, and it has been due since {text_of(_since(row))}.{died}"
        return Reason(row.id, "no-worker", f"{text} Start one: `perdure worker --app ...`.", since=_since(row))

    def _nobody_takes(self, row: RunRow) -> Reason:
        """Somebody lives who does not know it, or who knows it and leaves."""
        knowing = [one for one in self._knowing(row) if one.id != row.owner]
        if not knowing:
            return self._unknown(row)
        leaving = ", ".join(f"{one.title} is {one.state}" for one in knowing)
        text = f"it has been due since {text_of(_since(row))}, and no worker takes it: of those that run {_name(row)} "
        return Reason(row.id, "due", f"{text}none stays ({leaving}).", since=_since(row))

    def _unknown(self, row: RunRow) -> Reason:
        if self.is_nobody_there:
            text = f"no worker knows {_name(row)}, and none is alive now."
        else:
            there = [one for one in self._there if one.id != row.owner]
            text = f"no living worker knows {_name(row)}; {told_of(there, row.workflow) or 'there is no other one'}."
        text += " Start one that does: `perdure worker --app ...`, or register that version again."
        return Reason(row.id, "unknown-workflow", text, since=moment(row.updated_at))

    def _suspected(self, row: RunRow) -> Reason:
        text = (
            f"its workers died {row.recoveries} times in a row without its making progress, so it may be what "
            "kills them. It is tried again on probation, with few others or alone, after those that come before it."
        )
        return Reason(row.id, "suspect", text, since=_since(row))

    # -- the owner is gone, silent or leaving --------------------------------------------------------------------------

    def _died(self, row: RunRow, owner: WorkerView | None) -> Reason:
        who = "the worker that ran it" if owner is None else owner.title
        lease = None if owner is None else owner.lease
        until = _rounded_up(moment(self._now) + timedelta(seconds=_SWEEP_SECONDS_MAX))
        text = f"{who} died{_said_last(lease)}; another worker takes the run over at its next sweep."
        since = None if lease is None else lease.renewed_at
        return Reason(row.id, "worker-died", text, since=since, until=until, worker=row.owner or "")

    def _silent(self, row: RunRow, owner: WorkerView) -> Reason:
        lease = owner.lease
        if lease is None:
            raise AssertionError("only a worker with a lease is silent")
        until: datetime | None = _rounded_up(lease.take_over_at + timedelta(seconds=_SWEEP_SECONDS_MAX))
        text = f"{owner.title} has not renewed its lease since {text_of(lease.renewed_at)}"
        text += ", and its process is gone" if lease.is_process_gone else ""
        if self._takers(row):
            unless = "" if lease.is_process_gone else ", unless it renews until then"
            text += f"; another worker takes the run over at {text_of(until)} at the latest{unless}."
        else:
            text += f"; no other living worker knows {_name(row)}, so nobody takes the run over."
            until = None
        return Reason(row.id, "worker-silent", text, since=lease.renewed_at, until=until, worker=owner.id)

    def with_owner(self, row: RunRow, reason: Reason) -> Reason:
        """What is worth knowing of the worker that has the run, besides what its code waits for."""
        owner = self.owner(row)
        if owner is None or owner.state not in ("draining", "silent"):
            return reason
        if owner.state == "silent":
            return msgspec.structs.replace(reason, also=(*reason.also, self._silent(row, owner).text))
        leaving = f"{owner.title} has been leaving since {text_of(owner.draining_since)}"
        if self._rests(row):
            return msgspec.structs.replace(reason, also=(*reason.also, f"{leaving}, and gives it back"))
        text = (
            f"{leaving} and begins nothing new. {_capital(reason.text)} When that has ended, or the grace of the "
            "worker is over, another worker goes on."
        )
        return msgspec.structs.replace(reason, kind="worker-draining", text=text, since=owner.draining_since)

    def by(self, row: RunRow) -> str:
        owner = self.owner(row)
        return f" on {owner.title}" if owner is not None and owner.is_there else ""

    def notes(self, row: RunRow) -> list[str]:
        """What is worth knowing although nothing has to be done for it now."""
        if self.is_nobody_there:
            return ["no worker is alive"]
        return [] if self._knowing(row) else [f"no living worker knows {_name(row)}"]


def _was_unknown(row: RunRow) -> bool:
    """A worker had it and gave it back."""
    return row.owner is None and row.reason is not None and row.reason.startswith("no worker knows")


def _name(row: RunRow) -> str:
    return f"workflow {row.workflow!r} version {row.version!r}"


def _since(row: RunRow) -> datetime:
    return moment(row.updated_at if row.status is not Status.WAITING else row.wake_at or row.updated_at)


def _said_last(lease: LeaseView | None) -> str:
    return "" if lease is None else f": it has not renewed its lease since {text_of(lease.renewed_at)}"


def _rounded_up(when: datetime) -> datetime:
    return datetime.fromtimestamp(math.ceil(when.timestamp()), UTC)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
