"""How a PostgreSQL store is: what `perdure doctor` finds out about the server, the schema and what is in it.

A connection of its own, also for a store that is open: each check is a read-only transaction with a limit, so that one
which hangs or is refused stops no other. Nothing is written but a notification to itself, on a channel of its own. A
role that may only read is enough; what the server does not show it is named. What the answers mean is in
`health_checks` and `health_vacuum`; the statements are in health.sql.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

from perdure.errors import StoreError
from perdure.limits import CLAIM_COUNTED_MAX, DOCTOR_CHECK_SECONDS, DOCTOR_ROWS_COUNTED
from perdure.store.health import Checks, Contents, DueRun, Examined, Parked, WorkerHealth, problem
from perdure.store.model import Status
from perdure.store.postgres import health_checks, health_vacuum
from perdure.store.postgres.connection import Connection, quoted
from perdure.store.postgres.faults import Fault
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.server import Server
from perdure.store.postgres.url import Location
from perdure.store.sql.queries import load
from perdure.store.sql.rows import Values, definitions_of

#: What is asked here and nowhere else.
HEALTH: Final = load(Path(__file__).with_name("health.sql"))

_CLOCK_CALLS: Final = 5


def examine(location: Location) -> Examined:
    """Everything about the store at a URL. Never raises what is wrong with the store: that is a finding."""
    examination = _Examination(location)
    try:
        contents = examination.carry_out()
    finally:
        examination.close()
    return Examined(location.shown, tuple(examination.checks.findings), contents)


class _Examination:
    """One of them, on a thread that may wait."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._server = Server(location)
        self._connection: Connection | None = None
        self.checks = Checks(self._explained)

    def _explained(self, error: Exception) -> str | None:
        if isinstance(error, Fault):
            if error.state == "57014":
                return f"it took longer than {DOCTOR_CHECK_SECONDS:g} s [57014]."
            return error.explained(self._location.shown).message
        return None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._server.patience.close()

    # -- asking ------------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_broken:
            self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = Connection(self._location, name="doctor", server=self._server, standby=True)
            self._connection.call_seconds = DOCTOR_CHECK_SECONDS + 1
        return self._connection

    @contextlib.contextmanager
    def _bounded(self) -> Generator[Connection]:
        """A read-only transaction that ends soon."""
        connection = self._connected()
        connection.script("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
        try:
            milliseconds = f"{DOCTOR_CHECK_SECONDS * 1000:.0f}"
            connection.rows(HEALTH["bounds"], (milliseconds, milliseconds, quoted(self._location.schema)))
            yield connection
        finally:
            if not connection.is_broken and connection.is_in_transaction:
                connection.script("ROLLBACK")

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Values]:
        with self._bounded() as connection:
            return connection.rows(sql, parameters)

    def _row(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        return self._rows(sql, parameters)[0]

    # -- the checks --------------------------------------------------------------------------------------

    def carry_out(self) -> Contents | None:
        try:
            connection = self._connected()
            facts = health_checks.ServerFacts(*self._row(HEALTH["server"]))
        except (StoreError, Fault) as error:
            said = error.explained(self._location.shown) if isinstance(error, Fault) else error
            self.checks.findings.append(
                problem("connection", str(said), "Nothing else can be looked at until this is resolved.")
            )
            return None
        run, schema = self.checks.run, self._location.schema
        run("server", lambda: health_checks.server(facts))
        run("encoding", lambda: health_checks.encoding(facts))
        is_there = self.checks.read("schema", lambda: self._look_at_schema(facts)) or False
        self._look_at_server(facts, connection)
        run("oldest-transaction", lambda: health_vacuum.oldest_transaction(self._rows(HEALTH["holders"]), facts.role))
        run("idle-transactions", lambda: health_vacuum.idle_transactions(self._idle(), facts.role))
        run("autovacuum", lambda: health_vacuum.autovacuum(*self._row(HEALTH["autovacuum"])))
        run("dead-rows", lambda: health_vacuum.dead_rows(self._rows(HEALTH["tables"], (schema,)), schema))
        run("disk", self._disk)
        return self._contents() if is_there else None

    def _look_at_server(self, facts: health_checks.ServerFacts, connection: Connection) -> None:
        run = self.checks.run
        run("clock", self._clock)
        run("pooler", lambda: health_checks.pooler(connection.is_pooled, self._location.prepare))
        run("push", lambda: health_checks.push(self._hears_itself(facts), self._location.push))
        run("durability", lambda: health_checks.durability(self._row(HEALTH["durability"]), self._location.durability))
        run("replication", self._replication(facts))
        run("replication-slots", lambda: health_checks.slots(self._rows(HEALTH["slots"])))
        run("connections", lambda: health_checks.connections(self._row(HEALTH["connections"])))

    def _look_at_schema(self, facts: health_checks.ServerFacts) -> bool:
        """Whether what is in it can be read."""
        name = self._location.schema
        found = health_checks.SchemaFacts(*self._row(HEALTH["schema"], (name,)))
        version: int | None = None
        if found.is_ours and found.may_use:
            with contextlib.suppress(Fault):
                version = self._row(SQL["schema_version"])[0]
        self.checks.findings.append(health_checks.schema(name, found, version))
        privileges = self._rows(HEALTH["privileges"], (name,)) if found.is_ours else []
        self.checks.findings.append(health_checks.privileges(name, facts, found, privileges))
        return version is not None

    def _clock(self) -> Any:
        best = (float("inf"), 0.0)
        with self._bounded() as connection:
            for _ in range(_CLOCK_CALLS):
                asked, began = time.time(), time.monotonic()
                ((there,),) = connection.rows(HEALTH["clock"])
                took = time.monotonic() - began
                best = min(best, (took, there / 1_000_000 - (asked + took / 2)))
        return health_checks.clock(offset=best[1], uncertainty=best[0] / 2)

    def _hears_itself(self, facts: health_checks.ServerFacts) -> bool | None:
        """Whether a notification arrives. None: nobody can listen here.

        From another connection: a pooler passes on what the session that listens says to itself in a transaction.
        """
        if facts.is_standby:
            return None
        connection, channel = self._connected(), f"perdure_doctor_{secrets.token_hex(8)}"
        connection.script(f"LISTEN {quoted(channel)}")
        try:
            self._notify(channel)
            deadline = time.monotonic() + 1.0
            while connection.pq.notifies() is None:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([connection.pq.socket], [], [], left)[0]:
                    return False
                connection.pq.consume_input()
            return True
        finally:
            if not connection.is_broken:
                connection.script("UNLISTEN *")

    def _notify(self, channel: str) -> None:
        other = Connection(self._location, name="doctor notifies", server=self._server)
        try:
            # Not synced: a commit that waits for a synchronous standby that is gone never ends, whatever its timeout.
            other.script("BEGIN; SET LOCAL synchronous_commit TO off")
            other.rows(SQL["notify"], (channel,))
            other.script("COMMIT")
        finally:
            other.close()

    def _replication(self, facts: health_checks.ServerFacts) -> Callable[[], Any]:
        def look() -> Any:
            standbys = [health_checks.Standby(*row) for row in self._rows(HEALTH["standbys"])]
            _, _, _, wanted = self._row(HEALTH["durability"])
            return health_checks.replication(facts, standbys, wanted, self._location.durability)

        return look

    def _idle(self) -> list[Values]:
        return self._rows(HEALTH["idle"], (repr(health_vacuum.IDLE_SECONDS),))

    def _disk(self) -> Any:
        size, temporary, may_see_wal = self._row(HEALTH["disk"])
        wal = self._row(HEALTH["wal_bytes"])[0] if may_see_wal else None
        return health_checks.disk(self._rows(HEALTH["tables"], (self._location.schema,)), size, temporary, wal)

    # -- what is in it -----------------------------------------------------------------------------------

    def _contents(self) -> Contents:
        read = self.checks.read
        now = read("due", lambda: int(self._row(HEALTH["clock"])[0])) or time.time_ns() // 1_000
        dead = read("dead-letters", lambda: self._row(HEALTH["dead_letters"], (DOCTOR_ROWS_COUNTED,)))
        return Contents(
            now=now,
            counts=read("runs", self._counts),
            parked=read("parked", lambda: [Parked(*row) for row in self._rows(HEALTH["parked"])]),
            workers=read("workers", self._workers),
            due=read("due", lambda: [DueRun(*row) for row in self._rows(HEALTH["due"])]),
            due_count=read("due", lambda: self._due_count(now)),
            dead_letters=None if dead is None else dead[0],
            dead_letter_since=None if dead is None else dead[1],
        )

    def _counts(self) -> dict[Status, int]:
        found = self._rows(SQL["count_open"]) + self._rows(SQL["count_ended"])
        return {Status(status): count for status, count in found}

    def _due_count(self, now: int) -> int:
        return int(self._row(SQL["count_due"], (now, CLAIM_COUNTED_MAX, -(2**63), 0))[0])

    def _workers(self) -> list[WorkerHealth]:
        owned: dict[str, int] = dict(self._rows(HEALTH["owned"]))
        return [
            WorkerHealth(
                worker_id, name, host, pid, state, owned.get(worker_id, 0), silent / 1000, definitions_of(runs)
            )
            for worker_id, name, host, pid, silent, state, runs in self._rows(HEALTH["workers"])
        ]
