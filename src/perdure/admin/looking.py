"""What people see of runs and events, as of a moment ago. Writes nothing: a store opened to be read is enough."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from perdure import limits
from perdure.admin.check import Checked, check
from perdure.admin.doctor import Diagnosis, doctor
from perdure.admin.fleet import WorkerView, worker_views
from perdure.admin.listener import Listener
from perdure.admin.reading import row_of
from perdure.admin.views import (
    DeadLetterView,
    HistoryEntry,
    PublishedView,
    RunView,
    dead_letter_view,
    error_line,
    history_entry,
    published_view,
    run_view,
)
from perdure.admin.why import Reason, why
from perdure.authoring.registry import Registry, registry
from perdure.errors import BadArgument, CorruptRecord
from perdure.given import shown, text_of
from perdure.kernel.journal import from_row
from perdure.kernel.outcomes import Fail
from perdure.kernel.verbs.checks import check_text, check_whole
from perdure.store.model import InboxItem, RunFilter, RunRow, Status
from perdure.store.protocol import Store


def wall_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000


class Looking:
    """See the module docstring. `registry`: the code that runs are checked against."""

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry = registry,
        now: Callable[[], int] = wall_clock,
        listener: Listener | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._now = now
        self._listener = listener if listener is not None else Listener()

    @property
    def store(self) -> Store:
        """Raises what is wrong with using it now, such as `EngineNotOpen`."""
        self._listener.check()
        return self._store

    # -- runs ------------------------------------------------------------------------------------------------------

    async def row(self, run_id: str) -> RunRow:
        """A run as it is stored. Raises `RunNotFound`, `BadArgument`."""
        return await row_of(self.store, run_id)

    async def status(self, run_id: str) -> RunView:
        """What is known about a run. Raises `RunNotFound`."""
        return await self._view(await self.row(run_id))

    async def list(
        self,
        *,
        status: str | Status | Iterable[str | Status] | None = None,
        workflow: str | None = None,
        id_prefix: str | None = None,
        limit: int = limits.PAGE_SIZE_DEFAULT,
        after: str | None = None,
    ) -> list[RunView]:
        """Runs, newest first. `after` pages on: the id of the last run of the page before."""
        store = self.store
        statuses = statuses_of(status)
        limit = check_whole(limit, "limit", 1, limits.PAGE_SIZE_MAX)
        before = (await self.row(after)).key if after is not None else None
        where = RunFilter(
            statuses=statuses,
            workflow=check_text(workflow, "workflow"),
            id_prefix=check_text(id_prefix, "id_prefix"),
        )
        return [await self._view(row) for row in await store.list_runs(where, limit, before)]

    async def counts(self) -> dict[Status, int]:
        """How many runs have which status."""
        counts = await self.store.count_runs()
        return {status: counts[status] for status in Status if counts.get(status)}

    async def history(self, run_id: str, *, generation: int | None = None) -> Sequence[HistoryEntry]:
        """The journal of a run's current (or a given) generation."""
        row = await self.row(run_id)
        number = row.generation if generation is None else check_whole(generation, "generation", 0, 2**31)
        rows = await self.store.journal(row.key, number or row.generation)
        return [history_entry(one) for one in rows]

    async def record(self, row: RunRow, seq: int) -> HistoryEntry | None:
        """One record of the current generation. Raises `CorruptRecord`."""
        rows = await self.store.journal(row.key, row.generation, seq - 1, 1)
        return history_entry(rows[0]) if rows else None

    async def inbox(self, row: RunRow, limit: int = limits.PAGE_SIZE_MAX) -> Sequence[InboxItem]:
        """What arrived for a run and is unread, oldest first."""
        return await self.store.inbox(row.key, limit)

    async def why(self, run_id: str) -> Reason:
        """Why a run is not moving, exactly. Raises `RunNotFound`."""
        return await why(self.store, run_id, self._now(), self._listener.place_of)

    async def doctor(self) -> Diagnosis:
        """Is the store well, and does somebody work on what is in it? Each check with what to do. Writes nothing.

        Also of a store that is not open, or cannot be: `await Admin(open_store(url)).doctor()`.
        """
        return await doctor(self.store)

    def check(self, workflow: str | None = None) -> AsyncIterator[Checked]:
        """Replay every open run against the code of this process, writing nothing: would it still match?

        >>> broken = [run async for run in engine.admin.check() if not run.is_fine]
        """
        return check(self.store, self._registry, workflow)

    async def _view(self, row: RunRow) -> RunView:
        """One more read for a failed run: why it failed is in its last record. And for one that moved: where it is."""
        if row.status is Status.MOVED:
            departure = await self.store.departure()
            if departure is not None:
                return run_view(row, f"it {'went' if departure.gone else 'is going'} to {departure.target}")
        return run_view(row, await self._failure(row) if row.status is Status.FAILED else None)

    async def _failure(self, row: RunRow) -> str | None:
        rows = await self.store.journal(row.key, row.generation, row.next_seq - 2)
        try:
            end = from_row(rows[-1]).body.outcome() if rows else None
        except CorruptRecord as damage:
            return damage.message
        return error_line(end.error) if isinstance(end, Fail) else None

    # -- workers and events ----------------------------------------------------------------------------------------

    async def workers(self) -> Mapping[str, WorkerView]:
        """The workers that are registered, by id, the oldest first: how they stand, what they run and hold."""
        return {worker.id: worker for worker in await worker_views(self.store)}

    async def published(
        self,
        *,
        type: str | None = None,  # noqa: A002
        limit: int = limits.PAGE_SIZE_DEFAULT,
        after: int = 0,
    ) -> Sequence[PublishedView]:
        """Published events that somebody may still get, oldest first. `after` pages on."""
        store, page = self.store, _page(limit, after)
        return [published_view(one) for one in await store.publications(check_text(type, "type"), *page)]

    async def expired_events(self) -> Mapping[str, int]:
        """How many published events of each type went away unread."""
        return await self.store.expired_events()

    async def dead_letters(
        self,
        *,
        type: str | None = None,  # noqa: A002
        limit: int = limits.PAGE_SIZE_DEFAULT,
        after: int = 0,
    ) -> Sequence[DeadLetterView]:
        """Events that did not reach their run, oldest first. `after` pages on: the number of the last one seen."""
        store, page = self.store, _page(limit, after)
        return [dead_letter_view(one) for one in await store.dead_letters(check_text(type, "type"), *page)]


def statuses_of(status: str | Status | Iterable[str | Status] | None) -> frozenset[Status]:
    """None, one status or several, by name or not. Raises `BadArgument`."""
    if status is None:
        return frozenset()
    try:
        wanted: Any = [status] if text_of(status) is not None else list(status)
        return frozenset(Status(text_of(one) or "") for one in wanted)
    except Exception:  # it cannot be gone through, or holds what is no status
        raise BadArgument(f"{shown(status)} is not a status. Known: {', '.join(Status)}.") from None


def _page(limit: int, after: int) -> tuple[int, int]:
    return check_whole(limit, "limit", 1, limits.PAGE_SIZE_MAX), check_whole(after, "after", 0, 2**63 - 1)
