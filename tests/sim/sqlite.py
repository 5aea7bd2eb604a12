"""A simulated world on the store that users have: every call goes to SQLite and to the memory store, which must agree.

The file is a real one, with the real statements, triggers and schema; only the threads are left out (a job is carried
out where it is asked for, so that a world can be repeated) and the file locks that tell who lives, which belong to
processes: a worker is dead when the world says so (docs/decisions/0071-leases-in-the-simulator.md).

The memory store is the oracle. What the two answer is compared after every call, what they hold after every change:
a turn that one of them takes and the other refuses shows at once, by whichever statement it was carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from perdure.store.memory import MemoryStore
from perdure.store.model import DEFAULT_TERMS, LeaseTerms, RunRow, WorkerInfo
from perdure.store.sql import reads
from perdure.store.sql.job_thread import Job
from perdure.store.sqlite import bulk, session, workers
from perdure.store.sqlite.liveness import WorkerLock
from perdure.store.sqlite.migrate import migrate
from perdure.store.sqlite.presence import Presence
from perdure.store.sqlite.reader import Reader
from perdure.store.sqlite.session import Session, connect_reader, connect_writer, prepare_file
from perdure.store.sqlite.store import SQLiteStore
from perdure.store.sqlite.writer import Writer
from perdure.store.turn import Committed, Created, Rejected, goes_from_step_to_step
from sim.store import READS, perform

#: Groups of this many rows go through `bulk` in a world that has drawn it; the usual number is for speed only.
_BULK_ROWS = 2


class _Here:
    """Carries out jobs where they are asked for."""

    def start(self) -> None:
        """There is no thread."""

    def submit(self, function: Callable[..., Any], arguments: Sequence[Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        job = Job(function, arguments, loop.create_future(), loop)
        for each, result, error in self.carry_out([job]):  # type: ignore[attr-defined]
            each.resolve(result, error)
        return job.future

    commit_inline = submit


class _Writer(_Here, Writer):
    def carry_out(self, jobs: list[Job]) -> Any:
        self._outstanding += len(jobs)  # as `submit` does
        return super().carry_out(jobs)


class _Reader(_Here, Reader):
    pass


class SimSQLite(SQLiteStore):
    """The SQLite store without threads and locks. `is_dead` is asked which workers are."""

    def __init__(self, path: str, is_dead: Callable[[str], bool]) -> None:
        super().__init__(path, "relaxed")
        self._is_dead = is_dead
        presence = Presence(path)
        writer = _Writer(path, self._reconnect, presence, self._start_over)
        writer.adopt(connect_writer(path, "relaxed"))
        reader = _Reader(path, lambda: connect_reader(path), presence)
        self._writer, self._reader = writer, reader

    def end(self) -> None:
        for thread in (self._writer, self._reader):
            if thread is not None:
                thread.drop()

    async def register_worker(self, worker: WorkerInfo, terms: LeaseTerms = DEFAULT_TERMS) -> None:
        await self._write(workers.add_worker, worker)

    def _find_dead(self, session: Session, worker_id: str) -> tuple[list[str], list[WorkerLock]]:
        gone = workers.orphaned_owners(session, worker_id)
        gone += [one.id for one in workers.workers(session) if one.id != worker_id and self._is_dead(one.id)]
        return gone, []

    def _look_for_dead(self, session: Session) -> frozenset[str]:
        return frozenset(one.id for one in workers.workers(session) if self._is_dead(one.id))


class Difference(Exception):
    """The two stores do not agree."""


class Pair:
    """What a world on SQLite takes for its store. `differs` hears of it when the two do not agree."""

    def __init__(self, memory: MemoryStore, path: str, happened: Counter[str], differs: Callable[[str], None]) -> None:
        self._memory = memory
        self.sqlite = SimSQLite(path, lambda worker_id: worker_id in memory.tables.dead_workers)
        self._happened = happened
        self._differs = differs
        self._new_key = memory.tables.new_key
        memory.tables.new_key = self._key_alike  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:
        ours, theirs = getattr(self._memory, name), getattr(self.sqlite, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, ours, theirs, args, kwargs)

        setattr(self, name, call)
        return call

    async def _call(self, name: str, ours: Any, theirs: Any, args: Any, kwargs: Any) -> Any:
        found = _outcome(theirs, args, kwargs)
        expected = _outcome(ours, args, kwargs)
        if name == "commit":
            self._count(args[0], found)
        if _comparable(name, expected) != _comparable(name, found):
            self._fail(f"{name} answers {found!r}, and should answer {expected!r}")
        if name not in READS:
            self.compare()
        if isinstance(found, Exception):
            raise found
        return found

    def _key_alike(self, run_id: str) -> int:
        """A store may choose the keys of its runs: the memory store takes over those of SQLite, which skips some."""
        key = self._read(_key_of, run_id)
        if key is not None:
            self._memory.tables.last_key = key - 1
        return self._new_key(run_id)

    def add_worker(self, worker: WorkerInfo) -> None:
        """One that was taken for dead shows that it lives."""
        perform(self.sqlite.register_worker, (worker,), {})

    def compare(self) -> None:
        """Every run, as both stores have it."""
        rows = {row.key: row for row in self._read(_all_runs)}
        for key, run in self._memory.tables.runs.items():
            expected, found = run.row(), rows.pop(key, None)
            if expected != found:
                self._fail(f"run {run.id} is {found!r}, and should be {expected!r}")
        if rows:
            self._fail(f"there are runs {sorted(rows)} that should not be")
        counts = dict(self._read(_all_counts))
        for key, run in self._memory.tables.runs.items():
            expected_counts = (len(run.inbox), sum(map(len, run.journal.values())))
            if counts.get(key) != expected_counts:
                self._fail(f"run {run.id} has {counts.get(key)} unread items and records, not {expected_counts}")

    def compare_all(self) -> None:
        """At rest: also every record, every item and every dead letter."""
        self.compare()
        for key, run in self._memory.tables.runs.items():
            for generation, rows in run.journal.items():
                found = self._read(reads.journal, key, generation, 0, None)
                if list(found) != rows:
                    self._fail(f"the journal of generation {generation} of run {run.id} is {found}, not {rows}")
        letters = self._read(reads.dead_letters, None, 10_000, 0)
        if [_without_id(one) for one in letters] != [
            _without_id(one) for one in self._memory.tables.dead_letters.values()
        ]:
            self._fail("the dead letters are others than they should be")

    def _read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.sqlite._open(self.sqlite._reader).ready(), *arguments)

    def _fail(self, problem: str) -> None:
        self._differs(f"SQLite: {problem}")
        raise Difference(problem)

    def _count(self, turns: Sequence[Any], found: Any) -> None:
        """What kinds of turns came too late, so that a test can ask whether all did."""
        if isinstance(found, Exception):
            return
        for turn, answer in zip(turns, found, strict=True):
            if isinstance(answer, Rejected):
                for kind in _kinds(turn, len(turns)):
                    self._happened[f"stale {kind}"] += 1


def _kinds(turn: Any, count: int) -> Iterator[str]:
    yield "alone" if count == 1 else "in a group"
    if goes_from_step_to_step(turn):
        yield "step to step"
    if turn.status.terminal:
        yield "end"
    if any(entry.effect is not None for entry in turn.entries):
        yield "with effects"


def _outcome(call: Any, args: Any, kwargs: Any) -> Any:
    try:
        return perform(call, args, kwargs)
    except Exception as error:
        return error


def _comparable(name: str, answer: Any) -> Any:
    """An answer without what the protocol leaves open: texts of errors, whether there may be more to spread."""
    if isinstance(answer, Exception):
        return type(answer)
    match name:
        case "commit":
            return [_committed(one) for one in answer]
        case "create_all":
            return [_created(one) for one in answer]
        case "create":
            return _created(answer)
        case "claim":
            return sorted(answer, key=lambda row: row.key)
        case "load":
            return [(one.run, list(one.rows), list(one.inbox)) for one in answer]
        case "news":
            return answer.cursor, list(answer.items), sorted(answer.ended)
        case "publish" | "replay_dead_letter" | "spread":
            return list(answer.deliveries)
        case "reap" | "release" | "register_worker" | "unregister_worker" | "dead_workers":
            return None  # the runs are compared
        case "workers":
            return sorted(one.id for one in answer)
        case "dead_letters":
            return [_without_id(one) for one in answer]
        case _:
            return list(answer) if isinstance(answer, Sequence) and not isinstance(answer, (str, bytes)) else answer


def _created(answer: Any) -> Any:
    if not isinstance(answer, Created) or answer.committed is None:
        return answer
    return answer.key, answer.epoch, _committed(answer.committed)


def _committed(answer: Any) -> Any:
    if not isinstance(answer, Committed):
        return type(answer)
    deliveries = sorted(answer.deliveries, key=lambda one: one.item.id)
    return list(answer.effects), deliveries, dict(answer.spawned), answer.repeated, answer.replied


def _without_id(letter: Any) -> Any:
    return msgspec.structs.replace(letter, id=0)


def _key_of(session: Session, run_id: str) -> Any:
    return session.value("SELECT key FROM runs WHERE id = ?", (run_id,))


def _all_runs(session: Session) -> list[RunRow]:
    return [reads.run_row(values) for values in session.rows("SELECT * FROM runs")]


def _all_counts(session: Session) -> list[tuple[int, tuple[int, int]]]:
    found = session.rows(
        "SELECT key, (SELECT count(*) FROM inbox WHERE run_key = key),"
        " (SELECT count(*) FROM journal WHERE run_key = key) FROM runs"
    )
    return [(key, (items, records)) for key, items, records in found]


# -- the file ----------------------------------------------------------------------------------------------------


@functools.cache
def _empty_database() -> bytes:
    """A file with the schema and nothing in it: migrating takes longer than most worlds."""
    with _folder() as folder:
        path = os.path.join(folder, "empty.db")
        prepare_file(path)
        opened = connect_writer(path, "relaxed")
        migrate(opened, path)
        # The memory store gives the numbers from 2 on (see there).
        opened.execute("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'inbox'")
        opened.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        opened.close()
        with open(path, "rb") as file:
            return file.read()


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="perdure-sim-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def new_file(rng: random.Random) -> Iterator[str]:
    """A database for one world; in some of them small groups, too, are carried out by one statement."""
    before = bulk.BULK_ROWS_MIN
    level = session.log.level
    with _folder() as folder:
        path = os.path.join(folder, "world.db")
        with open(path, "wb") as file:
            file.write(_empty_database())
        os.chmod(path, 0o600)
        bulk.BULK_ROWS_MIN = rng.choice([before, _BULK_ROWS])  # type: ignore[misc]
        try:
            yield path
        finally:
            bulk.BULK_ROWS_MIN = before  # type: ignore[misc]
            session.log.setLevel(level)
