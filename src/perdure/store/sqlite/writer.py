"""The one connection that writes, and the group commit.

While one transaction is being made durable, jobs queue up; the next transaction takes them all. A job keeps
its own outcome: one that raises changes nothing and does not disturb its neighbours. A store fault (busy,
full, I/O) fails the whole group with the same error, and the writer goes on.

A lone job need not change threads. Waking the writer and then the loop costs about 150 microseconds where an
fsync takes 200, so a small job that finds the writer idle and its own loop with nothing else to do is
committed on the spot (`commit_here`). The loop is then deaf for the length of one fsync, so this stops for a
while when the disk is slow, and never waits for a lock.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import apsw

from perdure.errors import StoreError, StoreLost
from perdure.limits import SQLITE_BUSY_SECONDS, SQLITE_GROUP_JOBS_MAX
from perdure.store.base import PLAIN, StepTurn
from perdure.store.sqlite import bulk
from perdure.store.sqlite.changes import create_all, data_version
from perdure.store.sqlite.lane import Job, Lane, Outcome
from perdure.store.sqlite.pace import Pace
from perdure.store.sqlite.presence import Presence
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import (
    STATEMENT_FAULTS,
    Session,
    breaks_connection,
    log,
)
from perdure.store.sqlite.turns import commit_turns

#: The answer to a turn that is all there is.
_PLAIN: Final = (PLAIN,)
_BEGIN, _COMMIT, _ROLLBACK = SQL["begin"], SQL["commit"], SQL["rollback"]

#: What `PRAGMA synchronous` says when every commit is synced; EXTRA is more.
_SYNC_FULL: Final = 2
#: A commit on the loop's thread that took longer than this was too long. Ten times a good fsync.
HERE_SECONDS_MAX: Final = 0.003
#: The loop's thread is then owed this many times as long without one, so slow commits take a twentieth of its time,
#: and is left alone once it is owed more than so many seconds: by the fifth commit of a slow disk, not by a hiccup of a
#: good one, of which there are several a second.
HERE_PAUSE_FACTOR: Final = 20.0
HERE_OWED_SECONDS_MAX: Final = 1.0
#: Answers in a row that may be given without letting the loop look at its sockets and timers: about a
#: millisecond.
HERE_STREAK_MAX: Final = 4
#: How long the loop's thread stands aside at most for the writer to begin; 500 turns take it a third of a millisecond.
STAND_ASIDE_SECONDS_MAX: Final = 0.002
#: The same for a writer that is busy and should need the interpreter by now, by its pace. That may be wrong.
GUESS_SECONDS_MAX: Final = 0.0005
#: Pages in the WAL before they are copied into the database; SQLite's own default. Done by the writer thread,
#: not within whichever commit happens to reach the number: copying takes tens of milliseconds.
CHECKPOINT_PAGES: Final = 1_000
#: Not at once but when no job has come for a moment (`lane.CHORE_SECONDS`), or when there are so many times more: in
#: the middle of a burst the next group of turns would wait for it.
CHECKPOINT_PUT_OFF_FACTOR: Final = 8
#: Transactions after which to look how many pages there are, and how many times more if the last ones wrote so little
#: that nothing can be due before: a chain of steps, committed on the loop's thread, is interrupted by each look.
CHECKPOINT_LOOK_TRANSACTIONS: Final = 32
CHECKPOINT_LOOK_FACTOR_MAX: Final = 8
#: How many changes count as one more transaction there: a large group writes as many pages as dozens of steps.
CHECKPOINT_LOOK_CHANGES: Final = 32
#: The room that is made for them in advance (`_make_room`), in pages and in bytes of the WAL. More than the number
#: above: a few stay in the cache, and some come before anybody looks.
ROOM_EXTRA_PAGES: Final = 64
_PAGE_BYTES, _FRAME_BYTES = 4_096, 4_096 + 24


class _HalfDone(Exception):
    """A job raised after it had already changed something: the group must be rolled back and split."""


class Writer(Lane):
    """Carries out jobs in as few transactions as possible."""

    def __init__(
        self, path: str, connect: Callable[[], Session], presence: Presence, start_over: Callable[[], None]
    ) -> None:
        super().__init__("perdure-sqlite-writer", path, connect, presence, SQLITE_GROUP_JOBS_MAX)
        self._start_over = start_over
        self._counting = threading.Lock()
        self._outstanding = 0
        #: Held from the moment a large job is given to a writer that needs the interpreter until it needs it no longer.
        self._begun = threading.Lock()
        self._pace = Pace()
        #: Until when the loop's thread is owed time without slow commits.
        self._owed_until = 0.0
        self._streak = 0
        self._until_look = CHECKPOINT_LOOK_TRANSACTIONS
        #: The transactions there had been when somebody last looked, and the pages there were to copy.
        self._looked_at = (0, 0)
        #: Whether commits are synced and making room for them may be of use.
        self._wants_room = False
        #: Transactions committed, for tests of the group commit and for `watch`.
        self.transactions = 0
        #: The files are no longer those that were opened: what is in ours is left alone.
        self._is_lost = False
        #: The seconds that the connection waits for a lock.
        self._patience = SQLITE_BUSY_SECONDS

    # -- asking (on a loop's thread) ---------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], arguments: Sequence[Any]) -> asyncio.Future[Any]:
        with self._counting:
            self._outstanding += 1
            is_idle = self._outstanding == 1
        request = _request(function, arguments)
        if request is None or not bulk.is_worthwhile([request]) or not (is_idle or self._pace.needs_interpreter()):
            return super().submit(function, arguments)
        # Stand aside until SQLite is at work on it. A thread that asks for the interpreter gets it when the one that
        # has it waits for something, or after five milliseconds: by then a busy loop has often done all that it could
        # have done meanwhile, and has to wait in turn (docs/decisions/0100-the-loop-stands-aside.md).
        self._begun.acquire(blocking=False)  # it may be free or not: nobody need have waited for the last one
        future = super().submit(function, arguments)
        self._begun.acquire(timeout=STAND_ASIDE_SECONDS_MAX if is_idle else GUESS_SECONDS_MAX)
        return future

    def commit_here(self, function: Callable[..., Any], arguments: Sequence[Any]) -> asyncio.Future[Any]:
        """Like `submit`, but on the spot if that delays nobody. A loop's own jobs keep their order."""
        loop = asyncio.get_running_loop()
        # What else the loop has to do. Not public; loops without it (uvloop) simply take the other way.
        waiting: Any = getattr(loop, "_ready", True)
        if waiting or self._outstanding or time.monotonic() < self._owed_until - HERE_OWED_SECONDS_MAX:
            return self.submit(function, arguments)
        job = Job(function, arguments, loop.create_future(), loop)
        outcome = self._try_here(job)
        if outcome is None:
            return self.submit(function, arguments)
        self._streak = (self._streak + 1) % HERE_STREAK_MAX
        if self._streak:
            job.resolve(outcome[1], outcome[2])
        else:
            # Whoever awaits a future that is done runs on without the loop: a chain of commits would starve
            # everything else (tests/stores/test_sqlite_commit_here.py).
            loop.call_soon(job.resolve, outcome[1], outcome[2])
        return job.future

    def _try_here(self, job: Job) -> Outcome | None:
        """None: somebody else is using the connection or the file, so the job must queue."""
        if self._until_look <= 0 or not self.using.acquire(blocking=False):
            return None
        try:
            session = self.session
            if session is None:
                return None
            began = time.monotonic()
            try:
                return self._outcomes([job], 0)[0]
            except apsw.BusyError as error:
                self._recover(error)
                return None
            finally:
                ended = time.monotonic()
                if (took := ended - began) > HERE_SECONDS_MAX:
                    self._owed_until = max(self._owed_until, ended) + took * HERE_PAUSE_FACTOR
        finally:
            self.using.release()

    # -- carrying out ------------------------------------------------------------------------------------

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        try:
            return [outcome for part in _parts(jobs) for outcome in self._carry_out_part(part)]
        finally:
            with self._counting:
                self._outstanding -= len(jobs)

    def _wait_for_locks(self, session: Session, seconds: float) -> None:
        """How long a statement waits for other processes. Told to SQLite only when it changes."""
        if self._patience != seconds:
            self._patience = seconds
            session.connection.set_busy_timeout(int(seconds * 1000))

    def _carry_out_part(self, jobs: list[Job]) -> list[Outcome]:
        outcomes, failure = self._try_part(jobs, SQLITE_BUSY_SECONDS)
        if failure is not None:
            # By another process, or by a lock that this one could not free: such a lock stays until all connections
            # of the process are closed at once (tests/io_faults/test_failing_unlock.py).
            self._start_over()
            outcomes, failure = self._try_part(jobs, 0)
        return outcomes if failure is None else [(job, None, failure) for job in jobs]

    def _try_part(self, jobs: list[Job], patience: float) -> tuple[list[Outcome], StoreError | None]:
        """The outcomes, or what to say if the file was locked all the time."""
        with self.using:
            try:
                return self._outcomes(jobs, patience), None
            except apsw.BusyError as error:
                return [], self._recover(error)

    def _outcomes(self, jobs: list[Job], patience: float) -> list[Outcome]:
        """One outcome for each job. Raises nothing but `BusyError`, which leaves the choice to the caller."""
        try:
            self._check_files()
            session = self.ready()
            self._wait_for_locks(session, patience)
            return self._at_once(session, jobs) or self._transact(session, jobs)
        except apsw.BusyError:
            raise
        except _HalfDone as half:
            if len(jobs) == 1:
                return [(jobs[0], None, half.__cause__)]
            # Rare (a bug, or a value that SQLite refuses): find the job that did it by giving each its own.
            return [outcome for job in jobs for outcome in self._outcomes([job], patience)]
        except Exception as error:
            failure = self._recover(error)
            return [(job, None, failure) for job in jobs]

    def _transact(self, session: Session, jobs: list[Job]) -> list[Outcome]:
        session.execute(_BEGIN)
        outcomes: list[Outcome] = []
        total_changes = session.total_changes
        began_with = total_changes()
        for job in jobs:
            before = total_changes()
            try:
                outcomes.append((job, job.function(session, *job.arguments), None))
            except Exception as error:
                if isinstance(error, apsw.Error) and not isinstance(error, STATEMENT_FAULTS):
                    raise
                if total_changes() != before:
                    session.execute(_ROLLBACK)
                    raise _HalfDone from error
                outcomes.append((job, None, error))
        session.execute(_COMMIT)
        self._count_transaction(total_changes() - began_with)
        return outcomes

    def _at_once(self, session: Session, jobs: list[Job]) -> list[Outcome]:
        """The outcomes of a group that one statement could carry out; nothing was done if there are none."""
        if len(jobs) == 1 and jobs[0].function is commit_turns:
            turns = jobs[0].arguments[0]
            if len(turns) == 1 and type(turns[0]) is StepTurn:
                if not bulk.commit_step(session, turns[0]):
                    return []
                self._count_transaction()
                return [(jobs[0], _PLAIN, None)]
        requests = [_request(job.function, job.arguments) for job in jobs]
        known = [request for request in requests if request is not None]
        answers = bulk.commit_all(session, known, self._has_begun) if len(known) == len(jobs) else None
        if answers is None:
            self._has_begun(0)
            self._pace.ended()
            return []
        self._count_transaction(self._pace.ended())
        return [
            (job, data_version(session) if job.function is data_version else answer, None)
            for job, answer in zip(jobs, answers, strict=True)
        ]

    def _has_begun(self, changes: int) -> None:
        """The loop's thread need not stand aside any longer."""
        self._pace.began(changes)
        if self._begun.locked():
            self._begun.release()

    def _count_transaction(self, changes: int = 1) -> None:
        self.transactions += 1
        self._until_look -= 1 + changes // CHECKPOINT_LOOK_CHANGES

    def adopt(self, session: Session) -> None:
        # Checkpoints are made by `after_round`, not within whichever commit happens to fill the WAL. And not by a hook
        # at the end of each commit either: that would need the interpreter.
        session.connection.wal_autocheckpoint(0)
        bulk.prepare(session)
        self._wants_room = session.value(SQL["synchronous"]) >= _SYNC_FULL
        self._patience = SQLITE_BUSY_SECONDS
        super().adopt(session)

    def after_round(self) -> None:
        """Copy the WAL into the database when it has grown. A failure here loses nothing: the WAL stays."""
        if self._until_look > 0:
            return
        with self.using:
            self._until_look = CHECKPOINT_LOOK_TRANSACTIONS
            if self.session is None:
                return
            if self._wants_room:
                self._make_room(self.session)
                if self.session is None:  # that had to give the connection up (tests/stores/test_sqlite_room.py)
                    return
            pages = self._pages_to_copy(self.session)
            self._until_look = self._next_look(pages)
            self.has_chore = pages >= CHECKPOINT_PAGES
            if pages >= CHECKPOINT_PAGES * CHECKPOINT_PUT_OFF_FACTOR:
                self.has_chore = False
                self._checkpoint(SQL["checkpoint"])

    def _next_look(self, pages: int) -> int:
        """After how many transactions to look again, by what the last ones wrote."""
        (transactions, before), self._looked_at = self._looked_at, (self.transactions, pages)
        written, usual = pages - before, CHECKPOINT_LOOK_TRANSACTIONS
        if written <= 0:  # they were copied in between, by us or by another process: it does not tell how many came
            return usual
        factor = int((CHECKPOINT_PAGES - pages) * (self.transactions - transactions) / written / usual)
        return usual * min(max(1, factor), CHECKPOINT_LOOK_FACTOR_MAX)

    def do_chore(self) -> None:
        """Copy the WAL into the database while there is nothing else to do."""
        with self.using:
            self._checkpoint(SQL["checkpoint"])

    def _make_room(self, session: Session) -> None:
        """Let the WAL have the length that it is going to have, once this process has shown that it writes a lot.

        Syncing a file that has grown writes its new length and its blocks to the file system's own journal, which takes
        longer than the data (docs/why/performance.md). So a large row is written and taken back: SQLite puts what does
        not fit its cache into the WAL, and later commits overwrite it. Only for speed: a failure changes nothing.
        """
        try:
            if os.path.getsize(self._path + "-wal") >= CHECKPOINT_PAGES * _FRAME_BYTES:
                return
        except OSError:
            return
        try:
            self._wait_for_locks(session, 0)
            session.execute(SQL["small_cache"])
            session.execute(_BEGIN)
            session.execute(SQL["add_scratch_table"])
            session.execute(SQL["fill_scratch_table"], ((CHECKPOINT_PAGES + ROOM_EXTRA_PAGES) * _PAGE_BYTES,))
            session.execute(_ROLLBACK)
        except apsw.Error as error:
            # If another process was writing, there will be another look.
            self._wants_room = isinstance(error, apsw.BusyError)
            log.debug("the WAL of %s grows as it is used: %s", self._path, error)
            self._recover(error)
        if self.session is session:  # not if that had to give the connection up
            session.execute(SQL["usual_cache"])

    def _pages_to_copy(self, session: Session) -> int:
        try:
            found = session.row(SQL["wal_pages"])
        except apsw.Error:
            return 0
        return 0 if found is None else found[1] - found[2]

    def finish(self) -> None:
        """Leave one tidy file, if that needs no waiting."""
        if self.session is not None and not self._is_lost:
            self._wait_for_locks(self.session, 0)
            self._checkpoint(SQL["truncate_wal"])

    def _checkpoint(self, statement: str) -> None:
        try:
            if self.session is not None:
                self.session.execute(statement)
        except apsw.Error as error:
            log.debug("the WAL of %s stays for now: %s", self._path, error)

    def _check_files(self) -> None:
        try:
            self._presence.check()
        except StoreLost:
            if self._presence.is_only_without("-wal"):
                # What was acknowledged is in a file that goes with this process. Every other process uses the same
                # -shm, so that copying it into the database is what it always is.
                self._checkpoint(SQL["checkpoint"])
            elif self.session is not None:
                # Another process may have begun with files of its own: nothing of ours may get between.
                self.session.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                self._is_lost = True
            raise

    def _recover(self, error: Exception) -> StoreError:
        """Get back to a state from which the next transaction can start; the error in our words."""
        failure = error if isinstance(error, StoreError) else self.explained(error)
        session = self.session
        if session is not None:
            try:
                if session.connection.in_transaction:
                    session.execute(_ROLLBACK)
            except apsw.Error:
                self.drop()
        if breaks_connection(error):
            self.drop()
        return failure


def _request(function: Callable[..., Any], arguments: Sequence[Any]) -> bulk.Request | None:
    """What a job asks for, if one statement may do it together with others."""
    if function is commit_turns:
        return arguments[0], ()
    if function is create_all:
        return (), arguments[0]
    if function is data_version:  # often among them, and it changes nothing
        return (), ()
    return None


def _parts(jobs: list[Job]) -> list[list[Job]]:
    """A group in the parts that are carried out in one transaction each, in the same order: all together, unless a
    large batch of turns in it can be done by one statement when the others do not get in its way."""
    requests = [_request(job.function, job.arguments) for job in jobs]
    if None not in requests or not bulk.is_worthwhile(filter(None, requests)):
        return [jobs]
    parts: list[list[Job]] = []
    last: bool | None = None
    for job, request in zip(jobs, requests, strict=True):
        if (request is None) is not last:
            parts.append([])
            last = request is None
        parts[-1].append(job)
    return parts
