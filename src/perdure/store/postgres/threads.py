"""The threads that have a connection each: one for changes, one for reads.

A transaction of several statements never runs on the event loop: user code may block the loop, and then the locks of a
half-done transaction would stop other workers (docs/decisions/0140-threads-for-transactions.md). Single statements that
commit plain turns do run there: see `lane`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

from perdure.errors import StoreError, StoreUnavailable
from perdure.limits import POSTGRES_GROUP_JOBS_MAX, POSTGRES_TRIES_MAX
from perdure.store.postgres.faults import REPEATABLE, Fault
from perdure.store.postgres.locks import Relock, plan_of
from perdure.store.postgres.server import Server
from perdure.store.postgres.session import Session
from perdure.store.sql import events, inbox, runs, turns
from perdure.store.sql.job_thread import Job, JobThread, Outcome

#: The first pause before a transaction is begun again; the next ones double, up to fifty times of it.
_PAUSE_SECONDS = 0.002
_PAUSE_FACTOR_MAX = 50
#: What answers that something is there, also if an earlier call has put it there.
_ACKNOWLEDGING = frozenset({
    turns.create, turns.create_all, turns.commit_turns, inbox.append, inbox.request_cancel, events.publish,
    runs.restore,
})  # fmt: skip


class HalfDone(Exception):
    """A job raised in a transaction that it shares with others: it was rolled back, and is split."""


class SessionThread(JobThread):
    """Opens its session again after it broke."""

    def __init__(self, name: str, server: Server, round_jobs_max: int) -> None:
        super().__init__(f"perdure-postgres-{name}", round_jobs_max)
        self._name = name
        self._server = server
        self._shown = server.location.shown
        self.session: Session | None = None
        #: Which past of the server the event loop has heard of: jobs asked for under an earlier one are refused.
        self.generation = 0

    def stamp(self) -> int:
        return self.generation

    def ready(self) -> Session:
        session = self.session
        if session is None or session.connection.is_broken or session.connection.generation != self._server.generation:
            self.drop()
            self.session = session = Session(self._server.location, name=self._name, server=self._server)
        return session

    def ready_for(self, jobs: Iterable[Job]) -> Session:
        """Raises `StoreUnavailable` for what was asked for before the database had another past."""
        session = self.ready()
        if any(job.stamp != self._server.generation for job in jobs):
            raise self._server.of_another_past()
        return session

    def drop(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()

    def explained(self, error: BaseException) -> BaseException:
        """For the caller. Drops a connection that is of no use any more."""
        if not isinstance(error, Fault):
            return error
        if error.needs_new_connection:
            self.drop()
        return (
            ValueError(f"a value cannot be stored: {error}") if error.is_of_statement else error.explained(self._shown)
        )


class Writer(SessionThread):
    """Carries out jobs that change something, as many as have queued in one transaction."""

    def __init__(self, server: Server) -> None:
        super().__init__("writer", server, POSTGRES_GROUP_JOBS_MAX)
        self._random = random.Random()  # of pauses; never seen by a workflow
        #: Whether a job of this transaction has changed something.
        self._wrote = False

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        with self.using:
            return self._outcomes(jobs)

    def _outcomes(self, jobs: list[Job]) -> list[Outcome]:
        try:
            return self._in_one_transaction(jobs)
        except HalfDone as half:
            if len(jobs) == 1:
                return [(jobs[0], None, half.__cause__)]
            # Rare (a refusal after a change, a value that PostgreSQL refuses): find the job by giving each its own.
            return [outcome for job in jobs for outcome in self._outcomes([job])]
        except BaseException as error:
            self._roll_back()
            failure = self.explained(error)
            alone = isinstance(error, Fault) and (error.is_of_statement or error.is_of_departure)
            if alone and len(jobs) > 1:
                return [outcome for job in jobs for outcome in self._outcomes([job])]
            return [(job, None, failure) for job in jobs]

    def _in_one_transaction(self, jobs: list[Job]) -> list[Outcome]:
        plan = plan_of((job.function, job.arguments) for job in jobs)
        for tries in range(POSTGRES_TRIES_MAX):
            committing = False
            try:
                session = self.ready_for(jobs)
                session.begin(plan)
                outcomes = self._each(session, jobs)
                if not self._wrote:
                    self._confirm(session, jobs)
                committing = True
                session.commit()
            except Relock:
                self._roll_back()
            except Fault as fault:
                # A connection that broke before the commit was sent has done nothing. After that nobody knows: the
                # caller repeats the call, and the store recognises it.
                repeatable = fault.state in REPEATABLE or (fault.breaks_connection and not committing)
                if not repeatable or tries == POSTGRES_TRIES_MAX - 1:
                    raise
                self._roll_back()
                if fault.needs_new_connection:
                    self.drop()
            else:
                if session.connection.not_replicated:
                    raise StoreUnavailable(
                        f"{self._shown} committed, but its standby did not confirm it: the change may be lost with "
                        "the primary. Repeating the call finds out."
                    )
                return outcomes
            if tries:
                factor = min(2 ** (tries - 1), _PAUSE_FACTOR_MAX)
                time.sleep(_PAUSE_SECONDS * factor * self._random.uniform(0.5, 1.5))
        raise StoreUnavailable(
            f"{self._shown}: what this call changes was locked by others each of {POSTGRES_TRIES_MAX} times. "
            "The call may be repeated."
        )

    def _each(self, session: Session, jobs: list[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        self._wrote = False
        for job in jobs:
            session.changed = False
            try:
                outcomes.append((job, job.function(session, *job.arguments), None))
                self._wrote = self._wrote or session.changed
            except (Relock, Fault):
                raise
            except Exception as error:
                if session.changed:
                    self._roll_back()
                    raise HalfDone from error
                outcomes.append((job, None, error))
        return outcomes

    def _confirm(self, session: Session, jobs: list[Job]) -> None:
        """What was there already may be there on the primary only, if the call that wrote it was in doubt: an answer
        that says that it is there promises as much as the first one would have (FAULTS B2)."""
        if any(job.function in _ACKNOWLEDGING for job in jobs):
            session.rows(session.sql["confirm_what_is_there"])

    def _roll_back(self) -> None:
        if self.session is None:
            return
        try:
            self.session.rollback()
        except Fault:
            self.drop()
        if self.session is not None and self.session.connection.is_broken:
            self.drop()


class Reader(SessionThread):
    """Carries out jobs that only read, one after the other, each in its own snapshot if it asks for one."""

    def __init__(self, server: Server) -> None:
        super().__init__("reader", server, POSTGRES_GROUP_JOBS_MAX)

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        with self.using:
            return [self._read(job) for job in jobs]

    def _read(self, job: Job, tries_left: int = 3) -> Outcome:
        try:
            return job, job.function(self.ready_for([job]), *job.arguments), None
        except Fault as fault:
            self.drop()
            # Nothing can be lost by asking again, on a new connection. Twice: one that lay idle broke unnoticed, and
            # the next one may be ended while it is made, by a server that ends all sessions.
            return self._read(job, tries_left - 1) if tries_left else (job, None, self.explained(fault))
        except StoreError as error:
            return job, None, error
        except Exception as error:
            self.drop()
            return job, None, error
