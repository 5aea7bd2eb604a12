"""What an engine lets people do to runs besides starting and cancelling them.

All of it is `perdure.admin`; this adds the engine's clock, the code it knows, and its worker.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from perdure.admin import actions, transfer
from perdure.admin import resume as resuming
from perdure.admin.check import Checked, check
from perdure.admin.fork import SAME, fork
from perdure.admin.replay import Verdict, in_callback, replay_records
from perdure.admin.why import Reason, why
from perdure.authoring.registry import Registry
from perdure.engine.clock import Clock
from perdure.engine.ids import new_run_id
from perdure.engine.worker import Worker
from perdure.kernel.journal import Record
from perdure.kernel.operation import decode_frontier
from perdure.kernel.verbs import check_run_id
from perdure.store.base import Delivery, RunRow, Status, Store


class Lifecycle:
    """One per engine. `hint` makes the worker look at once."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        rng: random.Random,
        worker: Worker | None,
        hint: Callable[[], None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._rng = rng
        self._worker = worker
        self._hint = hint

    async def resume(self, run_id: str) -> bool:
        run_id = check_run_id(run_id, allow_children=True)
        resumed = await resuming.resume(self._store, run_id, self._clock.now(), self._replay)
        self._hint()
        return resumed

    async def _replay(self, row: RunRow, records: Sequence[Record], frontier: bytes) -> Verdict:
        return await in_callback(lambda: replay_records(self._registry, row, records, decode_frontier(frontier)))

    async def pause(self, run_id: str, reason: str) -> bool:
        run_id = check_run_id(run_id, allow_children=True)
        told = await actions.pause(self._store, run_id, reason, self._clock.now())
        self._deliver(told or ())
        return told is not None

    async def unpause(self, run_id: str) -> bool:
        run_id = check_run_id(run_id, allow_children=True)
        changed = await actions.unpause(self._store, run_id, self._clock.now())
        self._hint()
        return changed

    async def retry(self, run_id: str, location: str) -> None:
        run_id = check_run_id(run_id, allow_children=True)
        told = await actions.retry(self._store, run_id, location, self._clock.now())
        self._deliver([told] if told is not None else [])

    async def fork(
        self, run_id: str, new_id: str | None, location: str | None, result: Any,
        arguments: Mapping[str, Any] | None, generation: int | None, paused: bool,
    ) -> str:  # fmt: skip
        chosen = new_id if new_id is not None else new_run_id(self._rng, self._clock.now())
        await fork(
            self._store, run_id, chosen, self._clock.now(), location=location,
            result=SAME if result is ... else result, arguments=arguments, generation=generation, paused=paused,
        )  # fmt: skip
        self._hint()
        return chosen

    async def delete(self, run_id: str) -> None:
        run_id = check_run_id(run_id, allow_children=True)
        await actions.delete(self._store, run_id, self._clock.now())

    def prune(
        self, older_than: float, statuses: Iterable[Status], workflow: str | None, *, dry_run: bool
    ) -> AsyncIterator[int]:
        before = self._clock.now() - round(older_than * 1_000_000)
        return actions.prune(self._store, before, statuses, workflow, dry_run=dry_run)

    async def export_run(self, run_id: str) -> bytes:
        run_id = check_run_id(run_id, allow_children=True)
        return await transfer.export_run(self._store, run_id)

    async def import_run(self, data: bytes, run_id: str | None, source: str, paused: bool) -> str:
        imported = await transfer.import_run(self._store, data, run_id=run_id, source=source, paused=paused)
        self._hint()
        return imported

    async def why(self, run_id: str) -> Reason:
        run_id = check_run_id(run_id, allow_children=True)
        return await why(self._store, run_id, self._clock.now(), self._place_of)

    def _place_of(self, row: RunRow, location: str) -> str | None:
        if self._worker is None or row.owner != self._worker.id:
            return None
        return self._worker.place_of(row.key, location)

    def check(self, workflow: str | None) -> AsyncIterator[Checked]:
        return check(self._store, self._registry, workflow)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        if self._worker is not None:
            for delivery in deliveries:
                self._worker.deliver(delivery)
