"""The lease of a worker: renewed from a thread with a connection of its own, so that a blocked event loop keeps it.

A lease is time by the database's clock. The worker judges itself by its own monotonic clock, counted from the moment
before the last renewal that succeeded: so it stops before others may take its runs, whatever its wall clock says and
however long an answer took. The connection also holds a lock that the server frees when the process is gone, so that
others need not wait for the whole lease.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time

from perdure.errors import StoreError
from perdure.store.model import LeaseTerms
from perdure.store.postgres.connection import Connection, log
from perdure.store.postgres.faults import Fault
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.server import History, Server


class Lease(threading.Thread):
    """Renews until it is stopped or lost."""

    def __init__(self, server: Server, worker_id: str, number: int, terms: LeaseTerms, asked: float, now: int) -> None:
        """The worker was registered by a call that was `asked` for at this monotonic time; the database said `now`."""
        super().__init__(name=f"perdure-lease-{worker_id[:8]}", daemon=True)
        self._server = server
        self._worker_id = worker_id
        self._number = number
        self._lease = terms.seconds
        self._heartbeat = terms.heartbeat
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        #: Whether the server sees by a lock of this connection that the process is gone.
        self._holds_lock = False
        #: Until when nobody else may have its runs, by the monotonic clock.
        self._trusted_until = asked + terms.seconds
        self._lost = False
        #: The database's time in microseconds, and the monotonic time when it was that.
        #: At first never ahead of it: most of that call may have been connecting.
        self._time = (now, time.monotonic())
        self._random = random.Random()

    @property
    def is_alive_for_others(self) -> bool:
        """Whether its runs are surely its own."""
        return time.monotonic() < self.trusted_until

    @property
    def trusted_until(self) -> float:
        """Until when nobody else may have its runs, by the monotonic clock."""
        return self._trusted_until if not self._lost else 0.0

    def lose(self) -> None:
        """Whatever was promised counts no longer: the database has another past."""
        self._lost = True

    def now(self) -> int:
        """The database's time, as of the last renewal and the time since."""
        at, monotonic = self._time
        return at + round((time.monotonic() - monotonic) * 1_000_000)

    def stop(self) -> None:
        """Let go of the lock at once. May be called twice."""
        self._stopping.set()

    def run(self) -> None:
        failures = 0
        # Registering was the first heartbeat. Soon enough that nobody misses one while the lock is free.
        self._stopping.wait(self._heartbeat * self._random.uniform(0.1, 0.3))
        while not self._stopping.is_set() and not self._lost:
            try:
                self._renew()
                failures = 0
                wait = self._heartbeat * self._random.uniform(0.8, 1.2)
            except (Fault, StoreError) as error:
                failures += 1
                if failures == 1:
                    log.warning("the lease of worker %s could not be renewed: %s", self._worker_id, error)
                self._drop()
                # At once the first time: the connection may have been gone for as long as nobody looked.
                wait = 0.0 if failures == 1 else min(self._heartbeat, 0.1 * 2 ** min(failures, 5))
            except Exception as error:
                log.critical("renewing the lease of worker %s failed", self._worker_id, exc_info=error)
                self._drop()
                wait = self._heartbeat
            self._stopping.wait(wait)
        self._drop()

    def _renew(self) -> None:
        connection = self._connection or self._connect()
        asked = time.monotonic()
        found = connection.rows(SQL["renew"], (self._worker_id, repr(self._lease), int(self._holds_lock)))
        answered = time.monotonic()
        if not found:
            self._lost = True
            return
        now, system, timeline = found[0]
        self._server.look_at(History(system, timeline), connection)
        self._time = (now, (asked + answered) / 2)
        self._trusted_until = asked + self._lease

    def _connect(self) -> Connection:
        # A heartbeat that is lost in a power cut is lost with its worker; and it waits for no standby.
        location = dataclasses.replace(self._server.location, durability="relaxed")
        self._connection = connection = Connection(location, name="lease", server=self._server)
        # What is not answered within a heartbeat is asked again on another connection.
        connection.call_seconds = min(connection.call_seconds, self._heartbeat)
        if not connection.is_pooled:
            self._holds_lock = bool(connection.rows(SQL["hold_life"], (self._number,))[0][0])
        return connection

    def _drop(self) -> None:
        self._holds_lock = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
