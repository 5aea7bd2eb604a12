"""Starting: a new run and its first turn become one commit. Runs of one moment are stored together."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from perdure.engine.resident import Resident
from perdure.engine.turns import Turns
from perdure.engine.worker.answers import asked, error_of, is_outage
from perdure.engine.worker.committing import Committing
from perdure.engine.worker.lifetime import Lifetime
from perdure.engine.worker.loading import Loading
from perdure.engine.worker.requests import SweepRequests
from perdure.engine.worker.residents import Residents
from perdure.engine.worker.runs import RunFactory
from perdure.errors import EngineNotOpen, describe
from perdure.kernel.arrivals import Arrivals
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.journal import Record, started_record, to_row
from perdure.kernel.values.digests import input_digest
from perdure.store.model import NewRun, Status
from perdure.store.protocol import Store
from perdure.store.turn import NO_EFFECTS, Created, Existing, Turn

logger = logging.getLogger("perdure.worker")

#: What came of starting a run, and its last record if its first turn has completed it.
Start: TypeAlias = tuple[Created | Existing, Record | None]


class PendingStart(msgspec.Struct, frozen=True, eq=False):
    """A run that a caller wants to start, and the answer that the caller waits for."""

    spec: WorkflowSpec
    data: bytes
    id: str
    answer: asyncio.Future[Start]


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """A new run whose first turn was already taken, waiting to be stored."""

    resident: Resident
    new: NewRun
    turn: Turn
    answer: asyncio.Future[Start]


class Starting:
    def __init__(
        self,
        worker_id: str,
        store: Store,
        runs: RunFactory,
        turns: Turns,
        residents: Residents,
        loading: Loading,
        committing: Committing,
        requests: SweepRequests,
        lifetime: Lifetime,
        finished: Callable[[str, Record | None], None],
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._runs = runs
        self._turns = turns
        self._residents = residents
        self._loading = loading
        self._committing = committing
        self._requests = requests
        self._lifetime = lifetime
        self._finished = finished
        self._asked: list[PendingStart] = []
        #: New runs on their way into the store, batch by batch.
        self._creating: list[Sequence[Prepared]] = []
        #: Those whose first turn failed, with the error, until it is known whether they exist.
        self._refusing: dict[PendingStart, BaseException] = {}

    def ask(self, spec: WorkflowSpec, data: bytes, run_id: str) -> asyncio.Future[Start]:
        """Start a run with the next pump. Resolves when it is stored, together with its first turn."""
        answer: asyncio.Future[Start] = asyncio.get_running_loop().create_future()
        self._asked.append(PendingStart(spec, data, run_id, answer))
        return answer

    @property
    def has_asked(self) -> bool:
        return bool(self._asked)

    def expects(self, run_id: str) -> bool:
        """Whether a call is under way whose answer brings this run into memory."""
        return any(one.new.id == run_id for one in itertools.chain.from_iterable(self._creating))

    # -- the first turn, in memory only ---------------------------------------------------------------------------

    def prepare(self, now: int, most: int) -> list[Prepared]:
        """Take the first turns of new runs. One that cannot is refused, with nothing written."""
        prepared: list[Prepared] = []
        starts, self._asked = self._asked[:most], self._asked[most:]
        for start in starts:
            if start.answer.done():  # the caller was cancelled
                continue
            try:
                prepared.append(self._prepare(start, now))
            except BaseException as error:
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    start.answer.set_exception(error)
                    raise
                self._refusing[start] = error
                self._lifetime.spawn(functools.partial(self._refuse_unless_it_exists, start, error))
        return prepared

    def _prepare(self, start: PendingStart, now: int) -> Prepared:
        spec, data, run_id = start.spec, start.data, start.id
        started = started_record(spec, data, self._turns.draw_seed(run_id, 1), now)
        digest = input_digest(spec.name, data)
        new = NewRun(run_id, spec.name, spec.version, digest, to_row(started), now, None, self._worker_id)
        run = self._runs.begin(spec, run_id, 1)
        resident = Resident(0, 1, 2, run=run, arrivals=Arrivals(written=(started,)))
        try:
            turn = self._turns.take(resident, now)
        except BaseException:
            run.close()
            raise
        if turn is None:
            raise AssertionError("a run that has just started always has a frontier to store")
        return Prepared(resident, new, turn, start.answer)

    async def _refuse_unless_it_exists(self, start: PendingStart, error: BaseException) -> None:
        """The first turn was only a try: a run of this id that exists has taken its own, perhaps with other code, and
        is what the caller gets (tests/lifecycle/test_starting_an_existing_run.py)."""
        try:
            row = await self._store.get(start.id)
        except Exception as failure:
            logger.debug("whether run %r exists could not be read: %s", start.id, describe(failure))
            row = None
        self._refusing.pop(start, None)
        if not start.answer.done():
            if row is None:
                start.answer.set_exception(error)
            else:
                start.answer.set_result((Existing(row=row), None))

    # -- the commit ------------------------------------------------------------------------------------------------

    def create(self, prepared: Sequence[Prepared], again: bool = False) -> None:
        cursor = self._requests.cursor
        self._creating.append(prepared)
        future = asked(self._store.create_all, [(one.new, one.turn) for one in prepared])
        if future.done():
            self._created(prepared, future, cursor, again)
        else:
            future.add_done_callback(lambda done: self._created(prepared, done, cursor, again))

    def _created(
        self,
        prepared: Sequence[Prepared],
        done: asyncio.Future[Sequence[Created | Existing]],
        cursor: int,
        again: bool,
    ) -> None:
        self._creating.remove(prepared)
        error = error_of(done)
        if error is not None:
            self._failed(prepared, error)
            return
        for one, result in zip(prepared, done.result(), strict=True):
            if isinstance(result, Existing):
                result = self._exists(one, result, again)
            else:
                self._adopt(one, result, cursor)
            if not one.answer.done():
                # Only success is for ever: a failed run may be resumed.
                ended = isinstance(result, Created) and one.turn.status is Status.COMPLETED
                one.answer.set_result((result, one.resident.last if ended else None))

    def _exists(self, one: Prepared, existing: Existing, again: bool) -> Created | Existing:
        row = existing.row
        one.resident.run.close()
        if row.owner == self._worker_id:
            self._requests.adopt_run(one.new.id)
        if again and (row.created_at, row.input_digest) == (one.new.created_at, one.new.input_digest):
            # Stored by the call that raised: this caller's own run, not an earlier one of the same id.
            return Created(key=row.key, epoch=row.epoch, committed=None)
        return existing

    def _adopt(self, prepared: Prepared, created: Created, cursor: int) -> None:
        """The prepared run is stored and belongs to this worker. One that its first turn completed does not enter
        memory in order to leave it."""
        resident = prepared.resident
        if prepared.turn.status is Status.COMPLETED and created.committed is NO_EFFECTS and not resident.commands:
            resident.run.close()
            self._finished(prepared.new.id, resident.last)
            return
        if self._lifetime.closed or self._residents.find(created.key) is not None:  # or the sweep found it first
            resident.run.close()
            return
        resident.key = created.key
        self._loading.enter(resident, cursor)
        self._committing.release(resident, prepared.turn, created.committed or NO_EFFECTS, cursor)

    def _failed(self, prepared: Sequence[Prepared], error: BaseException) -> None:
        """Nothing or everything was stored. If the fault may be of one run, the others are tried without it, half of
        them at a time; otherwise, and for that one, the callers are told."""
        if not is_outage(error) and len(prepared) > 1 and not self._lifetime.closed:
            half = len(prepared) // 2
            self.create(prepared[:half], True)
            self.create(prepared[half:], True)
            return
        for one in prepared:
            # If it was stored, it belongs to this worker, which no longer has it.
            one.resident.run.close()
            self._requests.adopt_run(one.new.id)
            self._loading.adopt_children(one.turn)
            if not one.answer.done():
                one.answer.set_exception(error)

    # -- the end -----------------------------------------------------------------------------------------------------

    def refuse_all(self, error: BaseException | None = None) -> None:
        """Callers who wanted to start a run in the last moment are told that nothing came of it."""
        starts, self._asked = self._asked, []
        for start in starts:
            if not start.answer.done():
                start.answer.set_exception(
                    error or EngineNotOpen(f"the engine was closed before run {start.id!r} started.")
                )

    def close_all(self) -> None:
        """As a crash would: what is on its way into the store is let go of. Its callers hear what comes of it."""
        for one in itertools.chain.from_iterable(self._creating):
            one.resident.run.close()
        refusing, self._refusing = self._refusing, {}
        for start, error in refusing.items():
            if not start.answer.done():
                start.answer.set_exception(error)
