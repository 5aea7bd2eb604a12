"""The one loop in which callers wait: for the end of a run, or for the reply to a request.

A run of this process tells when it ends or leaves (`Signals`); about any other one the store is asked, at once and
then again after every hint, or now and then where no hint comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec import Raw

from perdure.admin.reading import refuse_if_gone, row_of
from perdure.engine.clock import Timekeeper
from perdure.engine.frames import run_failed
from perdure.engine.signals import Signals
from perdure.engine.worker import Worker
from perdure.errors import EngineNotOpen, NoReply, RunCancelled, RunNotFound, RunParked, StoreError, StoreLost
from perdure.kernel.journal import Record, from_row
from perdure.kernel.outcomes import Complete, EndCancelled, Fail
from perdure.kernel.verbs.checks import check_run_id
from perdure.kernel.verbs.durations import Duration, positive_seconds_of
from perdure.store.model import RunKey, Status
from perdure.store.protocol import Store

T = TypeVar("T")

#: How often a caller waiting for a run of another process looks, when no hint comes.
_LOOK_SECONDS = 0.25
#: Statuses that a run has in a store whose runs have all gone to another one.
_STANDING: Final = frozenset({Status.MOVED, Status.PARKED, Status.PAUSED})


class Waiters:
    """One per open engine. Writes nothing; a caller may stop waiting at any time."""

    def __init__(self, store: Store, clock: Timekeeper, signals: Signals, worker: Worker | None) -> None:
        self._store = store
        self._clock = clock
        self._signals = signals
        #: Whose runs need not be looked up: it tells when they end or leave. None: all are looked up.
        self.worker = worker
        #: Set when the engine closes: callers that still wait for a run are told.
        self.closed = False
        #: Set when the files of the store are gone: nothing will ever end here.
        self.lost: StoreLost | None = None

    def check_lost(self) -> None:
        """Raise what was found out about the files of the store, if anything was."""
        if self.lost is not None:
            raise StoreLost(self.lost.message)

    async def end_of(self, run_id: str, timeout: Duration | None = None) -> Record:
        """Wait for the end of a run: its last record. Raises `RunParked`, `RunNotFound`, `RunMoved`, `TimeoutError`."""
        run_id = check_run_id(run_id, allow_children=True)

        async def look() -> Record | None:
            row = await row_of(self._store, run_id)
            if row.status.terminal:
                rows = await self._store.journal(row.key, row.generation, row.next_seq - 2)
                return from_row(rows[-1])
            if row.status in _STANDING:
                await refuse_if_gone(self._store)
            if row.status is Status.PARKED:
                raise RunParked(f"run {run_id!r} is parked: {row.reason}")
            return None

        if timeout is None:
            return await self._until(run_id, f"run {run_id!r}", look, lambda record: record)
        async with asyncio.timeout(positive_seconds_of(timeout, "the timeout of result")):
            return await self._until(run_id, f"run {run_id!r}", look, lambda record: record)

    async def reply_to(self, run_id: str, name: str) -> bytes:
        """Wait for the answer stored under a name. Raises `NoReply`, `RunParked`, `RunNotFound`, `RunMoved`."""
        asked: RunKey | None = None

        async def look() -> bytes | None:
            nonlocal asked
            row = await self._store.get(run_id)
            # After the row: a reply that came before the end of the run is then there.
            found = await self._store.reply(name)
            if found is not None:
                return found
            if row is None or row.status in _STANDING:
                await refuse_if_gone(self._store)
            if row is None:
                raise RunNotFound(f"no run has the id {run_id!r} any more.")
            if asked not in (None, row.key):  # the question went with the run that it was sent to
                raise NoReply(f"run {run_id!r} was deleted without answering; another one has its id now.")
            asked = row.key
            if row.status.terminal:
                raise NoReply(f"run {run_id!r} has ended ({row.status}) without answering.")
            if row.status is Status.PARKED:
                raise RunParked(f"run {run_id!r} is parked, and has not answered: {row.reason}")
            return None

        return await self._until(run_id, f"a reply of run {run_id!r}", look, None)

    async def _until(
        self,
        run_id: str,
        what: str,
        look: Callable[[], Awaitable[T | None]],
        hear: Callable[[Record], T] | None,
    ) -> T:
        """Return what `look` finds in the store, or what `hear` makes of the last record of a run that ends here. With
        `hear`, a run of this process is not looked up at all."""
        while True:
            self.check_lost()
            if self.closed:
                raise EngineNotOpen(f"the engine was closed while somebody waited for {what}.")
            signal = self._signals.wait(run_id)
            try:
                if hear is not None and self.worker is not None and self.worker.residents.holds(run_id):
                    record = await signal
                    if record is not None:
                        return hear(record)
                    continue
                found = await look()
                if found is not None:
                    return found
                await asyncio.wait({signal}, timeout=self._clock.poll(_LOOK_SECONDS))
                if signal.done():
                    signal.result()  # raises if it is known that what is waited for will never come
            finally:
                self._signals.forget(run_id, signal)


def value_of(run_id: str, record: Record) -> Raw:
    """What a run returned, by its last record. Raises `RunFailed`, `RunCancelled`."""
    match record.body.outcome():
        case Complete(value):
            return value
        case Fail(error):
            raise run_failed(run_id, error, record.at)
        case EndCancelled(reason):
            raise RunCancelled(f"run {run_id!r} was cancelled: {reason or 'no reason given'}")
        case _:
            raise StoreError(f"the journal of run {run_id!r} does not end as its status says.")
