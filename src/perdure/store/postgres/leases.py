"""The lease of a worker: renewed from a thread with a connection of its own, so that a blocked event loop keeps it.

A lease is time by the database's clock. The worker judges itself by its own monotonic clock, counted from the moment
before the last renewal that succeeded: so it stops before others may take its runs, whatever its wall clock says and
however long an answer took. The connection also holds a lock that the server frees when the process is gone, so that
others need not wait for the whole lease.
"""

from __future__ import annotations

import random
import threading
import time

from perdure.errors import StoreError
from perdure.store.postgres.connection import Connection, log
from perdure.store.postgres.faults import Fault
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.url import Location


class Lease(threading.Thread):
    """Renews until it is stopped or lost."""

    def __init__(
        self, location: Location, worker_id: str, number: int, lease: float, heartbeat: float, asked: float, now: int
    ) -> None:
        """The worker was registered by a call that was `asked` for at this monotonic time; the database said `now`."""
        super().__init__(name=f"perdure-lease-{worker_id[:8]}", daemon=True)
        self._location = location
        self._worker_id = worker_id
        self._number = number
        self._lease = lease
        self._heartbeat = heartbeat
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        #: Until when nobody else may have its runs, by the monotonic clock.
        self._trusted_until = asked + lease
        self._lost = False
        #: The database's time in microseconds, and the monotonic time when it was that.
        #: At first never ahead of it: most of that call may have been connecting.
        self._time = (now, time.monotonic())
        self._random = random.Random()

    @property
    def is_alive_for_others(self) -> bool:
        """Whether its runs are surely its own."""
        return not self._lost and time.monotonic() < self._trusted_until

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
        if self._connection is None:
            self._connection = Connection(self._location, name="lease")
            # A heartbeat that is lost in a power cut is lost with its worker.
            self._connection.script("SET synchronous_commit TO off; SET statement_timeout TO '2s'")
            if self._location.prepare != "off":
                self._connection.rows(SQL["hold_life"], (self._number,))
        asked = time.monotonic()
        found = self._connection.rows(SQL["renew"], (self._worker_id, repr(self._lease)))
        answered = time.monotonic()
        if not found:
            self._lost = True
            return
        self._time = (found[0][0], (asked + answered) / 2)
        self._trusted_until = asked + self._lease

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
