"""A connection to PostgreSQL for a thread that may wait: libpq itself, without the cursors of psycopg, which cost more
than most of our statements do (docs/decisions/0141-libpq-for-postgres.md)."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.pq import abc

from perdure.errors import StoreUnavailable, StoreUnusable
from perdure.limits import POSTGRES_CALL_SECONDS, POSTGRES_IDLE_SECONDS, POSTGRES_LOCK_SECONDS
from perdure.store.postgres.faults import Fault, no_connection_left
from perdure.store.postgres.hosts import Hosts
from perdure.store.postgres.queries import SQL
from perdure.store.postgres.server import Facts, History, Server, Socket
from perdure.store.postgres.url import Location, Parameters
from perdure.store.postgres.values import decoder, encode_all
from perdure.store.sql.rows import Values

log = logging.getLogger("perdure.store.postgres")

#: Where in the server a warning comes from that says that a commit was not confirmed by its standbys: it may be lost
#: with the primary. Not by the text, which is in the language of the server.
_WAITS_FOR_STANDBY: Final = b"SyncRepWaitForLSN"
#: How long the question may take what a call waits for.
_QUESTION_SECONDS: Final = 2.0
OLDEST_SERVER: Final = 140000
#: Parameters of which no error shows the value.
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret")


def quoted(name: str) -> str:
    """An identifier as SQL text. The only thing that is ever put into a statement, and never a value."""
    return '"' + name.replace('"', '""') + '"'


def settings_of(location: Location) -> list[str]:
    """What every connection of ours is told: statements, of constants and of the quoted name of the schema."""
    return [
        f"SET search_path TO {quoted(location.schema)}",
        f"SET synchronous_commit TO {'on' if location.durability == 'full' else 'off'}",
        f"SET lock_timeout TO '{POSTGRES_LOCK_SECONDS}s'",
        f"SET idle_in_transaction_session_timeout TO '{POSTGRES_IDLE_SECONDS}s'",
        "SET default_transaction_isolation TO 'read committed'",
        "SET default_transaction_read_only TO off",
        "SET timezone TO 'UTC'",
        # One plan for a statement, whatever its parameters are, and that plan by the index, however small the tables
        # were when it was made (FLEET finding 2).
        "SET plan_cache_mode TO force_generic_plan",
        "SET enable_seqscan TO off",
        "SET random_page_cost TO 1.0",
        "SET jit TO off",
    ]


def local_settings_of(location: Location) -> tuple[str, ...]:
    """The same for one transaction: parameters of the statement `local_settings`."""
    return (
        quoted(location.schema),
        "on" if location.durability == "full" else "off",
        f"{POSTGRES_LOCK_SECONDS}s",
        f"{POSTGRES_IDLE_SECONDS}s",
    )


class _Opened(psycopg.Connection[Any]):
    """Only for opening: what comes out of it, libpq's connection, belongs to somebody else then."""

    def __del__(self, *_: object) -> None:
        """psycopg warns here of a connection that was not closed."""


def dial(location: Location, *, name: str = "", connections_max: int = 0, hosts: Hosts | None = None) -> abc.PGconn:
    """Connect and wait for it. Raises `StoreUnavailable`, or `StoreUnusable` for what waiting does not cure.

    Not by libpq's own `connect`: psycopg keeps the GIL during that, so that a server which does not answer would stop
    the whole process for the length of the timeout, its event loop and the renewal of its lease
    (tests/fleet/test_silence.py).

    `connections_max`: how many the server takes, if that is known. `hosts`: in which order they are tried.
    """
    hosts = Hosts(location.parameters) if hosts is None else hosts
    parameters: dict[str, Any] = hosts.ordered(location.parameters)
    if name:
        parameters["application_name"] = f"{parameters.get('application_name', 'perdure')} {name}"
    parameters["client_encoding"] = "UTF8"
    try:
        connection = _Opened.connect(make_conninfo("", **parameters), autocommit=True).pgconn
    except psycopg.Error as error:
        hosts.failed(str(error))
        raise _refused(location, _cleaned(str(error), location), connections_max) from None
    hosts.worked(connection)
    connection.nonblocking = 0
    connection.notice_handler = None
    connection.notify_handler = None
    if connection.server_version < OLDEST_SERVER:
        version = connection.server_version // 10000
        connection.finish()
        raise StoreUnusable(
            f"{location.shown} is PostgreSQL {version}; perdure needs {OLDEST_SERVER // 10000} or newer. Upgrade the "
            "server (pg_upgrade), or name another one."
        )
    return connection


def one_line(error: BaseException) -> str:
    """What libpq said, which may be several lines."""
    return " ".join(str(error).split())


def _cleaned(said: str, location: Location) -> str:
    """What libpq said, in one line and without what nobody may read."""
    text = " ".join(said.split()).rstrip(".?")
    for name in _SECRETS:
        secret = location.parameters.get(name)
        text = text.replace(secret, "...") if secret else text
    return text


def _refused(location: Location, said: str, connections_max: int) -> Exception:
    for hint, advice in _ADVICE:
        if hint in said:
            return StoreUnusable(f"{location.shown} cannot be used: {said}. {advice}")
    if any(hint in said for hint in _FULL):
        return StoreUnavailable(
            f"{location.shown} has no connection left: {said}. {no_connection_left(connections_max)}"
        )
    if "session is read-only" in said:
        # Also for a moment between the death of a primary and the promotion of a standby: no reason to give up.
        return StoreUnavailable(
            f"none of the servers of {location.shown} takes changes now: {said}. Name the primary, too; after a "
            "failover the call may be repeated."
        )
    return StoreUnavailable(f"{location.shown} cannot be reached: {said}.")


_ADVICE: Final = (
    ("password authentication failed", "Check user and password; odd characters are percent-encoded in a URL."),
    ("no password supplied", "Give the password in the URL, in PGPASSWORD or in ~/.pgpass."),
    ("does not exist", "Create it, or name another one in the URL."),
    ("no pg_hba.conf entry", "Let this host and user in, in pg_hba.conf of the server."),
    ("invalid sslmode", "It is one of disable, allow, prefer, require, verify-ca, verify-full."),
    ("server does not support SSL", "Use ?sslmode=disable, or turn SSL on there."),
    ("session is not read-only", "Remove target_session_attrs from the URL."),
)


#: The limit of the server, of a role or of a database (53300; libpq tells no SQLSTATE of a connection that failed).
_FULL: Final = ("too many clients already", "remaining connection slots", "too many connections for")


class Connection:
    """Carries out statements, one after the other, and waits for each. Prepares each text once.

    `server`: what it shares with the other connections of a store. `standby`: one that takes no changes will do.
    """

    def __init__(
        self, location: Location, *, name: str = "", server: Server | None = None, standby: bool = False
    ) -> None:
        connections_max, hosts = (0, None) if server is None else (server.connections_max, server.hosts)
        self._adopt(location, dial(location, name=name, connections_max=connections_max, hosts=hosts), server)
        try:
            self._get_to_know(standby)
        except BaseException:
            self.close()
            raise

    def _adopt(self, location: Location, connection: abc.PGconn, server: Server | None) -> None:
        self._location = location
        self._server = server if server is not None else Server(location)
        self._connection = connection
        self._socket = Socket(self._connection.socket)
        self.busy_since: float | None = None
        self.call_seconds = float(POSTGRES_CALL_SECONDS)
        self.excused_at = 0.0
        #: Under which past of the server it was made (`Server.generation`). None: it found out nothing.
        self.generation: int | None = None
        self._prepared: dict[str, bytes] = {}
        self._decoders: dict[str, list[Callable[[bytes], Any]]] = {}
        #: Whether the last commit may have been lost with the primary, as the server said.
        self.not_replicated = False
        self._connection.notice_handler = self._noticed
        #: Whether a pooler may give each transaction another session of the server.
        self.is_pooled = True
        #: Whether one surely does.
        self.is_shared = False
        if server is not None:
            server.patience.watch(self)

    def _get_to_know(self, standby: bool) -> None:
        facts = self._facts()
        if facts.is_standby and not standby:
            raise StoreUnavailable(
                f"{self._location.shown} is a standby, which takes no changes. Name all servers in the URL "
                "(host1,host2): perdure finds the one that does."
            )
        self.is_shared = facts.session != self._connection.backend_pid
        self.is_pooled = self._server.is_pooled(facts.session, self._connection.backend_pid)
        if not self.is_pooled:
            self.script("; ".join(settings_of(self._location)))
        if facts.is_standby:
            self.generation = self._server.generation
        else:
            self.generation = self._server.look_at(facts.history, self)

    def _facts(self) -> Facts:
        result = self._ask(self._connection.exec_params, SQL["facts"].encode(), [], None, [], pq.Format.TEXT)
        values = [int(result.get_value(0, column) or 0) for column in range(5)]
        is_standby, session, system, timeline, self._server.connections_max = values
        return Facts(bool(is_standby), session, History(system, timeline))

    def _noticed(self, result: abc.PGresult) -> None:
        if result.error_field(pq.DiagnosticField.SOURCE_FUNCTION) == _WAITS_FOR_STANDBY:
            self.not_replicated = True

    @property
    def location(self) -> Location:
        return self._location

    @property
    def pq(self) -> abc.PGconn:
        return self._connection

    @property
    def is_broken(self) -> bool:
        return self._connection.status != pq.ConnStatus.OK

    @property
    def is_in_transaction(self) -> bool:
        return self._connection.transaction_status != pq.TransactionStatus.IDLE

    def begin(self, how: str = "ISOLATION LEVEL READ COMMITTED READ WRITE") -> None:
        """Begin a transaction, with our settings where they do not belong to the session."""
        self.script(f"BEGIN {how}")
        if self.is_pooled:
            self._exec_params(SQL["local_settings"], local_settings_of(self._location))

    def script(self, text: str) -> None:
        """Statements without parameters, in one round trip."""
        self._ask(self._connection.exec_, text.encode())

    def prepare(self, name: bytes, sql: str) -> None:
        self._ask(self._connection.prepare, name, sql.encode())

    def _ask(self, call: Callable[..., abc.PGresult], *arguments: Any) -> abc.PGresult:
        """A call of libpq that waits for the answer. Raises `Fault`."""
        self.busy_since = time.monotonic()
        try:
            result = call(*arguments)
        except psycopg.Error as error:  # no answer at all, not even an error: the connection broke before or within
            raise Fault("", one_line(error)) from None
        finally:
            self.busy_since = None
        return self._checked(result)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> abc.PGresult:
        """One statement of `queries.sql`. Raises `Fault`."""
        if self.is_pooled:
            return self._run_pooled(sql, parameters)
        values, formats = encode_all(parameters)
        name = self._prepared.get(sql)
        if name is None:
            name = b"perdure_%d" % len(self._prepared)
            self.prepare(name, sql)
            self._prepared[sql] = name
        return self._ask(self._connection.exec_prepared, name, values, formats, pq.Format.BINARY)

    def _run_pooled(self, sql: str, parameters: Sequence[Any]) -> abc.PGresult:
        if self.is_in_transaction:
            return self._exec_params(sql, parameters)
        self.begin()
        try:
            result = self._exec_params(sql, parameters)
            self.script("COMMIT")
        except Fault:
            if not self.is_broken and self.is_in_transaction:
                self.script("ROLLBACK")
            raise
        return result

    def _exec_params(self, sql: str, parameters: Sequence[Any]) -> abc.PGresult:
        values, formats = encode_all(parameters)
        return self._ask(self._connection.exec_params, sql.encode(), values, None, formats, pq.Format.BINARY)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Values]:
        result = self.run(sql, parameters)
        count = result.ntuples
        if not count:
            return []
        decoders = self._decoders.get(sql)
        if decoders is None:
            decoders = self._decoders[sql] = [decoder(result.ftype(column)) for column in range(result.nfields)]
        get = result.get_value
        return [
            tuple(
                [None if (data := get(row, column)) is None else decode(data) for column, decode in enumerate(decoders)]
            )
            for row in range(count)
        ]

    def _checked(self, result: abc.PGresult) -> abc.PGresult:
        if result.status in _FINE:
            return result
        raise fault_of(result, self._connection)

    # -- looked at from another thread -------------------------------------------------------------------

    def cut(self, why: str) -> None:
        """End what is under way: it fails, and the connection with it."""
        log.info("%s %s; a connection is given up", self._location.shown, why)
        self.busy_since = None
        self._socket.cut()

    def awaited_standbys(self) -> str | None:
        """Whether the call that is under way waits for a synchronous standby: the names of those that would do."""
        if self.is_pooled or self.generation is None:
            return None  # the number of the session is the pooler's, or it is about to be found out
        other = Connection(self._same_host(), name="question", server=self._server)
        try:
            other.call_seconds = _QUESTION_SECONDS
            found = other.rows(SQL["awaited_standbys"], (self._connection.backend_pid,))
            return found[0][0] if found else None
        finally:
            other.close()

    def _same_host(self) -> Location:
        """Where this connection has led to, if several hosts were named."""
        parameters = {name: value for name, value in self._location.parameters.items() if name != "hostaddr"}
        host, port = self._connection.host.decode(), self._connection.port.decode()
        parameters |= {"host": host, "port": port, "connect_timeout": str(round(_QUESTION_SECONDS))}
        return dataclasses.replace(self._location, parameters=Parameters(parameters))

    def close(self) -> None:
        """Never raises."""
        self._server.patience.forget(self)
        if self.is_broken and self.generation is not None:
            self._server.lost(self, self.generation)
        self._connection.finish()
        self._socket.close()


_FINE: Final = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY})


def fault_of(result: abc.PGresult, connection: abc.PGconn) -> Fault:
    """What went wrong with a statement."""
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    said = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or connection.error_message
    text = " ".join((said or b"the connection broke").decode("utf-8", "replace").split())
    if connection.status != pq.ConnStatus.OK:
        return Fault("", text)
    return Fault(state.decode() if state else "", text)
