"""What callers do with events besides sending them: publish, ask and wait for the answer, dead letters."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from perdure import limits
from perdure.admin.views import DeadLetterView, PublishedView, letter_view, published_view
from perdure.engine.client import LOOK_SECONDS, Client
from perdure.engine.clock import Timekeeper
from perdure.engine.settings import Settings
from perdure.engine.signals import Signals
from perdure.engine.worker import Worker
from perdure.errors import BadArgument, EngineNotOpen, NoReply, RunNotFound, RunParked
from perdure.given import shown, whole_of
from perdure.kernel.codec import codec_for
from perdure.kernel.definitions import EventPolicy
from perdure.kernel.verbs import check_key, check_run_id, check_text, check_whole, event_spec
from perdure.store.base import Delivery, ItemKind, NewItem, RunKey, Status, Store
from perdure.store.items import request_name

_ANY = codec_for(Any)


class EventClient:
    """One per engine, beside its `Client`. Every method may be repeated safely after `StoreUnavailable`."""

    def __init__(
        self,
        client: Client,
        store: Store,
        settings: Settings,
        clock: Timekeeper,
        rng: random.Random,
        signals: Signals,
        worker: Worker | None,
    ) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self._rng = rng
        self._signals = signals
        self._worker = worker
        self._pending_max = settings.max_pending_events

    # -- publishing ----------------------------------------------------------------------------------------------

    async def publish(self, event: Any, key: str | None) -> None:
        """Durable when this returns."""
        spec = event_spec(type(event))
        data = spec.codec.encode(event, f"the event {spec.name!r}")
        await self.publish_raw(spec.name, data, key, spec.policy)

    async def publish_raw(self, type_name: str, data: bytes, key: str | None, policy: EventPolicy) -> None:
        key = check_key(key)
        type_name = check_text(type_name, "the type of an event")
        now = self._clock.now()
        item = NewItem(kind=ItemKind.EVENT, type=type_name, data=data, sent_at=now, dedup=key, policy=policy)
        published = await self._store.publish(item, self._pending_max)
        await self._hand_over(published.deliveries, more=published.more)

    async def _hand_over(self, deliveries: Iterable[Delivery], *, more: bool = False) -> None:
        worker = self._worker
        if worker is not None:
            for delivery in deliveries:
                worker.deliver(delivery)
            if more:
                worker.errands.spread_published()
            return
        while more:  # nobody else here would; should this process die, the sweep of any worker goes on
            spread = await self._store.spread(self._clock.now(), limits.SPREAD_RUNS_MAX, self._pending_max)
            more = spread.more

    # -- asking --------------------------------------------------------------------------------------------------

    async def request(self, run_id: str, event: Any, timeout: float | None, key: str | None) -> Any:
        """Send an event and wait for the workflow's `reply`."""
        run_id = check_run_id(run_id, allow_children=True)
        key = check_key(key)
        spec = event_spec(type(event))
        data = spec.codec.encode(event, f"the event {spec.name!r}")
        # With a key, whoever asks again after a crash asks the same: it finds the answer, or waits for it.
        number = UUID(int=self._rng.getrandbits(128), version=4).hex
        name = request_name(run_id, key) if key is not None else number
        async with asyncio.timeout(timeout):
            if key is None or await self._store.reply(name) is None:
                dedup = f"request\n{key if key is not None else number}"
                await self._ask(run_id, spec.name, data, dedup, name, spec.policy)
            return _ANY.decode(await self._answer(run_id, name), f"the reply of run {run_id!r}")

    async def _ask(self, run_id: str, type_name: str, data: bytes, dedup: str, name: str, policy: EventPolicy) -> None:
        item = NewItem(
            kind=ItemKind.EVENT,
            type=type_name,
            data=data,
            sent_at=self._clock.now(),
            dedup=dedup,
            policy=policy,
            request=name,
        )
        appended = await self._store.append(run_id, item, self._pending_max)
        if appended.delivery is not None:
            await self._hand_over([appended.delivery])

    async def _answer(self, run_id: str, name: str) -> bytes:
        signals = self._signals
        asked: RunKey | None = None
        while True:
            self._client.check_lost()
            if self._client.closed:
                raise EngineNotOpen(f"the engine was closed while somebody waited for a reply of run {run_id!r}.")
            signal = signals.wait(run_id)
            try:
                row = await self._store.get(run_id)
                # After the row: a reply that came before the end of the run is then there.
                found = await self._store.reply(name)
                if found is not None:
                    return found
                if row is None:
                    raise RunNotFound(f"no run has the id {run_id!r} any more.")
                if asked not in (None, row.key):  # the question went with the run that it was sent to
                    raise NoReply(f"run {run_id!r} was deleted without answering; another one has its id now.")
                asked = row.key
                if row.status.terminal:
                    raise NoReply(f"run {run_id!r} has ended ({row.status}) without answering.")
                if row.status is Status.PARKED:
                    raise RunParked(f"run {run_id!r} is parked, and has not answered: {row.reason}")
                await asyncio.wait({signal}, timeout=self._clock.poll(LOOK_SECONDS))
                if signal.done():
                    signal.result()  # raises if it is known that no answer will ever come
            finally:
                signals.forget(run_id, signal)

    # -- looking -------------------------------------------------------------------------------------------------

    async def published(self, type_name: str | None, limit: int, after: int) -> list[PublishedView]:
        limit, after = _check_page(limit, after)
        type_name = check_text(type_name, "type")
        return [published_view(one) for one in await self._store.publications(type_name, limit, after)]

    async def letters(self, type_name: str | None, limit: int, after: int) -> list[DeadLetterView]:
        limit, after = _check_page(limit, after)
        type_name = check_text(type_name, "type")
        return [letter_view(one) for one in await self._store.letters(type_name, limit, after)]

    # -- dead letters --------------------------------------------------------------------------------------------

    async def replay(self, letter_id: int, run_id: str | None) -> None:
        if run_id is not None:
            run_id = check_run_id(run_id, allow_children=True)
        now = self._clock.now()
        published = await self._store.replay_letter(_check_number(letter_id), run_id, now, self._pending_max)
        await self._hand_over(published.deliveries, more=published.more)

    async def remove(self, letter_ids: Sequence[int]) -> int:
        return await self._store.remove_letters([_check_number(letter_id) for letter_id in letter_ids])


def _check_page(limit: int, after: int) -> tuple[int, int]:
    return check_whole(limit, "limit", 1, limits.PAGE_SIZE_MAX), check_whole(after, "after", 0, 2**63 - 1)


def _check_number(letter_id: int) -> int:
    exact = whole_of(letter_id)
    if exact is None or not 0 < exact < 2**63:
        raise BadArgument(f"a dead letter has a whole number, not {shown(letter_id)}.")
    return exact
