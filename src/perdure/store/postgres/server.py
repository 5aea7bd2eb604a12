"""What the connections of one store have in common: what was found out about the server, and who ends calls that hang.

**History.** A standby that takes over after its primary may lack what the primary had acknowledged. The database is on
another timeline then, and may be behind what a worker has in memory. Each connection compares; if the history is
another one, `changed` is called before the connection is used, and `generation` grows: work that was asked for before
is refused (FAULTS B15).

**A pooler in between.** In transaction mode each transaction may run on another session of the server: settings,
prepared statements and locks of sessions do not stay (FAULTS B17). It is recognised by the number of the session, which
a pooler does not hand on.

**Patience.** A server that is stopped keeps its connections open and never answers; TCP does not notice. A thread looks
at all connections and cuts those whose call takes too long: the call fails, and its outcome is found by repeating it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from perdure.store.postgres.url import Location

#: Between two looks at the connections.
_LOOK_SECONDS = 0.5


class History(NamedTuple):
    """Which past a server has: the cluster, and the timeline, which every promotion of a standby makes a new one."""

    system: int
    timeline: int


class Facts(NamedTuple):
    """What a connection finds out when it is made."""

    is_standby: bool
    session: int
    history: History


class Busy(Protocol):
    """A connection as its watcher sees it."""

    #: Since when its call is under way, by the monotonic clock; None: none is.
    busy_since: float | None
    #: What one call may take. 0: as long as it takes.
    call_seconds: float

    def cut(self) -> None: ...


class Server:
    """See the module docstring. Shared by threads."""

    def __init__(self, location: Location, changed: Callable[[], None] = lambda: None) -> None:
        self.location = location
        self._changed = changed
        self._lock = threading.Lock()
        self.history: History | None = None
        #: How many connections it takes, for an error that says so. 0: not known yet.
        self.connections_max = 0
        #: How many histories were seen. What was asked for under an earlier one is not carried out any more.
        self.generation = 0
        self._is_pooled = {"on": False, "off": True}.get(location.prepare)
        self._connections: set[Busy] = set()
        self._watcher: threading.Thread | None = None
        self._closed = threading.Event()

    # -- what was found out ------------------------------------------------------------------------------

    def is_pooled(self, session: int, told: int) -> bool:
        """Whether a pooler may give each transaction another session. `session` is the number that the server has for
        this one, `told` what the other end of the connection said when it was made."""
        if self._is_pooled is None:
            return session != told
        return self._is_pooled

    def look_at(self, history: History) -> None:
        """The server has this past. Calls `changed` if it had another one before."""
        with self._lock:
            known, self.history = self.history, history
            if known is None or known == history:
                return
            self.generation += 1
        self._changed()

    # -- calls that hang ---------------------------------------------------------------------------------

    def watch(self, connection: Busy) -> None:
        """Cut this connection when one of its calls takes too long."""
        with self._lock:
            self._connections.add(connection)
            if self._watcher is None and not self._closed.is_set():
                self._watcher = threading.Thread(target=self._look, name="perdure-postgres-watch", daemon=True)
                self._watcher.start()

    def forget(self, connection: Busy) -> None:
        with self._lock:
            self._connections.discard(connection)

    def close(self) -> None:
        """Look no more. May be called twice."""
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            with self._lock:
                connections = list(self._connections)
            now = time.monotonic()
            for connection in connections:
                since = connection.busy_since
                if since is not None and 0 < connection.call_seconds < now - since:
                    connection.cut()


class Socket:
    """The socket of a connection of libpq, for cutting it from another thread.

    A descriptor of our own: libpq closes its own when the connection breaks, and the number may be another file's when
    we use it.
    """

    def __init__(self, descriptor: int) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = socket.socket(fileno=os.dup(descriptor))

    def cut(self) -> None:
        """A thread that waits for the other end hears that the connection is over."""
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            own, self._socket = self._socket, None
        if own is not None:
            own.close()
