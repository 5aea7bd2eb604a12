"""The connection that reads for clients and admin: it never waits for the writer, nor the writer for it."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from perdure.limits import SQLITE_GROUP_JOBS_MAX
from perdure.store.sqlite.lane import Job, Lane, Outcome
from perdure.store.sqlite.session import Session, fault


class Reader(Lane):
    """Carries out jobs that only read, one after the other, each in its own snapshot if it asks for one."""

    def __init__(self, path: str, connect: Callable[[], Session]) -> None:
        super().__init__("perdure-sqlite-reader", connect, SQLITE_GROUP_JOBS_MAX)
        self._path = path

    def carry_out(self, jobs: list[Job]) -> list[Outcome]:
        return [self._read(job) for job in jobs]

    def _read(self, job: Job) -> Outcome:
        try:
            return job, job.function(self.ready(), *job.arguments), None
        except (apsw.Error, OSError) as error:
            # A reader has nothing to lose: a fresh connection is the simplest way out of any fault.
            self.drop()
            return job, None, fault(self._path, error)
        except Exception as error:
            return job, None, error
