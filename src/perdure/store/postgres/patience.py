"""Who ends calls that hang, and says what those wait for that must not be ended.

A server that is stopped keeps its connections open and never answers; TCP does not notice. A thread looks at all
connections and cuts those whose call takes too long: the call fails, and its outcome is found by repeating it.

One kind of call is not cut: a commit that waits for a synchronous standby to confirm it. The server answers, so nothing
is gained by another connection, and the session of the old one would go on waiting, with its locks and its place among
the connections. It waits for as long as the standby is away, and the log says so, once a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

log = logging.getLogger("perdure.store.postgres")

#: Between two looks at the connections.
_LOOK_SECONDS = 0.5
#: After this part of its time a call is asked about.
_ASKED_AT_PART = 0.5
_WARN_AGAIN_SECONDS = 60.0


class Busy(Protocol):
    """A connection as its watcher sees it."""

    #: Since when its call is under way, by the monotonic clock; None: none is.
    busy_since: float | None
    #: What one call may take. 0: as long as it takes.
    call_seconds: float
    #: Until when it was found to wait for a standby.
    excused_at: float

    def cut(self, why: str) -> None: ...

    def awaited_standbys(self) -> str | None:
        """Whether its call waits for a synchronous standby: the names that would do. Asks the server, and may raise."""


class Patience:
    """With the connections of one store, which is called `shown` in the log. Shared by threads."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self._connections: set[Busy] = set()
        #: Those that are being asked about.
        self._asked: set[Busy] = set()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._warned_at: float | None = None

    def watch(self, connection: Busy) -> None:
        """Cut this connection when one of its calls takes too long."""
        with self._lock:
            self._connections.add(connection)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._look, name="perdure-postgres-watch", daemon=True)
                self._thread.start()

    def forget(self, connection: Busy) -> None:
        with self._lock:
            self._connections.discard(connection)

    def watched(self) -> list[Busy]:
        with self._lock:
            return list(self._connections)

    def close(self) -> None:
        """Look no more. May be called twice."""
        self._closed.set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    # -- on its own thread -------------------------------------------------------------------------------

    def _look(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            now, excused = time.monotonic(), False
            for connection in self.watched():
                since, seconds = connection.busy_since, connection.call_seconds
                if since is None or seconds <= 0:
                    continue
                excused = excused or connection.excused_at > since
                took = now - max(since, connection.excused_at)
                if took > seconds:
                    connection.cut(f"did not answer for {seconds:g} s")
                elif took > seconds * _ASKED_AT_PART and connection not in self._asked:
                    self._begin_to_ask(connection, since)
            if self._warned_at is not None and not excused:
                self._warned_at = None
                log.info("commits of %s are confirmed by a standby again, or are waited for no longer", self._shown)

    def _begin_to_ask(self, connection: Busy, since: float) -> None:
        """On yet another thread: it may not be answered either, and the others must be looked at meanwhile."""
        self._asked.add(connection)
        name = "perdure-postgres-question"
        threading.Thread(target=self._ask, args=(connection, since), name=name, daemon=True).start()

    def _ask(self, connection: Busy, since: float) -> None:
        try:
            standbys = connection.awaited_standbys()
            if standbys is not None and connection.busy_since == since:
                connection.excused_at = time.monotonic()
                self._warn(standbys, connection.excused_at - since)
        except Exception as error:
            log.debug("what a call of %s waits for could not be found out: %s", self._shown, error)
        finally:
            self._asked.discard(connection)

    def _warn(self, standbys: str, seconds: float) -> None:
        now = time.monotonic()
        with self._lock:
            if self._warned_at is not None and now - self._warned_at < _WARN_AGAIN_SECONDS:
                return
            self._warned_at = now
        log.warning(
            "a commit of %s has waited for %.0f s for a synchronous standby to confirm it (synchronous_standby_names "
            "is %r). Nothing is acknowledged before one does. Bring the standby back; or take it out of that setting, "
            "and what it has not received is lost if the primary fails.", self._shown, seconds, standbys,
        )  # fmt: skip
