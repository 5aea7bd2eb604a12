"""What callers do with runs: start, send, cancel, wait, look. Needs a store; uses the local worker if there is one."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from msgspec import Raw

from perdure import limits
from perdure.admin.views import HistoryEntry, RunView, history_entry, run_view
from perdure.authoring.workflow import Invocation
from perdure.engine.clock import Timekeeper
from perdure.engine.frames import run_failed
from perdure.engine.ids import new_run_id
from perdure.engine.reporting import error_line
from perdure.engine.settings import Settings
from perdure.engine.signals import Signals
from perdure.engine.turns import started_record
from perdure.engine.worker import Worker
from perdure.errors import (
    BadArgument,
    CorruptRecord,
    EngineNotOpen,
    PerdureError,
    RunCancelled,
    RunConflict,
    RunNotFound,
    RunParked,
    StoreError,
    StoreLost,
)
from perdure.given import an_instance, class_name, shown, text_of
from perdure.kernel import journal
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy, WorkflowSpec
from perdure.kernel.journal import Record, from_row, to_row
from perdure.kernel.verbs import (
    Duration,
    check_key,
    check_reason,
    check_run_id,
    check_text,
    check_whole,
    event_spec,
    positive_seconds_of,
)
from perdure.store.base import (
    Created,
    Existing,
    ItemKind,
    NewItem,
    NewRun,
    RunFilter,
    RunRow,
    Status,
    Store,
)
from perdure.store.items import cancel_item, input_digest

T = TypeVar("T")

OnConflict = Literal["return", "raise"]

logger = logging.getLogger("perdure.client")

#: How often a caller waiting for a run of another process looks, when no hint comes.
LOOK_SECONDS = 0.25


class Client:
    """One per engine. Every method may be repeated safely after `StoreUnavailable`."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Timekeeper,
        rng: random.Random,
        signals: Signals,
        worker: Worker | None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._signals = signals
        self._worker = worker
        #: Set when the engine closes: whoever still waits for a run is told.
        self.closed = False
        #: Set when the files of the store are gone: nothing will ever end here.
        self.lost: StoreLost | None = None

    # -- starting ------------------------------------------------------------------------------------------------

    async def start(
        self, invocation: Invocation[Any], run_id: str | None, on_conflict: OnConflict
    ) -> tuple[str, Record | None]:
        """Create a run, durable when this returns. The same id with the same workflow and input is the same run.

        Returns its id and, if it has already ended by then, its last record.
        """
        last: Record | None = None
        if type(invocation) is not Invocation and not an_instance(invocation, Invocation):
            raise BadArgument(f"start needs a workflow call such as fulfil('o-1'), not {class_name(type(invocation))}.")
        if text_of(on_conflict) not in ("return", "raise"):
            raise BadArgument(f"on_conflict is 'return' or 'raise', not {shown(on_conflict)}.")
        run_id = check_run_id(run_id) if run_id is not None else new_run_id(self._rng, self._clock.now())
        self.check_lost()
        if self._worker is None:
            result = await self._create(invocation.spec, invocation.data, run_id)
        else:
            result, last = await self._worker.start(invocation.spec, invocation.data, run_id)
        if isinstance(result, Existing):
            self._check_same(invocation, result.row, on_conflict)
        return run_id, last

    async def _create(self, spec: WorkflowSpec, data: bytes, run_id: str) -> Created | Existing:
        try:
            spec.arguments.decode(data)  # a wrong type is refused before anything is written
        except PerdureError:
            row = await self._store.get(run_id)
            if row is None:
                raise
            return Existing(row=row)  # it was started by code with other types
        return await self._store.create(self._new_run(spec, data, run_id), None)

    def _new_run(self, spec: WorkflowSpec, data: bytes, run_id: str) -> NewRun:
        now = self._clock.now()
        return NewRun(
            id=run_id,
            workflow=spec.name,
            version=spec.version,
            input_digest=input_digest(spec.name, data),
            started=to_row(started_record(spec, data, self._rng.getrandbits(63), now)),
            created_at=now,
        )

    def _check_same(self, invocation: Invocation[Any], row: RunRow, on_conflict: OnConflict) -> None:
        spec = invocation.spec
        if row.input_digest != input_digest(spec.name, invocation.data):
            other = f"is a {row.workflow!r}, not a {spec.name!r}" if row.workflow != spec.name else "has another input"
            raise RunConflict(f"run {row.id!r} exists and {other}. Choose another id.")
        if on_conflict == "raise":
            raise RunConflict(f"run {row.id!r} already exists (status {row.status}).")

    # -- talking to runs -------------------------------------------------------------------------------------------

    async def send(self, run_id: str, event: Any, key: str | None) -> None:
        """Durable when this returns. Raises `RunNotFound`, `RunFinished`, `InboxFull`."""
        spec = event_spec(type(event))
        data = spec.codec.encode(event, f"the event {spec.name!r}")
        await self.send_raw(run_id, spec.name, data, key, spec.policy)

    async def send_raw(
        self, run_id: str, type_name: str, data: bytes, key: str | None, policy: EventPolicy = DEFAULT_POLICY
    ) -> None:
        run_id = check_run_id(run_id, allow_children=True)
        key = check_key(key)
        type_name = check_text(type_name, "the type of an event")
        item = NewItem(
            kind=ItemKind.EVENT, type=type_name, data=data, sent_at=self._clock.now(), dedup=key, policy=policy
        )
        appended = await self._store.append(run_id, item, self._settings.max_pending_events)
        if appended.delivery is not None and self._worker is not None:
            self._worker.deliver(appended.delivery)

    async def cancel(self, run_id: str, reason: str) -> bool:
        run_id = check_run_id(run_id, allow_children=True)
        item = cancel_item(check_reason(reason), self._clock.now())
        delivery = await self._store.request_cancel(run_id, item)
        if delivery is not None and self._worker is not None:
            self._worker.deliver(delivery)
        return delivery is not None

    async def terminate(self, run_id: str, reason: str) -> bool:
        reason = check_reason(reason)
        run_id = check_run_id(run_id, allow_children=True)
        row = await self._row(run_id)
        deliveries = await self._store.terminate(run_id, reason, self._clock.now())
        if deliveries is None:
            return False
        if self._worker is not None:
            if row.owner == self._worker.id:
                self._worker.ended(row.key)
            for delivery in deliveries:
                self._worker.deliver(delivery)
        self._signals.ended(run_id, None)
        return True

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def end_within(self, run_id: str, timeout: Duration) -> Record:
        """`end_of`, or `TimeoutError` after the timeout."""
        async with asyncio.timeout(positive_seconds_of(timeout, "the timeout of result")):
            return await self.end_of(run_id)

    def value_of(self, run_id: str, record: Record) -> Raw:
        """What a run returned, by its last record. Raises `RunFailed`, `RunCancelled`."""
        match record.body:
            case journal.Completed(value):
                return value
            case journal.Failed(error):
                raise run_failed(run_id, error, record.at)
            case journal.Cancelled(reason):
                raise RunCancelled(f"run {run_id!r} was cancelled: {reason or 'no reason given'}")
            case _:
                raise StoreError(f"the journal of run {run_id!r} does not end as its status says.")

    async def end_of(self, run_id: str) -> Record:
        """Wait for the end of a run: its last record. Raises `RunParked`, `RunNotFound`."""
        run_id = check_run_id(run_id, allow_children=True)
        while True:
            self.check_lost()
            if self.closed:
                raise EngineNotOpen(f"the engine was closed while somebody waited for run {run_id!r}.")
            signal = self._signals.wait(run_id)
            try:
                # A run of this process tells when it ends or leaves; only for others is the store worth asking.
                if self._worker is not None and self._worker.coordinator.holds(run_id):
                    record = await signal
                    if record is not None:
                        return record
                    continue
                row = await self._row(run_id)
                if row.status.terminal:
                    rows = await self._store.journal(row.key, row.generation, row.next_seq - 2)
                    return from_row(rows[-1])
                if row.status is Status.PARKED:
                    raise RunParked(f"run {run_id!r} is parked: {row.reason}")
                await asyncio.wait({signal}, timeout=self._clock.poll(LOOK_SECONDS))
                if signal.done():
                    signal.result()  # raises if somebody knows that the end will never come
            finally:
                self._signals.forget(run_id, signal)

    def check_lost(self) -> None:
        """Raise what was found out about the files of the store, if anything was."""
        if self.lost is not None:
            raise StoreLost(self.lost.message)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def _row(self, run_id: str) -> RunRow:
        run_id = check_run_id(run_id, allow_children=True)
        row = await self._store.get(run_id)
        if row is None:
            raise RunNotFound(f"no run has the id {run_id!r}.")
        return row

    async def view(self, run_id: str) -> RunView:
        return await self._view(await self._row(run_id))

    async def _view(self, row: RunRow) -> RunView:
        """One more read for a failed run: why it failed is in its last record."""
        return run_view(row, await self._failure(row) if row.status is Status.FAILED else None)

    async def _failure(self, row: RunRow) -> str | None:
        rows = await self._store.journal(row.key, row.generation, row.next_seq - 2)
        try:
            last = from_row(rows[-1]).body if rows else None
        except CorruptRecord as damage:
            return damage.message
        return error_line(last.error) if isinstance(last, journal.Failed) else None

    async def list(
        self,
        statuses: frozenset[Status],
        workflow: str | None,
        id_prefix: str | None,
        limit: int,
        after: str | None,
    ) -> list[RunView]:
        limit = check_whole(limit, "limit", 1, limits.PAGE_SIZE_MAX)
        before = (await self._row(after)).key if after is not None else None
        workflow = check_text(workflow, "workflow")
        id_prefix = check_text(id_prefix, "id_prefix")
        where = RunFilter(statuses=statuses, workflow=workflow, id_prefix=id_prefix)
        return [await self._view(row) for row in await self._store.list_runs(where, limit, before)]

    async def history(self, run_id: str, generation: int | None) -> Sequence[HistoryEntry]:
        row = await self._row(run_id)
        number = row.generation if generation is None else check_whole(generation, "generation", 0, 2**31)
        rows = await self._store.journal(row.key, number or row.generation)
        return [history_entry(one) for one in rows]
