"""What the connections of one store have in common: what was found out about the server, and who ends calls that hang
(`patience`).

**History.** A standby that takes over after its primary may lack what the primary had acknowledged. The database is on
another timeline then, and may be behind what a worker has in memory. Each connection compares; if the history is
another one, `changed` is called before the connection is used, and `generation` grows: work that was asked for before
is refused, and connections that were made before are cut (FAULTS B15). A primary that comes back after its standby has
taken over has an older timeline, and is refused: two servers would take changes (decision 0167).

With `durability=relaxed` the server itself may forget what it acknowledged, and a restart leaves the timeline as it is.
There every connection that breaks counts as another history.

**A pooler in between.** In transaction mode each transaction may run on another session of the server: settings,
prepared statements and locks of sessions do not stay (FAULTS B17). It is recognised by the number of the session, which
a pooler does not hand on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from perdure.errors import StoreUnavailable
from perdure.store.postgres.hosts import Hosts
from perdure.store.postgres.patience import Busy, Patience
from perdure.store.postgres.url import Location

_OTHER_SERVER: Final = "is another server than before, or went back in time (a standby has taken over)"
_MAY_HAVE_FORGOTTEN: Final = "ended a connection, and may have forgotten what it acknowledged (durability=relaxed)"


class History(NamedTuple):
    """Which past a server has: the cluster, and the timeline, which every promotion of a standby makes a new one."""

    system: int
    timeline: int


class Facts(NamedTuple):
    """What a connection finds out when it is made."""

    is_standby: bool
    session: int
    history: History


class Server:
    """See the module docstring. Shared by threads. `changed` gets what is to be said of the server."""

    def __init__(self, location: Location, changed: Callable[[str], None] = lambda _: None) -> None:
        self.location = location
        self._changed = changed
        self._lock = threading.Lock()
        self.history: History | None = None
        #: How many connections it takes, for an error that says so. 0: not known yet.
        self.connections_max = 0
        #: How many histories were seen. What was asked for under an earlier one is not carried out any more.
        self.generation = 0
        self._is_pooled = {"on": False, "off": True}.get(location.prepare)
        self.patience = Patience(location.shown)
        self.hosts = Hosts(location.parameters)

    # -- what was found out ------------------------------------------------------------------------------

    def is_pooled(self, session: int, told: int) -> bool:
        """Whether a pooler may give each transaction another session. `session` is the number that the server has for
        this one, `told` what the other end of the connection said when it was made."""
        if self._is_pooled is None:
            return session != told
        return self._is_pooled

    def look_at(self, history: History, by: Busy | None = None) -> int:
        """The server has this past, as one connection found out. Returns the generation that this is. Raises
        `StoreUnavailable` for a server whose standby has already been seen to take over."""
        with self._lock:
            known = self.history
            if known is not None and known.system == history.system and history.timeline < known.timeline:
                raise StoreUnavailable(
                    f"{self.location.shown} is a server of the past: it is on timeline {history.timeline}, and one "
                    f"that took over from it, on timeline {known.timeline}, was seen before. What is written here is "
                    "lost. Shut the former primary down, or make it a standby. If it is the one to use after all, "
                    "restart the workers."
                )
            self.history = history
            if known is None or known == history:
                return self.generation
            self.generation += 1
            generation = self.generation
        self._cut_all_but(by)
        self._changed(_OTHER_SERVER)
        return generation

    def of_another_past(self) -> StoreUnavailable:
        """For calls that were asked for under an earlier history."""
        return StoreUnavailable(
            f"{self.location.shown} has another past than when this was asked for (a standby has taken over, or the "
            "server may have forgotten). What this process had in memory is dropped. The call may be repeated."
        )

    def lost(self, connection: Busy, generation: int) -> None:
        """A connection of this generation broke. With `durability=relaxed` nobody knows what else did."""
        if self.location.durability == "full" or self.patience.is_closed:
            return
        with self._lock:
            if generation != self.generation:
                return  # one that another one's end has ended
            self.generation += 1
        self._cut_all_but(connection)
        self._changed(_MAY_HAVE_FORGOTTEN)

    def _cut_all_but(self, one: Busy | None) -> None:
        """Connections to a server that somebody has taken over from answer with what was, and take what is lost."""
        for connection in self.patience.watched():
            if connection is not one:
                connection.cut("has another past than before")


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
