"""What a PostgreSQL server of this machine spent between two moments: processor time, WAL, and updates of rows.

    server = Server(url)
    before = server.reading()
    ...
    server.spent(before)

Processor time is that of the server's process and all its children, also of those that ended meanwhile: the backends
of all clients, and what the server does by itself. Whoever asks should be the only one at work on it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

_PROCESSES = Path("/proc")
_END_SECONDS_MAX = 5.0
_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """At a moment since the server began, or between two."""

    processor_seconds: float
    wal_bytes: float


class Server:
    """A server that `url` leads to, looked at through a connection of its own."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        #: Parent of every backend.
        self._process = _parent(self._connection.info.backend_pid)

    def reading(self) -> Spent:
        return Spent(_processor_seconds(self._process), self._number("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def spent(self, since: Spent) -> Spent:
        now = self.reading()
        return Spent(now.processor_seconds - since.processor_seconds, now.wal_bytes - since.wal_bytes)

    def hot_share(self, schema: str, table: str) -> float | None:
        """The part of the updates of a table that touched no index; None if there was none. Waits for the end of the
        other sessions of this database: a session tells its counts at the latest when it ends."""
        deadline = time.monotonic() + _END_SECONDS_MAX
        while self._number(_OTHERS) and time.monotonic() < deadline:
            time.sleep(0.02)
        return self._number(
            "SELECT n_tup_hot_upd::float / nullif(n_tup_upd, 0) FROM pg_stat_user_tables"
            " WHERE schemaname = %s AND relname = %s",
            schema,
            table,
        )

    def close(self) -> None:
        self._connection.close()

    def _number(self, statement: str, *values: str) -> Any:
        row = self._connection.execute(statement, values).fetchone()
        return None if row is None or row[0] is None else float(row[0])


def _processor_seconds(server: int) -> float:
    """Of a process and its children. Those that have ended are in the account of their parent, in whole ticks."""
    fields = _fields(server)
    total = sum(int(fields[place]) for place in _TIMES) * _TICK
    for found in _PROCESSES.iterdir():
        if found.name.isdigit():
            try:
                if _parent(int(found.name)) == server:
                    total += _own_seconds(int(found.name))
            except OSError:  # it has ended
                continue
    return total


#: utime, stime, cutime and cstime, counted from the field after the name.
_TIMES = (11, 12, 13, 14)


def _own_seconds(process: int) -> float:
    try:
        return int((_PROCESSES / str(process) / "schedstat").read_text().split()[0]) / 1e9
    except OSError:  # this kernel does not count so finely
        fields = _fields(process)
        return (int(fields[_TIMES[0]]) + int(fields[_TIMES[1]])) * _TICK


def _parent(process: int) -> int:
    return int(_fields(process)[1])


def _fields(process: int) -> list[str]:
    # The name in parentheses may contain spaces.
    return (_PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
