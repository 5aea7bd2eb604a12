"""What callers do with runs: start them, send to them, ask them. Uses the local worker if there is one."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Literal
from uuid import UUID

from perdure.admin.admin import Admin
from perdure.admin.ids import new_run_id
from perdure.admin.listener import Listener
from perdure.authoring.workflow import Invocation
from perdure.engine.clock import Timekeeper
from perdure.engine.renewal import ClientClock
from perdure.engine.waiting import Waiters
from perdure.engine.worker import Worker
from perdure.errors import BadArgument, PerdureError, RunConflict
from perdure.given import an_instance, class_name, shown, text_of
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.journal import Record, started_record, to_row
from perdure.kernel.values import codec_for
from perdure.kernel.values.digests import input_digest
from perdure.kernel.verbs.checks import check_key, check_run_id, event_spec
from perdure.store.items import request_name
from perdure.store.model import ItemKind, NewItem, NewRun, RunRow
from perdure.store.protocol import Store
from perdure.store.turn import Created, Existing

OnConflict = Literal["return", "raise"]

_ANY = codec_for(Any)


class Client:
    """One per open engine. Every method may be repeated safely after `StoreUnavailable`."""

    def __init__(
        self,
        store: Store,
        pending_events_max: int,
        clock: Timekeeper,
        client_clock: ClientClock,
        rng: random.Random,
        worker: Worker | None,
        waiters: Waiters,
        admin: Admin,
        listener: Listener,
    ) -> None:
        self._store = store
        self._pending_max = pending_events_max
        self._clock = clock
        self._client_clock = client_clock
        self._rng = rng
        #: Where runs are started; None: they are left in the store for any worker.
        self.worker = worker
        self._waiters = waiters
        self._admin = admin
        self._listener = listener

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
        self._waiters.check_lost()
        await self._follow_store()
        if self.worker is None:
            result = await self._create(invocation.spec, invocation.data, run_id)
        else:
            result, last = await self.worker.start(invocation.spec, invocation.data, run_id)
        if isinstance(result, Existing):
            self._check_same(invocation, result.row, on_conflict)
        return run_id, last

    async def _follow_store(self) -> None:
        """A worker's sweep sets the clock; without one somebody else must."""
        if self.worker is None:
            await self._client_clock.look()

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
        await self._follow_store()
        await self._admin.send_json(run_id, spec.name, data, key=key, policy=spec.policy)

    async def publish(self, event: Any, key: str | None) -> None:
        """Durable when this returns."""
        spec = event_spec(type(event))
        data = spec.codec.encode(event, f"the event {spec.name!r}")
        await self._follow_store()
        await self._admin.publish_json(spec.name, data, key=key, policy=spec.policy)

    async def request(self, run_id: str, event: Any, timeout: float | None, key: str | None) -> Any:
        """Send an event and wait for the workflow's `reply`."""
        run_id = check_run_id(run_id, allow_children=True)
        key = check_key(key)
        spec = event_spec(type(event))
        data = spec.codec.encode(event, f"the event {spec.name!r}")
        # With a key, a caller that asks again after a crash asks the same: it finds the answer, or waits for it.
        number = UUID(int=self._rng.getrandbits(128), version=4).hex
        name = request_name(run_id, key) if key is not None else number
        async with asyncio.timeout(timeout):
            await self._follow_store()
            if key is None or await self._store.reply(name) is None:
                item = NewItem(
                    kind=ItemKind.EVENT,
                    type=spec.name,
                    data=data,
                    sent_at=self._clock.now(),
                    dedup=f"request\n{key if key is not None else number}",
                    policy=spec.policy,
                    request=name,
                )
                appended = await self._store.append(run_id, item, self._pending_max)
                if appended.delivery is not None:
                    self._listener.deliver(appended.delivery)
            return _ANY.decode(await self._waiters.reply_to(run_id, name), f"the reply of run {run_id!r}")
