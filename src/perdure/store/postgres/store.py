"""`PostgresStore`: the protocol on a PostgreSQL database, for workers on any number of machines.

    turns and new runs that are plain ── lane ──> one round trip for all that queued, on the event loop
    every other change ──────────────── writer ─> a thread: one transaction for all that queued, locks in one order
    reads ───────────────────────────── reader ─> a thread, never waits for the writer
    the right to own runs ───────────── lease ──> a thread for each worker, renews by the database's clock
    hearing of others ───────────────── listener > a thread that waits for notifications

Five connections for a process. What a call does is in `store.sql`, as for SQLite; what is different is in `locks`
(many writers), `workers` (leases in place of file locks, news by transactions in place of numbers) and `batches`.

Over 450 lines, and still one thing: the whole protocol, a line or two for each call, and opening and closing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from perdure.errors import EngineNotOpen, StoreError, StoreUnusable
from perdure.kernel.journal import Row
from perdure.limits import (
    CLAIM_AGAIN_SECONDS,
    POSTGRES_CALL_SECONDS,
    POSTGRES_NOTIFY_SECONDS,
    POSTGRES_REAP_RUNS_MAX,
)
from perdure.store.health import Examined
from perdure.store.model import (
    DEFAULT_TERMS,
    Acquittal,
    Appended,
    DeadLetter,
    Delivery,
    InboxItem,
    LeaseTerms,
    Loaded,
    NewItem,
    NewRun,
    News,
    Publication,
    Published,
    Release,
    Renewed,
    Reopen,
    RunFilter,
    RunKey,
    RunRow,
    Snapshot,
    Spread,
    Standing,
    Status,
    WorkerInfo,
)
from perdure.store.move import Departure, Packed, Receipt, Received, Remainder
from perdure.store.postgres import health, workers
from perdure.store.postgres.batches import opens_only_itself
from perdure.store.postgres.claims import Claims
from perdure.store.postgres.connection import Connection, log
from perdure.store.postgres.faults import Fault
from perdure.store.postgres.lane import Lane, Request, prepare
from perdure.store.postgres.leases import Lease
from perdure.store.postgres.migrate import migrate
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.server import Server
from perdure.store.postgres.session import Session
from perdure.store.postgres.threads import Reader, SessionThread, Writer
from perdure.store.postgres.url import Location, parse
from perdure.store.postgres.watch import Listener, channel_of
from perdure.store.sql import dead_letters, events, inbox, moving, reads, runs
from perdure.store.sql import workers as claims
from perdure.store.sql.job_thread import in_thread
from perdure.store.sql.turns import commit_turns, create, create_all
from perdure.store.turn import CommitResult, Created, Creation, Existing, Turn, concerns_itself_only

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=SessionThread)

#: The first pause before the lane's connection is opened again that broke, and the longest.
_REOPEN_SECONDS, _REOPEN_SECONDS_MAX = 0.1, 1.0


class PostgresStore:
    """Runs in one schema of a PostgreSQL database.

    `location`: a URL (`postgresql://user@host/database?schema=perdure`), or one that was read. `migrate=False`: an
    older schema is refused (`SchemaTooOld`) instead of migrated. `make=False`: one that is not there is refused instead
    of made. `read_only=True`: neither, and nothing is written, whatever is called.
    """

    def __init__(
        self, location: Location | str, *, migrate: bool = True, make: bool = True, read_only: bool = False
    ) -> None:
        self.location = parse(location) if isinstance(location, str) else location
        self._may_migrate = migrate and not read_only
        self._may_make = make and not read_only
        self._is_read_only = read_only
        self.server = Server(self.location)
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._lane: Lane | None = None
        self._listener: Listener | None = None
        self._leases: dict[str, Lease] = {}
        #: What each worker of this store has claimed so far.
        self._claims: dict[str, Claims] = {}
        self._notifying: asyncio.TimerHandle | None = None
        self._reopening: asyncio.Future[None] | None = None
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<PostgresStore {self.location.shown}, {'open' if self._reader else 'closed'}>"

    # -- opening and closing -----------------------------------------------------------------------------

    async def open(self) -> None:
        if self._reader is not None:
            return
        loop = asyncio.get_running_loop()
        self.server = Server(self.location, lambda what: self._tell_of_other_past(loop, what))
        lane_connection = await in_thread(self._prepare, Connection.close)
        self._pid = os.getpid()
        self._reader = Reader(self.server)
        self._reader.start()
        if self._is_read_only:
            lane_connection.close()
            return
        self._writer = Writer(self.server)
        self._writer.start()
        self._open_lane(lane_connection)

    def _open_lane(self, connection: Connection) -> None:
        self._lane = Lane(connection, self._general, self._lane_committed, self._lane_broke)
        with contextlib.suppress(NotImplementedError):  # a loop without sockets (Proactor): all go the general way
            self._lane.open()

    def _lane_broke(self) -> None:
        """Until there is another connection, everything goes the general way."""
        if self._reader is not None:
            self._reopening = asyncio.ensure_future(self._reopen_lane())
            self._reopening.add_done_callback(self._reopened)

    async def _reopen_lane(self) -> None:
        wait = _REOPEN_SECONDS
        while self._reader is not None:
            try:
                connection = await in_thread(self._connect_lane, Connection.close)
            except (StoreError, Fault):  # the writer says what is wrong, to those who wait for it
                await asyncio.sleep(wait)
                wait = min(2 * wait, _REOPEN_SECONDS_MAX)
                continue
            if self._reader is None:
                connection.close()
            else:
                self._open_lane(connection)
            return

    def _reopened(self, done: asyncio.Future[None]) -> None:
        if done.cancelled():  # by a stranger, or with the loop
            asyncio.get_running_loop().call_later(_REOPEN_SECONDS_MAX, self._lane_broke)
        elif (error := done.exception()) is not None:
            log.critical("the commit lane of %s could not be opened again", self.location.shown, exc_info=error)

    def _prepare(self) -> Connection:
        try:
            connection = Connection(self.location, name="lane", server=self.server)
        except Fault as fault:  # it broke before it was of any use
            raise fault.explained(self.location.shown) from None
        try:
            connection.call_seconds = 0.0  # migrating takes as long as it takes
            migrate(connection, self.location, allowed=self._may_migrate, make=self._may_make)
            return self._prepare_lane(connection)
        except Fault as fault:
            connection.close()
            raise fault.explained(self.location.shown) from None
        except BaseException:
            connection.close()
            raise

    def _connect_lane(self) -> Connection:
        connection = Connection(self.location, name="lane", server=self.server)
        try:
            return self._prepare_lane(connection)
        except BaseException:
            connection.close()
            raise

    def _prepare_lane(self, connection: Connection) -> Connection:
        if not connection.is_pooled:
            prepare(connection)
        connection.call_seconds = float(POSTGRES_CALL_SECONDS)
        return connection

    # -- a server with another past ----------------------------------------------------------------------

    def _tell_of_other_past(self, loop: asyncio.AbstractEventLoop, what: str) -> None:
        """On the thread that found it out, before it uses its connection."""
        log.warning("%s %s: workers drop what they have in memory and read it again.", self.location.shown, what)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._has_other_past)

    def _tell_here(self) -> None:
        if self._listener is not None:
            self._listener.tell_here()

    def _has_other_past(self) -> None:
        """Memory may be ahead of the store: nothing that was decided by it is written any more (FAULTS B15)."""
        for lease in self._leases.values():
            lease.lose()
        for thread in (self._writer, self._reader):
            if thread is not None:
                thread.generation = self.server.generation
        if self._lane is not None:
            self._lane.refuse_all(self.server.of_another_past())
        self._tell_here()

    async def close(self) -> None:
        if self._notifying is not None and self._pid == os.getpid():
            # What was given back last is what others wait for (tests/fleet/test_worker_processes.py).
            self._notifying.cancel()
            self._send_notification()
        writer, reader, lane, listener = self._writer, self._reader, self._lane, self._listener
        self._writer = self._reader = self._lane = self._listener = None
        if reader is None or self._pid != os.getpid():
            return
        if self._reopening is not None:
            self._reopening.remove_done_callback(self._reopened)
            self._reopening.cancel()
        for lease in self._leases.values():
            lease.stop()
        self._leases.clear()
        if listener is not None:
            listener.stop()
        if lane is not None:
            await lane.idle.wait()
            lane.close()
        try:
            await reader.stop()
            if writer is not None:
                await writer.stop()
        finally:
            if writer is not None:
                writer.ask_to_stop()
            self.server.patience.close()

    async def crash(self) -> None:
        """For tests: everything that the death of the process ends, and the end of its lease. Nothing is given back."""
        dead = dict(self._leases)
        await self.close()
        await in_thread(lambda: self._expire(dead))

    def _expire(self, leases: Mapping[str, Lease]) -> None:
        for lease in leases.values():
            lease.join()  # a renewal that is under way would undo what follows
        session = Session(self.location)
        workers.expire(session, list(leases))
        session.close()

    @property
    def lane_is_open(self) -> bool:
        """Whether plain turns go the fast way now, for those who look at connections."""
        return self._lane is not None and self._lane.is_open

    # -- where calls run ---------------------------------------------------------------------------------

    def _open(self, thread: C | None) -> C:
        if thread is None and self._is_read_only and self._reader is not None:
            raise StoreUnusable(f"the store {self.location.shown} was opened for looking only; nothing can be changed.")
        if thread is None:
            raise EngineNotOpen(f"the store {self.location.shown} is not open. Open it, use it before it is closed.")
        if self._pid != os.getpid():
            raise EngineNotOpen(
                f"the store {self.location.shown} was opened by process {self._pid} and this is a forked child. "
                "Open a store of its own in the child."
            )
        return thread

    def _write(
        self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        future = self._write_quietly(function, *args, **kwargs)
        future.add_done_callback(self._wrote)
        return future

    def _write_quietly(
        self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """What is no news for others. If every sweep told them, each would wake all the others, and a fleet without
        work would look at the database as often as the square of its workers (tests/fleet/test_crowds.py)."""
        return self._open(self._writer).submit(function, args)

    def _read(
        self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        return self._open(self._reader).submit(function, args)

    def _general(self, turns: Sequence[Turn], creations: Sequence[Creation]) -> asyncio.Future[Any]:
        """What the lane does not do."""
        if self._writer is None:  # closing: nobody waits for the answer
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(EngineNotOpen("the store is closed. Open it again first."))
            return future
        return self._write(commit_turns, turns) if turns else self._write(create_all, creations)

    # -- telling others ----------------------------------------------------------------------------------

    def _wrote(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._notify()

    def _lane_committed(self, group: Sequence[Request]) -> None:
        """Others want to know of runs that ended, and of new ones that nobody has."""
        for request in group:
            ended = any(turn.status.terminal for turn in request.turns)
            ended = ended or any(first is not None and first.status.terminal for _, first in request.creations)
            if ended or any(new.owner is None for new, _ in request.creations):
                self._notify()
                return

    def _notify(self) -> None:
        """Wake the others soon: many commits make one notification."""
        if self._notifying is None and self._reader is not None and self.location.push != "off":
            self._notifying = asyncio.get_running_loop().call_later(POSTGRES_NOTIFY_SECONDS, self._send_notification)

    def _send_notification(self) -> None:
        self._notifying = None
        if self._reader is not None:
            self._reader.submit(_notify, (channel_of(self.location),)).add_done_callback(_ignore)

    def _own_pids(self) -> frozenset[int]:
        """The sessions that notify for this store: it has no news for itself."""
        session = None if self._reader is None else self._reader.session
        return frozenset() if session is None else frozenset({session.connection.pq.backend_pid})

    async def examine(self) -> Examined:
        """How it is, for `perdure doctor`. Open or not; writes nothing."""
        return await in_thread(lambda: health.examine(self.location))

    # -- clients -----------------------------------------------------------------------------------------

    async def create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        if self._lane is not None and opens_only_itself((new, turn)):
            (answer,) = await self._lane.submit((), [(new, turn)])
            return answer  # type: ignore[no-any-return]
        return await self._write(create, new, turn)

    def create_all(self, creations: Sequence[Creation]) -> asyncio.Future[Sequence[Created | Existing]]:
        if self._lane is not None and all(map(opens_only_itself, creations)):
            return self._lane.submit((), creations)
        return self._write(create_all, creations)

    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        return await self._write(inbox.append, run_id, item, pending_max)

    async def request_cancel(self, run_id: str, item: NewItem) -> Delivery | None:
        return await self._write(inbox.request_cancel, run_id, item)

    async def terminate(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        return await self._write(runs.terminate, run_id, reason, at)

    async def resume(self, run_id: str, at: int) -> bool:
        return await self._write(runs.resume, run_id, at)

    # -- people ------------------------------------------------------------------------------------------

    async def pause(self, run_id: str, reason: str, at: int) -> Sequence[Delivery] | None:
        return await self._write(runs.pause, run_id, reason, at)

    async def unpause(self, run_id: str, at: int) -> bool:
        return await self._write(runs.unpause, run_id, at)

    async def reopen(self, reopen: Reopen) -> bool:
        return await self._write(runs.reopen, reopen)

    async def restore(self, snapshot: Snapshot) -> Created | Existing:
        return await self._write(runs.restore, snapshot)

    async def delete(self, keys: Sequence[RunKey]) -> int:
        return await self._write(runs.delete, keys)

    async def publish(self, item: NewItem, pending_max: int) -> Published:
        return await self._write(events.publish, item, pending_max)

    async def spread(self, at: int, runs_max: int, pending_max: int) -> Spread:
        if not await self._read(reads.is_spreading):
            return Spread()
        return await self._write(events.spread, at, runs_max, pending_max)

    async def reply(self, request: str) -> bytes | None:
        return await self._read(reads.reply, request)

    async def replay_dead_letter(self, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
        return await self._write(dead_letters.replay, letter_id, run_id, at, pending_max)

    async def remove_dead_letters(self, letter_ids: Sequence[int]) -> int:
        return await self._write_quietly(dead_letters.remove, letter_ids)

    async def tidy_events(self, at: int, before: int, limit: int) -> int:
        return await self._write_quietly(events.tidy, at, before, limit)

    # -- workers -----------------------------------------------------------------------------------------

    async def register_worker(self, worker: WorkerInfo, terms: LeaseTerms = DEFAULT_TERMS) -> None:
        asked = time.monotonic()
        number, now = await self._write_quietly(workers.add_worker, worker, terms)
        if worker.id not in self._leases:
            lease = Lease(self.server, worker.id, number, terms, asked, now)
            self._leases[worker.id] = lease
            lease.start()

    async def drain_worker(self, worker_id: str, at: int) -> None:
        await self._write(workers.drain, worker_id, at)

    async def unregister_worker(self, worker_id: str, at: int) -> None:
        await self._free(worker_id, died=False)
        self._claims.pop(worker_id, None)
        lease = self._leases.pop(worker_id, None)
        if lease is not None:
            lease.stop()

    async def renew(self, worker_id: str, at: int) -> Renewed:
        """What its own thread came to: a loop that is late must not lose the lease."""
        lease = self._leases.get(worker_id)
        if lease is None:
            return Renewed(alive=False, now=await self._read(workers.store_time))
        if lease.is_alive_for_others:
            return Renewed(alive=True, now=lease.now())
        departure = await self._read(moving.departure)
        return Renewed(alive=False, now=lease.now(), moved_to=None if departure is None else departure.target)

    def trusted_until(self, worker_id: str) -> float | None:
        lease = self._leases.get(worker_id)
        return 0.0 if lease is None else lease.trusted_until

    async def reap(self, worker_id: str, at: int) -> int:
        await self._write_quietly(workers.mark_dead, worker_id)
        freed = sum([await self._free(gone, died=True) for gone in await self._read(workers.gone_workers, worker_id)])
        if freed:
            for look in self._claims.values():
                look.start_over()  # timers may have come due while their worker was dead
        return freed

    async def _free(self, worker_id: str, *, died: bool) -> int:
        """Free the runs of a worker, a page at a time, and forget it; how many there were."""
        freed = 0
        while True:
            some = await self._write_quietly(workers.free_some, worker_id, died)
            freed += some
            if some:
                self._notify()
            if some < POSTGRES_REAP_RUNS_MAX:
                return freed

    async def claim(
        self,
        worker_id: str,
        at: int,
        limit: int,
        suspects_max: int = 1,
        unknown: Sequence[tuple[str, str]] = (),
        trusted: int = 0,
        again: bool = False,
    ) -> Sequence[RunRow]:
        look = self._claims.setdefault(worker_id, Claims())
        if not again:
            # A look first: most sweeps find nothing.
            look.begin(at, unknown)
            look.counted(await self._read(look.count))
        if look.share <= 0:
            return []
        limit, suspects_max = min(limit, look.share), min(suspects_max, look.share)
        try:
            found = await self._write_quietly(look.take, worker_id, at, limit, suspects_max, trusted)
        except BaseException:
            look.start_over()
            raise
        look.taken(len(found), limit)
        if look.share <= 0:  # there may be more; by then the others have had theirs
            asyncio.get_running_loop().call_later(CLAIM_AGAIN_SECONDS, self._tell_here)
        return found

    async def acquit(self, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
        await self._write_quietly(claims.acquit, worker_id, acquittals)

    async def held(self, worker_id: str) -> Mapping[RunKey, int]:
        return await self._read(claims.held, worker_id)

    async def load(self, keys: Sequence[RunKey]) -> Sequence[Loaded]:
        return await self._read(reads.load, keys)

    def commit(self, turns: Sequence[Turn]) -> asyncio.Future[Sequence[CommitResult]]:
        if self._lane is None:
            return self._write(commit_turns, turns)
        plain = [concerns_itself_only(turn) for turn in turns]
        if all(plain) and len({turn.key for turn in turns}) == len(turns):
            return self._lane.submit(turns, ())
        if not any(plain) or len({turn.key for turn in turns}) < len(turns):
            return self._write(commit_turns, turns)  # one after the other, in their order
        return asyncio.ensure_future(self._commit_both_ways(turns, plain))

    async def _commit_both_ways(self, turns: Sequence[Turn], plain: Sequence[bool]) -> Sequence[CommitResult]:
        """Plain turns in the lane, the others the general way, at once: they are of different runs."""
        if self._lane is None:
            return await self._write(commit_turns, turns)
        here = self._lane.submit([turn for turn, is_so in zip(turns, plain, strict=True) if is_so], ())
        there = self._write(commit_turns, [turn for turn, is_so in zip(turns, plain, strict=True) if not is_so])
        answers, others = await asyncio.gather(here, there)
        own, general = iter(answers), iter(others)
        return [next(own) if is_so else next(general) for is_so in plain]

    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        await self._write(claims.release, worker_id, releases)

    async def park(self, key: RunKey, epoch: int, reason: str, at: int) -> bool:
        return await self._write(claims.park, key, epoch, reason.replace("\0", "\\0"), at)

    async def news(self, worker_id: str, cursor: int) -> News:
        return await self._read(workers.news, worker_id, cursor)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._open(self._reader)
        if self._listener is None:
            self._listener = Listener(self.server, self._own_pids)
        return self._listener.add(callback)

    # -- moving ------------------------------------------------------------------------------------------

    async def identity(self) -> str:
        return await self._write(_identity)

    async def departure(self) -> Departure | None:
        return await self._read(moving.departure)

    async def depart(self, target: str, target_id: str, at: int) -> Departure:
        return await self._write(moving.depart, target, target_id, at)

    async def stay(self, at: int) -> bool:
        return await self._write(moving.stay, at)

    async def leave(self, at: int) -> bool:
        return await self._write(moving.leave, at)

    async def pack(self, keys: Sequence[RunKey]) -> Sequence[Packed]:
        return await self._read(moving.pack, keys)

    async def remainder(self) -> Remainder:
        return await self._read(moving.remainder)

    async def receive(self, source: str, runs: Sequence[Packed]) -> Receipt:
        return await self._write(moving.receive, source, runs)

    async def confirm(self, source: str, marks: Mapping[str, str]) -> None:
        await self._write(moving.confirm, source, marks)

    async def received(self, source: str, after: RunKey, limit: int) -> Sequence[Received]:
        return await self._read(moving.received, source, after, limit)

    async def withdraw(self, source: str, run_ids: Sequence[str]) -> int:
        return await self._write(moving.withdraw, source, run_ids)

    async def arrive(self, source: str, remainder: Remainder, at: int) -> bool:
        return await self._write(moving.arrive, source, remainder, at)

    async def has_arrived(self, source: str) -> bool:
        return await self._read(moving.has_arrived, source)

    # -- reading -----------------------------------------------------------------------------------------

    async def get(self, run_id: str) -> RunRow | None:
        return await self._read(reads.get, run_id)

    async def list_runs(self, where: RunFilter, limit: int, before: RunKey | None = None) -> Sequence[RunRow]:
        return await self._read(reads.list_runs, where, limit, before)

    async def count_runs(self) -> Mapping[Status, int]:
        return await self._read(reads.count_runs)

    async def journal(
        self, key: RunKey, generation: int, after_seq: int = 0, limit: int | None = None
    ) -> Sequence[Row]:
        return await self._read(reads.journal, key, generation, after_seq, limit)

    async def inbox(self, key: RunKey, limit: int) -> Sequence[InboxItem]:
        return await self._read(reads.inbox, key, limit)

    async def workers(self) -> Sequence[WorkerInfo]:
        return await self._read(workers.workers)

    async def dead_workers(self) -> frozenset[str]:
        return await self._read(workers.dead_workers)

    async def standings(self) -> Mapping[str, Standing]:
        return await self._read(workers.standings)

    async def publications(self, type: str | None, limit: int, after: int = 0) -> Sequence[Publication]:  # noqa: A002
        return await self._read(reads.publications, type, limit, after)

    async def dead_letters(self, type: str | None, limit: int, after: int = 0) -> Sequence[DeadLetter]:  # noqa: A002
        return await self._read(reads.dead_letters, type, limit, after)

    async def expired_events(self) -> Mapping[str, int]:
        return await self._read(reads.expired_events)


def _identity(session: Session) -> str:
    found: str | None = session.value(SQL["identity"])
    if found is None:
        session.execute(SQL["add_identity"])
    return found or moving.identity(session)


def _notify(session: Session, channel: str) -> None:
    session.rows(SQL["notify"], (channel,))


def _ignore(future: asyncio.Future[Any]) -> None:
    """A notification that was not sent is found out by the next look."""
    if not future.cancelled():
        future.exception()
