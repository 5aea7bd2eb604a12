"""The connection that reads for clients and admin: it never waits for the writer, nor the writer for it."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from perdure.limits import SQLITE_GROUP_JOBS_MAX
from perdure.store.sql.job_thread import Job, Outcome
from perdure.store.sqlite.connection_thread import ConnectionThread
from perdure.store.sqlite.presence import Presence
from perdure.store.sqlite.session import Session


class Reader(ConnectionThread):
    """Carries out jobs that only read, one after the other, each in its own snapshot if it asks for one."""

    def __init__(self, path: str, connect: Callable[[], Session], presence: Presence) -> None:
        super().__init__("perdure-sqlite-reader", path, connect, presence, SQLITE_GROUP_JOBS_MAX)

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for job in jobs:
            with self.using:  # for each job: a writer that starts over does not wait for all of them
                outcomes.append(self._read(job))
        return outcomes

    def _read(self, job: Job) -> Outcome:
        try:
            # Somebody who only waits for what others write would otherwise read the same for ever.
            self._presence.check()
            return job, job.function(self.ready(), *job.arguments), None
        except (apsw.Error, OSError) as error:
            failure = self.explained(error)
            # A reader has nothing to lose: a fresh connection is the simplest way out of any fault.
            self.drop()
            return job, None, failure
        except Exception as error:
            return job, None, error
