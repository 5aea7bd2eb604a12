"""The one connection that writes, and the thread that has it.

While one transaction is being made durable, jobs queue up; the next transaction takes them all (`group_commit`). A lone
small job need not change threads (`inline_commit`). After a round the WAL is looked after (`wal`). A store fault (busy,
full, I/O) fails the whole group with the same error, and the writer goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from perdure.errors import StoreError, StoreLost
from perdure.limits import SQLITE_BUSY_SECONDS, SQLITE_GROUP_JOBS_MAX
from perdure.store.sql.job_thread import Job, Outcome
from perdure.store.sqlite import bulk, group_commit
from perdure.store.sqlite.connection_thread import ConnectionThread
from perdure.store.sqlite.inline_commit import InlineCommit
from perdure.store.sqlite.pace import Yielding
from perdure.store.sqlite.presence import Presence
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session, breaks_connection
from perdure.store.sqlite.wal import Wal


class Writer(ConnectionThread):
    """Carries out jobs in as few transactions as possible."""

    def __init__(
        self, path: str, connect: Callable[[], Session], presence: Presence, start_over: Callable[[], None]
    ) -> None:
        super().__init__("perdure-sqlite-writer", path, connect, presence, SQLITE_GROUP_JOBS_MAX)
        self._start_over = start_over
        self._counting = threading.Lock()
        self._outstanding = 0
        self._yielding = Yielding()
        self._inline = InlineCommit()
        self.wal = Wal(path, self)
        #: The files are no longer those that were opened: what is in ours is left alone.
        self._is_lost = False
        #: The seconds that the connection waits for a lock.
        self._patience = SQLITE_BUSY_SECONDS

    # -- asking (on a loop's thread) ---------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], arguments: Sequence[Any]) -> asyncio.Future[Any]:
        with self._counting:
            self._outstanding += 1
            is_idle = self._outstanding == 1
        request = group_commit.request_of(function, arguments)
        is_large = request is not None and bulk.is_worthwhile([request])
        if not is_large or not self._yielding.is_worthwhile(is_idle=is_idle):
            return super().submit(function, arguments)
        self._yielding.prepare()
        future = super().submit(function, arguments)
        self._yielding.until_begun(is_idle=is_idle)
        return future

    def commit_inline(self, function: Callable[..., Any], arguments: Sequence[Any]) -> asyncio.Future[Any]:
        """Like `submit`, but on the spot if that delays nobody. A loop's own jobs keep their order."""
        loop = asyncio.get_running_loop()
        if self._outstanding or not self._inline.is_welcome(loop):
            return self.submit(function, arguments)
        job = Job(function, arguments, loop.create_future(), loop)
        outcome = self._try_inline(job)
        if outcome is None:
            return self.submit(function, arguments)
        _, result, error = outcome
        if self._inline.may_answer_at_once():
            job.resolve(result, error)
        else:
            loop.call_soon(job.resolve, result, error)
        return job.future

    def _try_inline(self, job: Job) -> Outcome | None:
        """None: somebody else is using the connection or the file, so the job must queue."""
        if self.wal.until_look <= 0 or not self.using.acquire(blocking=False):
            return None
        try:
            if self.session is None:
                return None
            self._inline.begin()
            try:
                return self._outcomes([job], 0)[0]
            except apsw.BusyError as error:
                self.recover(error)
                return None
            finally:
                self._inline.end()
        finally:
            self.using.release()

    # -- carrying out ------------------------------------------------------------------------------------

    @property
    def transactions(self) -> int:
        """Transactions committed so far."""
        return self.wal.transactions

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        try:
            return [outcome for part in group_commit.parts_of(jobs) for outcome in self._carry_out_part(part)]
        finally:
            with self._counting:
                self._outstanding -= len(jobs)

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
                return [], self.recover(error)

    def _outcomes(self, jobs: list[Job], patience: float) -> list[Outcome]:
        """One outcome for each job. Raises nothing but `BusyError`, which leaves the choice to the caller."""
        try:
            self._check_files()
            session = self.ready()
            self.wait_for_locks(session, patience)
            return group_commit.carry_out(session, jobs, self._yielding, self._count_transaction)
        except apsw.BusyError:
            raise
        except group_commit.HalfDone as half:
            if len(jobs) == 1:
                return [(jobs[0], None, half.__cause__)]
            # Rare (a bug, or a value that SQLite refuses): find the job that did it by giving each its own.
            return [outcome for job in jobs for outcome in self._outcomes([job], patience)]
        except Exception as error:
            failure = self.recover(error)
            return [(job, None, failure) for job in jobs]

    def _count_transaction(self, changes: int) -> None:
        self.wal.count_transaction(changes)

    def wait_for_locks(self, session: Session, seconds: float) -> None:
        """How long a statement waits for other processes. Told to SQLite only when it changes."""
        if self._patience != seconds:
            self._patience = seconds
            session.connection.set_busy_timeout(int(seconds * 1000))

    # -- the connection ----------------------------------------------------------------------------------

    def adopt(self, session: Session) -> None:
        self.wal.adopted(session)
        bulk.prepare(session)
        self._patience = SQLITE_BUSY_SECONDS
        super().adopt(session)

    def after_round(self) -> None:
        if self.wal.until_look > 0:
            return
        with self.using:
            self.has_idle_task = self.wal.look()

    def do_idle_task(self) -> None:
        """Copy the WAL into the database while there is nothing else to do."""
        with self.using:
            self.wal.checkpoint(SQL["checkpoint"])

    def finish(self) -> None:
        """Leave one tidy file, if that needs no waiting."""
        if self.session is not None and not self._is_lost:
            self.wait_for_locks(self.session, 0)
            self.wal.checkpoint(SQL["truncate_wal"])

    def _check_files(self) -> None:
        try:
            self._presence.check()
        except StoreLost:
            if self._presence.is_only_without("-wal"):
                # What was acknowledged is in a file that goes with this process. Every other process uses the same
                # -shm, so that copying it into the database is what it always is.
                self.wal.checkpoint(SQL["checkpoint"])
            elif self.session is not None:
                # Another process may have begun with files of its own: nothing of ours may get between.
                self.session.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                self._is_lost = True
            raise

    def recover(self, error: Exception) -> StoreError:
        """Get back to a state from which the next transaction can start; the error in our words."""
        failure = error if isinstance(error, StoreError) else self.explained(error)
        session = self.session
        if session is not None:
            try:
                if session.connection.in_transaction:
                    session.execute(SQL["rollback"])
            except apsw.Error:
                self.drop()
        if breaks_connection(error):
            self.drop()
        return failure
