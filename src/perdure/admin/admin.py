"""`Admin`: everything that people do with runs and see of them. One object for programs, the CLI and a web page.

    engine.admin              of an open engine, whose worker hears of a change at once
    Admin(store)              of a store alone; workers elsewhere find the change by themselves

Every change is one atomic, durable change of the store, and may be repeated after `StoreUnavailable`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from perdure import limits
from perdure.admin import actions, transfer
from perdure.admin import resume as resuming
from perdure.admin.fork import SAME, fork
from perdure.admin.ids import new_run_id
from perdure.admin.listener import Listener
from perdure.admin.looking import Looking, statuses_of, wall_clock
from perdure.admin.reading import row_of
from perdure.admin.replay import Verdict, in_callback, replay_records
from perdure.authoring.registry import Registry, registry
from perdure.errors import BadArgument, StoreUnavailable
from perdure.given import shown, whole_of
from perdure.kernel.definitions import DEFAULT_POLICY, EventPolicy
from perdure.kernel.frontier import decode_frontier
from perdure.kernel.journal import Record
from perdure.kernel.verbs.checks import check_key, check_reason, check_run_id, check_text
from perdure.kernel.verbs.durations import Duration, positive_seconds_of
from perdure.store.items import cancel_item
from perdure.store.model import TERMINAL, ItemKind, NewItem, Published, RunRow, Status
from perdure.store.protocol import Store

T = TypeVar("T")


class Admin(Looking):
    """See the module docstring. `pending_events_max`: how many unread events of a type a run may have."""

    def __init__(
        self,
        store: Store,
        *,
        registry: Registry = registry,
        now: Callable[[], int] = wall_clock,
        rng: random.Random | None = None,
        pending_events_max: int = limits.PENDING_EVENTS_MAX_DEFAULT,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(store, registry=registry, now=now, listener=listener)
        self._rng = rng if rng is not None else random.Random()
        self._pending_max = pending_events_max
        #: For events that their senders give no key: one of this object's, and a number.
        self._drawn_keys = map(f"{secrets.token_urlsafe(12)}.{{}}".format, itertools.count(1))

    # -- ending ----------------------------------------------------------------------------------------------------

    async def cancel(self, run_id: str, reason: str = "") -> bool:
        """Ask a run to cancel: `CancelledError` is raised in its code, which may clean up with steps.

        False if it had ended, or was asked before. Raises `RunNotFound`.
        """
        store = self.store
        run_id = check_run_id(run_id, allow_children=True)
        delivery = await store.request_cancel(run_id, cancel_item(check_reason(reason), self._now()))
        if delivery is not None:
            self._listener.deliver(delivery)
        return delivery is not None

    async def terminate(self, run_id: str, reason: str = "") -> bool:
        """End a run now, without its cleanup. False if it had ended. Raises `RunNotFound`."""
        store = self.store
        reason = check_reason(reason)
        row = await row_of(store, run_id)
        deliveries = await store.terminate(row.id, reason, self._now())
        if deliveries is None:
            return False
        self._listener.ended(row)
        for delivery in deliveries:
            self._listener.deliver(delivery)
        return True

    # -- stopping and going on -------------------------------------------------------------------------------------

    async def resume(self, run_id: str) -> bool:
        """Let a parked run go on, or a failed one from its last good record: what made it fail is tried again.

        False if it is neither. Raises `RunNotFound`, and `ActionRefused` where that makes no sense, with the reason.
        """
        store = self.store
        run_id = check_run_id(run_id, allow_children=True)
        resumed = await resuming.resume(store, run_id, self._now(), self._replay)
        self._listener.look()
        return resumed

    async def _replay(self, row: RunRow, records: Sequence[Record], frontier: bytes) -> Verdict:
        return await in_callback(lambda: replay_records(self._registry, row, records, decode_frontier(frontier)))

    async def pause(self, run_id: str, by: str = "") -> bool:
        """Stop a run until `unpause`. Running attempts of its steps are cancelled, and run again afterwards, as after a
        crash; events go on arriving. False if it is paused already. Raises `RunNotFound`, `ActionRefused`."""
        store = self.store
        run_id = check_run_id(run_id, allow_children=True)
        deliveries = await actions.pause(store, run_id, by, self._now())
        for delivery in deliveries or ():
            self._listener.deliver(delivery)
        return deliveries is not None

    async def unpause(self, run_id: str) -> bool:
        """Let a paused run go on. False if it is not paused. Raises `RunNotFound`, `ActionRefused`."""
        store = self.store
        run_id = check_run_id(run_id, allow_children=True)
        changed = await actions.unpause(store, run_id, self._now())
        self._listener.look()
        return changed

    async def retry(self, run_id: str, location: str = "") -> None:
        """Begin the next attempt of a step that is in a backoff now (of all such steps, without a location).

        Raises `RunNotFound`, `UnknownLocation`, and `ActionRefused` if nothing is in a backoff.
        """
        store = self.store
        run_id = check_run_id(run_id, allow_children=True)
        delivery = await actions.retry(store, run_id, location, self._now())
        if delivery is not None:
            self._listener.deliver(delivery)

    # -- copies ----------------------------------------------------------------------------------------------------

    async def fork(
        self,
        run_id: str,
        *,
        id: str | None = None,  # noqa: A002
        at: str | None = None,
        result: Any = ...,
        arguments: Mapping[str, Any] | None = None,
        generation: int | None = None,
        paused: bool = False,
    ) -> str:
        """Make a new run from the past of another, which is only read: its journal up to the location `at`.

        The operation there happens again, or has the `result` given; `arguments` replaces some of the workflow's.
        Returns the id of the new run. Raises `RunNotFound`, `UnknownLocation`, `ActionRefused`, `RunConflict`.
        """
        store, now = self.store, self._now()
        new_id = id if id is not None else new_run_id(self._rng, now)
        await fork(
            store, run_id, new_id, now, location=at,
            result=SAME if result is ... else result, arguments=arguments, generation=generation, paused=paused,
        )  # fmt: skip
        self._listener.look()
        return new_id

    async def export_run(self, run_id: str) -> bytes:
        """A run as one JSON file, to be kept or imported elsewhere. Raises `RunNotFound`."""
        store = self.store
        return await transfer.export_run(store, check_run_id(run_id, allow_children=True))

    async def import_run(
        self,
        data: bytes,
        *,
        id: str | None = None,  # noqa: A002
        source: str = "a file",
        paused: bool = True,
    ) -> str:
        """Create the run of an exported file, under its own or another id; returns the id. An open one is paused unless
        told otherwise: the original may still be running. Raises `ExportUnusable`, `RunConflict`."""
        imported = await transfer.import_run(self.store, data, run_id=id, source=source, paused=paused)
        self._listener.look()
        return imported

    # -- removing --------------------------------------------------------------------------------------------------

    async def delete(self, run_id: str) -> None:
        """Remove a run that has ended. Raises `RunNotFound`, `ActionRefused`."""
        store = self.store
        await actions.delete(store, check_run_id(run_id, allow_children=True), self._now())

    async def prune(
        self,
        older_than: Duration,
        *,
        status: str | Status | Iterable[str | Status] | None = None,
        workflow: str | None = None,
        dry_run: bool = False,
    ) -> int:
        """Remove runs that ended longer ago than this, in small transactions; with `dry_run` only count them. Returns
        how many."""
        store = self.store
        before = self._now() - round(positive_seconds_of(older_than, "older_than of prune") * 1_000_000)
        pruning = actions.prune(store, before, statuses_of(status) or TERMINAL, workflow, dry_run=dry_run)
        return sum([count async for count in pruning])

    # -- events ----------------------------------------------------------------------------------------------------

    async def send_json(
        self, run_id: str, type_name: str, data: bytes, *, key: str | None = None, policy: EventPolicy = DEFAULT_POLICY
    ) -> None:
        """Send an event whose class need not be here: durable when this returns. The same `key` twice counts once.

        Without a key it counts once all the same: it gets one of its own, and if the store does not answer the call is
        repeated for a while. Raises `RunNotFound`, `RunFinished`, `InboxFull`, `StoreUnavailable`.
        """
        store = self.store
        run_id = check_run_id(run_id, allow_children=True)
        item = self._event(type_name, data, key, policy)
        appended = await self._persistently(key, lambda: store.append(run_id, item, self._pending_max))
        if appended.delivery is not None:
            self._listener.deliver(appended.delivery)

    async def publish_json(self, type_name: str, data: bytes, *, key: str | None = None, policy: EventPolicy) -> None:
        """Publish an event; `policy` is what its class says. Durable when this returns. Without a key it is repeated as
        `send_json` is."""
        store = self.store
        item = self._event(type_name, data, key, policy)
        await self._hand_over(await self._persistently(key, lambda: store.publish(item, self._pending_max)))

    async def _persistently(self, key: str | None, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that hands over an event. A caller without a key cannot repeat it without sending twice, so it is
        repeated here while the store does not answer (tests/events/test_lost_sends.py). The item has a key for that."""
        if key is not None:
            return await call()
        loop = asyncio.get_running_loop()
        give_up, wait = loop.time() + limits.SEND_SECONDS_MAX, limits.STORAGE_RETRY_SECONDS_MIN
        for tries_left in range(limits.SEND_TRIES_MAX - 1, -1, -1):
            try:
                answer = await call()
            except StoreUnavailable:
                if not tries_left or loop.time() + wait > give_up:
                    raise
                await asyncio.sleep(wait)
                wait *= 2
            else:
                if wait > limits.STORAGE_RETRY_SECONDS_MIN:
                    self._listener.look()  # stored by an earlier call, it is not told of in the answer to this one
                return answer
        raise AssertionError("the last try returns or raises")

    def _event(self, type_name: str, data: bytes, key: str | None, policy: EventPolicy) -> NewItem:
        return NewItem(
            kind=ItemKind.EVENT,
            type=check_text(type_name, "the type of an event"),
            data=data,
            sent_at=self._now(),
            dedup=next(self._drawn_keys) if key is None else check_key(key),
            policy=policy,
        )

    async def _hand_over(self, published: Published) -> None:
        for delivery in published.deliveries:
            self._listener.deliver(delivery)
        more = published.more and not self._listener.spread()
        while more:  # nobody else here would; should this process die, the sweep of any worker goes on
            more = (await self._store.spread(self._now(), limits.SPREAD_RUNS_MAX, self._pending_max)).more

    async def replay_dead_letter(self, letter_id: int, run_id: str | None = None) -> None:
        """Send a dead letter to a run, which wakes if it waits, or publish it to all. It is then no longer one.

        Raises `DeadLetterNotFound`, `RunNotFound`, `RunFinished`, `InboxFull`; then it stays as it is.
        """
        store = self.store
        if run_id is not None:
            run_id = check_run_id(run_id, allow_children=True)
        number = _check_number(letter_id)
        await self._hand_over(await store.replay_dead_letter(number, run_id, self._now(), self._pending_max))

    async def remove_dead_letters(self, *letter_ids: int) -> int:
        """Forget dead letters. Returns how many there were."""
        return await self.store.remove_dead_letters([_check_number(letter_id) for letter_id in letter_ids])


def _check_number(letter_id: int) -> int:
    exact = whole_of(letter_id)
    if exact is None or not 0 < exact < 2**63:
        raise BadArgument(f"a dead letter has a whole number, not {shown(letter_id)}.")
    return exact
