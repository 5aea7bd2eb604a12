"""The workers of a store as people see them: who is there, in which state, since when, until when, and with what.

alive      all is well
draining   it has begun to leave: it begins nothing new, and gives back what it has
silent     it has said nothing for longer than it should, or its process is gone; soon it counts as dead
dead       others take its runs, or have nobody to take them
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from perdure.admin.views import moment
from perdure.store.model import LeaseStanding, Standing, WorkerInfo
from perdure.store.protocol import Store

State: TypeAlias = Literal["alive", "draining", "silent", "dead"]


class Served(msgspec.Struct, frozen=True, order=True):
    """A workflow that a worker runs, by name and version."""

    workflow: str
    version: str

    def __str__(self) -> str:
        return f"{self.workflow}@{self.version}"


class LeaseView(msgspec.Struct, frozen=True):
    """A lease, by the clock of the store, which may differ from the one of the machine that looks."""

    renewed_at: datetime
    renewed_seconds_ago: float
    ends_at: datetime
    #: Negative once it has ended.
    left_seconds: float
    #: When others take the runs of the worker, unless it renews before: the end of the lease, or earlier if its process
    #: is known to be gone.
    take_over_at: datetime
    is_process_gone: bool


class WorkerView(msgspec.Struct, frozen=True):
    """One worker, as stored a moment ago."""

    id: str
    name: str
    host: str
    pid: int
    state: State
    #: Of perdure; "" if it does not say.
    release: str
    started_at: datetime
    draining_since: datetime | None
    #: None: workers of this store have no leases, the operating system says whether they live.
    lease: LeaseView | None
    #: Open runs that it has now.
    held: int
    serves: tuple[Served, ...]

    @property
    def is_there(self) -> bool:
        """Whether it may still do something for its runs."""
        return self.state != "dead"

    @property
    def takes_runs(self) -> bool:
        """Whether it claims what is due."""
        return self.state == "alive"

    def may_run(self, workflow: str, version: str) -> bool:
        """One that does not say what it runs, of an older perdure, may run anything."""
        return not self.release or Served(workflow, version) in self.serves

    @property
    def title(self) -> str:
        """How a sentence names it."""
        return f"worker {self.name!r} (pid {self.pid} on {self.host})"


async def worker_views(store: Store) -> list[WorkerView]:
    """Every registered worker, the oldest first."""
    dead, standings, workers = await store.dead_workers(), await store.standings(), await store.workers()
    shown = [_view(one, standings.get(one.id, Standing()), one.id in dead) for one in workers]
    return sorted(shown, key=lambda one: (one.started_at, one.name, one.id))


def _view(worker: WorkerInfo, standing: Standing, is_dead: bool) -> WorkerView:
    since = standing.draining_since
    return WorkerView(
        id=worker.id,
        name=worker.name,
        host=worker.host,
        pid=worker.pid,
        state=_state(standing, is_dead),
        release=worker.release,
        started_at=moment(worker.started_at),
        draining_since=None if since is None else moment(since),
        lease=None if standing.lease is None else _lease(standing.lease),
        held=standing.held,
        serves=tuple(Served(*pair) for pair in worker.definitions),
    )


def _state(standing: Standing, is_dead: bool) -> State:
    lease = standing.lease
    if is_dead:
        return "dead"
    if lease is not None and (lease.now >= lease.silent_at or lease.take_over_at < lease.ends_at):
        return "silent"
    return "alive" if standing.draining_since is None else "draining"


def _lease(lease: LeaseStanding) -> LeaseView:
    return LeaseView(
        renewed_at=moment(lease.renewed_at),
        renewed_seconds_ago=(lease.now - lease.renewed_at) / 1_000_000,
        ends_at=moment(lease.ends_at),
        left_seconds=(lease.ends_at - lease.now) / 1_000_000,
        take_over_at=moment(lease.take_over_at),
        is_process_gone=lease.take_over_at < lease.ends_at,
    )


def told_of(workers: Sequence[WorkerView], workflow: str, workers_max: int = 5, definitions_max: int = 6) -> str:
    """Which workers live and what they run, in a few words: other versions of this workflow first."""
    parts = [f"{one.title} runs {_told(one, workflow, definitions_max)}" for one in workers[:workers_max]]
    if len(workers) > workers_max:
        parts.append(f"{len(workers) - workers_max} more workers")
    return "; ".join(parts)


def _told(worker: WorkerView, workflow: str, definitions_max: int) -> str:
    first = sorted(worker.serves, key=lambda one: one.workflow != workflow)
    more = f" and {len(first) - definitions_max} more" if len(first) > definitions_max else ""
    return f"{', '.join(map(str, first[:definitions_max])) or 'nothing'}{more}"
