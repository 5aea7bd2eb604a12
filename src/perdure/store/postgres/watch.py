"""Hearing that another process changed something: LISTEN, or a look now and then where that does not work.

A pooler in transaction mode accepts LISTEN and does not deliver, so the listener has a notification sent to itself when
it opens: if that does not arrive, it polls. Notifications are hints: after each new connection everybody looks anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import Callable

from psycopg import pq

from perdure.errors import StoreError
from perdure.limits import POSTGRES_POLL_SECONDS
from perdure.store.postgres.connection import Connection, log, one_line, quoted
from perdure.store.postgres.faults import Fault
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.server import Server
from perdure.store.postgres.url import Location

#: How long the notification to oneself may take.
_SELF_SECONDS = 1.0
#: How long the listener waits before it connects again.
_RETRY_SECONDS = 0.5


def channel_of(location: Location) -> str:
    """On which the workers of a schema are woken. At most 63 bytes, as all names."""
    name = f"perdure_{location.schema}"
    return name if len(name.encode()) <= 63 else name.encode()[:63].decode("utf-8", "ignore")


class Listener:
    """One connection for all who watch a store. A thread waits on it; callbacks run on the event loop."""

    def __init__(self, server: Server, own_pids: Callable[[], frozenset[int]]) -> None:
        self._server = server
        self._location = server.location
        self._own_pids = own_pids
        self._loop = asyncio.get_running_loop()
        self._callbacks: set[Callable[[], None]] = set()
        self._stopping = threading.Event()
        #: Whether it was said that the connection is lost: an outage is said once, not at every try.
        self._has_said = False
        self._wake_read, self._wake_write = _pipe()
        self._thread = threading.Thread(target=self._listen, name="perdure-postgres-listener", daemon=True)
        #: None: not known yet.
        self.is_pushed: bool | None = None
        self._thread.start()

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._callbacks.add(callback)
        return lambda: self._callbacks.discard(callback)

    def stop(self) -> None:
        """May be called twice."""
        self._stopping.set()
        with contextlib.suppress(OSError):  # the thread has ended already
            self._wake_write.send(b"x")

    def tell_here(self) -> None:
        """Tell everybody who watches, at once. On the event loop."""
        for callback in list(self._callbacks):
            callback()

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.tell_here)
        except RuntimeError:
            self._stopping.set()  # the loop is closed: nobody wants to know any more

    # -- on the thread -----------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._serve()
                except (Fault, StoreError) as error:
                    if not self._has_said:
                        log.info("the listener of %s lost its connection: %s", self._location.shown, one_line(error))
                    self._has_said = True
                except Exception as error:
                    log.critical("the listener of the store failed in an unforeseen way", exc_info=error)
                self._tell()
                self._stopping.wait(_RETRY_SECONDS)
        finally:
            self._wake_read.close()
            self._wake_write.close()

    def _serve(self) -> None:
        connection = Connection(self._location, name="listener", server=self._server)
        try:
            if self.is_pushed is None:
                # Behind a pooler it may hear itself, if both transactions got the same session, and nobody else later.
                wanted = self._location.push != "off" and not connection.is_shared
                self.is_pushed = wanted and self._hears_itself(connection)
                if not self.is_pushed:
                    log.warning(
                        "%s does not deliver notifications (is there a pooler in transaction mode?); "
                        "it is asked every %g s instead.", self._location.shown, POSTGRES_POLL_SECONDS,
                    )  # fmt: skip
            self._has_said = False
            if not self.is_pushed:
                while not self._stopping.wait(POSTGRES_POLL_SECONDS):
                    self._tell()
                return
            # First listen, then look at everything: what is between the two is found by the look.
            connection.script(f"LISTEN {quoted(channel_of(self._location))}")
            self._tell()
            while not self._stopping.is_set():
                if self._wait(connection, None) and self._are_of_others(connection):
                    self._tell()
        finally:
            connection.close()

    def _hears_itself(self, connection: Connection) -> bool:
        channel = channel_of(self._location)
        connection.script(f"LISTEN {quoted(channel)}")
        # From another connection, while this one does nothing: a pooler may carry out LISTEN and NOTIFY of one client
        # on the same session of the server, which answers at once, and then never again
        # (tests/stores/test_postgres_pooler.py).
        other = Connection(self._location, name="listener", server=self._server)
        try:
            other.rows(SQL["notify"], (channel,))
        finally:
            other.close()
        return self._wait(connection, _SELF_SECONDS) and connection.pq.notifies() is not None

    def _wait(self, connection: Connection, seconds: float | None) -> bool:
        """Wait for something to arrive. Raises `Fault` when the connection is gone."""

        ready, _, _ = select.select([connection.pq.socket, self._wake_read.fileno()], [], [], seconds)
        if connection.pq.socket not in ready:
            return False
        try:
            connection.pq.consume_input()
        except Exception as error:
            raise Fault("", one_line(error)) from None
        if connection.pq.status != pq.ConnStatus.OK:
            raise Fault("", "the connection broke")
        return True

    def _are_of_others(self, connection: Connection) -> bool:
        own, others = self._own_pids(), False
        while (notification := connection.pq.notifies()) is not None:
            others = others or notification.be_pid not in own
        return others


def _pipe() -> tuple[socket.socket, socket.socket]:

    return socket.socketpair()
