"""`SQLiteStore`: the protocol on one SQLite file, for any number of processes of one machine.

    coroutine ── submit ──> writer thread ── one transaction for all that queued ──> file (WAL, fsync)
        ^                        │
        └──── future, one wake-up per loop and transaction
    coroutine ── submit ──> reader thread ── own connection, never waits for the writer

What a call does is in `runs`, `turns`, `inbox`, `events`, `dead_letters`, `workers` and `reads`; this module only says
who may call, and where it runs.

Over 450 lines, and still one thing: the whole protocol, a line or two for each call, and opening and closing the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import apsw

from perdure.errors import BadArgument, EngineNotOpen, StoreUnusable
from perdure.kernel.journal import Row
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
from perdure.store.sql import dead_letters, events, inbox, moving, reads, runs
from perdure.store.sql import workers as claims
from perdure.store.sql.job_thread import in_thread
from perdure.store.sql.turns import commit_turns, create, create_all
from perdure.store.sqlite import health, liveness, workers
from perdure.store.sqlite.connection_thread import ConnectionThread
from perdure.store.sqlite.looking import Look
from perdure.store.sqlite.migrate import migrate
from perdure.store.sqlite.presence import Presence
from perdure.store.sqlite.reader import Reader
from perdure.store.sqlite.session import (
    Session,
    cannot_open,
    connect_reader,
    connect_writer,
    log,
    prepare_file,
    sync_what_others_wrote,
)
from perdure.store.sqlite.watch import Watch
from perdure.store.sqlite.writer import Writer
from perdure.store.turn import CommitResult, Created, Creation, Existing, Turn

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=ConnectionThread)

#: Older ones can corrupt a WAL file that several connections write (fixed in 3.51.3; FAULTS O12).
_SAFE_SQLITE: Final = 3_051_003

#: Turns that take about as long as the wake-ups saved by committing them on the loop's own thread, and their records.
_SMALL_COMMIT_TURNS: Final = 8
_SMALL_COMMIT_RECORDS: Final = 24


class SQLiteStore:
    """Runs in one file. `durability="full"` survives a power cut, `"relaxed"` the death of the process.

    `vfs` names a registered SQLite VFS to go through in place of the system's own: one that breaks, in tests.
    `migrate=False`: a file of an older schema is refused (`SchemaTooOld`) instead of migrated. `read_only=True`:
    nothing is written, whatever is called, and a file that cannot be written is no obstacle (see `looking`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        durability: Literal["full", "relaxed"] = "full",
        *,
        vfs: str | None = None,
        migrate: bool = True,
        read_only: bool = False,
    ) -> None:
        text = os.fspath(path)
        if not text.strip():
            raise StoreUnusable("the path of the SQLite file is empty. Name a file, such as 'perdure.db'.")
        if text == ":memory:":
            raise StoreUnusable("SQLiteStore needs a file. For a store in memory use MemoryStore.")
        if durability not in ("full", "relaxed"):
            raise BadArgument(f"durability is 'full' or 'relaxed', not {durability!r}.")
        # Once: every process must derive the names of -wal, -shm and lock files from the same real path.
        self.path: Final = os.path.realpath(text)
        self.durability: Final = durability
        self._vfs = vfs
        self._may_migrate = migrate
        self._look = Look(self.path, vfs) if read_only else None
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._locks: dict[str, liveness.WorkerLock] = {}
        self._watches: set[Watch] = set()
        self._presence = Presence(self.path)
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<SQLiteStore {self.path!r}, {'open' if self._reader else 'closed'}>"

    # -- opening and closing -----------------------------------------------------------------------------

    async def open(self) -> None:
        if self._reader is not None:
            return
        if self._look is not None:
            await self._open_for_looking(self._look)
            return
        session = await in_thread(self._prepare)
        self._pid = os.getpid()
        self._presence = Presence(self.path)
        self._writer = Writer(self.path, self._reconnect, self._presence, self._start_over)
        self._reader = Reader(self.path, lambda: connect_reader(self.path, vfs=self._vfs), self._presence)
        self._writer.adopt(session)
        self._writer.start()
        self._reader.start()
        with _registering:
            _open_stores.add(self)

    async def _open_for_looking(self, look: Look) -> None:
        await in_thread(look.prepare)
        self._pid = os.getpid()
        self._presence = Presence(self.path, ())  # others may come and go meanwhile, with their -wal and -shm
        self._reader = Reader(self.path, look.connect, self._presence)
        self._reader.start()
        with _registering:
            _open_stores.add(self)

    def _prepare(self) -> Session:
        if _sqlite_number() < _SAFE_SQLITE:
            log.warning("SQLite %s can corrupt a WAL file; upgrade apsw.", apsw.sqlite_lib_version())
        prepare_file(self.path)
        session: Session | None = None
        try:
            session = connect_writer(self.path, self.durability, self._vfs)
            migrate(session, self.path, allowed=self._may_migrate)
        except BaseException as error:
            if session is not None:
                session.close()
            if isinstance(error, apsw.Error):
                raise cannot_open(self.path, error) from error
            raise
        return session

    def _reconnect(self) -> Session:
        session = connect_writer(self.path, self.durability, self._vfs)
        try:
            sync_what_others_wrote(session)
        except BaseException:
            session.close()
            raise
        return session

    def _start_over(self) -> None:
        """Close every connection that this process has to the file, all at once, so that SQLite forgets what it knows
        of the locks. Each is opened again when it is needed.

        A lock that the system fails to free stays with SQLite's own notes about the file, which live as long as any
        connection of the process: everybody in it would hear "locked" until it is restarted.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(_starting_over)  # one at a time: only then may a thread hold several of the following
            with _registering:
                stores = [store for store in _open_stores if store.path == self.path]
            parts = [part for store in stores for part in store._connected()]
            for part in parts:
                stack.enter_context(part.using)
            for part in parts:
                part.drop()

    def _connected(self) -> list[ConnectionThread | Watch]:
        return [part for part in (self._writer, self._reader, *self._watches) if part is not None]

    async def close(self) -> None:
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        if reader is None or self._pid != os.getpid():
            return
        with _registering:
            _open_stores.discard(self)
        for watch in list(self._watches):
            watch.stop()
        self._watches.clear()
        try:
            await reader.stop()
            if writer is not None:
                await writer.stop()
        finally:
            # Also when the caller gives up waiting: the writer ends when it can, and without the lock others take over.
            # What it still commits then is refused or theirs to find: turns are fenced by the epoch of their run.
            if writer is not None:
                writer.ask_to_stop()
            for lock in self._locks.values():
                lock.release()
            self._locks.clear()
            if self._look is not None:
                self._look.close()

    def _after_fork(self) -> None:
        """In a forked child: touch nothing on disk, and keep the child from doing so (FAULTS C11, O15)."""
        for lock in self._locks.values():
            lock.abandon()
        for session in self._sessions():
            # SQLite forbids even closing an inherited connection, which is what its finaliser would do at
            # exit.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(session.connection))

    def _sessions(self) -> list[Session]:
        threads: list[ConnectionThread | None] = [self._writer, self._reader]
        found = [thread.session for thread in threads if thread is not None]
        found += [watch.session for watch in self._watches]
        return [session for session in found if session is not None]

    # -- where calls run ---------------------------------------------------------------------------------

    def _open(self, thread: C | None) -> C:
        if thread is None and self._look is not None and self._reader is not None:
            raise StoreUnusable(f"the store {self.path} was opened for looking only; nothing in it can be changed.")
        if thread is None:
            raise EngineNotOpen(f"the store {self.path} is not open. Open it first, use it before it is closed.")
        if self._pid != os.getpid():
            raise EngineNotOpen(
                f"the store {self.path} was opened by process {self._pid} and this is a forked child. "
                "Open a store of its own in the child."
            )
        return thread

    @property
    def writer(self) -> Writer:
        """The thread that every change goes through, for those who look at transactions, the WAL or its connection."""
        return self._open(self._writer)

    def _write(
        self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        return self._open(self._writer).submit(function, args)

    def _write_inline(
        self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """For small jobs that a caller waits for: without changing threads, if nothing else is going on."""
        return self._open(self._writer).commit_inline(function, args)

    def _read(
        self, function: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        return self._open(self._reader).submit(function, args)

    async def examine(self) -> Examined:
        """How it is, for `perdure doctor`. Open or not; writes nothing."""
        own = list(self._locks)
        return await in_thread(lambda: health.examine(self.path, self.durability, own, self._vfs))

    # -- clients -----------------------------------------------------------------------------------------

    async def create(self, new: NewRun, turn: Turn | None) -> Created | Existing:
        return await self._write_inline(create, new, turn)

    def create_all(self, creations: Sequence[Creation]) -> asyncio.Future[Sequence[Created | Existing]]:
        if len(creations) <= _SMALL_COMMIT_TURNS:
            return self._write_inline(create_all, creations)
        return self._write(create_all, creations)

    async def append(self, run_id: str, item: NewItem, pending_max: int) -> Appended:
        return await self._write_inline(inbox.append, run_id, item, pending_max)

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
        return await self._write_inline(events.publish, item, pending_max)

    async def spread(self, at: int, runs_max: int, pending_max: int) -> Spread:
        if not await self._read(reads.is_spreading):
            return Spread()
        return await self._write(events.spread, at, runs_max, pending_max)

    async def reply(self, request: str) -> bytes | None:
        return await self._read(reads.reply, request)

    async def replay_dead_letter(self, letter_id: int, run_id: str | None, at: int, pending_max: int) -> Published:
        return await self._write(dead_letters.replay, letter_id, run_id, at, pending_max)

    async def remove_dead_letters(self, letter_ids: Sequence[int]) -> int:
        return await self._write(dead_letters.remove, letter_ids)

    async def tidy_events(self, at: int, before: int, limit: int) -> int:
        return await self._write(events.tidy, at, before, limit)

    # -- workers -----------------------------------------------------------------------------------------

    async def register_worker(self, worker: WorkerInfo, terms: LeaseTerms = DEFAULT_TERMS) -> None:
        self._open(self._writer)
        if worker.id not in self._locks:
            # Before the row: a row without a held lock is a dead worker to everybody else.
            self._locks[worker.id] = liveness.hold(self.path, worker.id)
        await self._write(workers.add_worker, worker)

    async def drain_worker(self, worker_id: str, at: int) -> None:
        await self._write(workers.drain, worker_id, at)

    async def unregister_worker(self, worker_id: str, at: int) -> None:
        await self._write(workers.remove_workers, [worker_id], False)
        lock = self._locks.pop(worker_id, None)
        if lock is not None:
            lock.release()

    async def renew(self, worker_id: str, at: int) -> Renewed:
        """Only a look: the operating system knows who lives."""
        if await self._read(workers.is_registered, worker_id):
            return Renewed(alive=True)
        # Somebody deleted its lock file, or the file system lost the lock. What is left of that tells nobody anything.
        lock = self._locks.pop(worker_id, None)
        if lock is not None:
            lock.release()
        departure = await self._read(moving.departure)
        return Renewed(alive=False, moved_to=None if departure is None else departure.target)

    def trusted_until(self, worker_id: str) -> float | None:
        return None

    async def reap(self, worker_id: str, at: int) -> int:
        gone, locks = await self._read(self._find_dead, worker_id)
        try:
            return await self._write(workers.remove_workers, gone, True) if gone else 0
        finally:
            # Only now: until the change is durable, the lock keeps other reapers from doing the same.
            for lock in locks:
                lock.release()

    def _find_dead(self, session: Session, worker_id: str) -> tuple[list[str], list[liveness.WorkerLock]]:
        gone: list[str] = workers.orphaned_owners(session, worker_id)
        locks: list[liveness.WorkerLock] = []
        for worker in workers.workers(session):
            if worker.id == worker_id or worker.id in self._locks:
                continue
            verdict = liveness.take_if_dead(self.path, worker.id)
            if verdict is False:
                continue
            gone.append(worker.id)
            if verdict is not True:
                locks.append(verdict)
        return gone, locks

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
        # A look first: most sweeps find nothing, and a write would get in the way of others.
        if not await self._read(claims.is_anything_due, at):
            return []
        return await self._write(claims.claim, worker_id, at, limit, suspects_max, unknown, trusted)

    async def acquit(self, worker_id: str, acquittals: Sequence[Acquittal]) -> None:
        await self._write(claims.acquit, worker_id, acquittals)

    async def held(self, worker_id: str) -> Mapping[RunKey, int]:
        """The open runs of a worker and their epochs: what to compare with when a claim's answer got lost."""
        return await self._read(claims.held, worker_id)

    async def load(self, keys: Sequence[RunKey]) -> Sequence[Loaded]:
        return await self._read(reads.load, keys)

    def commit(self, turns: Sequence[Turn]) -> asyncio.Future[Sequence[CommitResult]]:
        if len(turns) <= _SMALL_COMMIT_TURNS and sum([len(turn.entries) for turn in turns]) <= _SMALL_COMMIT_RECORDS:
            return self._write_inline(commit_turns, turns)
        return self._write(commit_turns, turns)

    async def release(self, worker_id: str, releases: Sequence[Release]) -> None:
        await self._write(claims.release, worker_id, releases)

    async def park(self, key: RunKey, epoch: int, reason: str, at: int) -> bool:
        return await self._write(claims.park, key, epoch, reason, at)

    async def news(self, worker_id: str, cursor: int) -> News:
        return await self._read(workers.news, worker_id, cursor)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        if self._look is not None:
            self._open(self._reader)
            return lambda: None  # a moment's look: the waiter looks again
        writer = self._writer
        self._open(writer)
        watch = Watch(
            lambda: connect_reader(self.path, busy_seconds=0, vfs=self._vfs),
            callback,
            self._presence,
            own_commits=lambda: 0 if writer is None else writer.transactions,
            ask_writer=lambda: self._write(workers.data_version),
        )
        self._watches.add(watch)

        def stop() -> None:
            self._watches.discard(watch)
            watch.stop()

        return stop

    # -- moving ------------------------------------------------------------------------------------------

    async def identity(self) -> str:
        return await self._read(moving.identity)

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
        return await self._read(self._look_for_dead)

    def _look_for_dead(self, session: Session) -> frozenset[str]:
        others = [worker.id for worker in workers.workers(session) if worker.id not in self._locks]
        return frozenset(worker_id for worker_id in others if liveness.is_dead(self.path, worker_id))

    async def standings(self) -> Mapping[str, Standing]:
        return await self._read(workers.standings)

    async def publications(self, type: str | None, limit: int, after: int = 0) -> Sequence[Publication]:  # noqa: A002
        return await self._read(reads.publications, type, limit, after)

    async def dead_letters(self, type: str | None, limit: int, after: int = 0) -> Sequence[DeadLetter]:  # noqa: A002
        return await self._read(reads.dead_letters, type, limit, after)

    async def expired_events(self) -> Mapping[str, int]:
        return await self._read(reads.expired_events)


def _sqlite_number() -> int:
    """3.51.3 is 3,051,003: the library in use, not the one that apsw was compiled for."""
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    return major * 1_000_000 + minor * 1_000 + patch


_open_stores: weakref.WeakSet[Any] = weakref.WeakSet()
_registering = threading.Lock()
_starting_over = threading.Lock()


def _after_fork_in_child() -> None:
    global _registering, _starting_over
    _registering, _starting_over = threading.Lock(), threading.Lock()  # another thread may have held them
    for store in list(_open_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
