"""A job thread with a connection to a SQLite file: what the writer and the reader have in common."""

from __future__ import annotations

from collections.abc import Callable

from perdure.errors import StoreError
from perdure.store.sql.job_thread import JobThread
from perdure.store.sqlite.presence import Presence
from perdure.store.sqlite.session import Session, fault


class ConnectionThread(JobThread):
    """Opens its connection again after it broke. Subclasses say how a round of jobs is carried out."""

    def __init__(
        self, name: str, path: str, connect: Callable[[], Session], presence: Presence, round_jobs_max: int
    ) -> None:
        super().__init__(name, round_jobs_max)
        self._path = path
        self._connect = connect
        self._presence = presence
        self.session: Session | None = None

    def ready(self) -> Session:
        """The connection, opened again if the last one broke."""
        if self.session is None:
            self.adopt(self._connect())
        if self.session is None:
            raise AssertionError("a thread that adopts a session has it")
        return self.session

    def adopt(self, session: Session) -> None:
        """Use this connection from now on."""
        self._presence.opened()
        self.session = session

    def explained(self, error: BaseException) -> StoreError:
        """What SQLite raised, in our words, or that a file is gone. Before the connection is dropped: after the last
        one nobody knows which files were right."""
        return self._presence.found_lost() or fault(self._path, error)

    def drop(self) -> None:
        """Forget a connection that cannot be trusted."""
        session, self.session = self.session, None
        if session is not None:
            with self._presence.closing():
                session.close()
