"""PostgreSQL servers of a test: a primary, and standbys that follow it, at once or with a delay."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psycopg

from chaos.failover import machines as m

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
dynamic_shared_memory_type = mmap
shared_buffers = 64MB
# The machine lives on, and so do its files: only what a standby has not received is lost here.
fsync = off
wal_level = replica
max_wal_senders = 5
wal_keep_size = 512MB
hot_standby = on
wal_receiver_status_interval = 100ms
log_line_prefix = '%m [%p] %q%a '
log_lock_waits = on
"""
ACCESS = """
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""


class Node:
    """One server, with its folder and its port."""

    def __init__(self, machines: m.Machines, name: str) -> None:
        self.machines, self.name = machines, name
        self.port = m.free_port()
        self.data = machines.path(name)
        self.pid = 0

    @property
    def admin_url(self) -> str:
        return f"postgresql://admin@127.0.0.1:{self.port}/postgres?connect_timeout=20"

    # -- making it ---------------------------------------------------------------------------------------------

    def initialise(self, settings: str = "") -> Node:
        """A new cluster, with a role for perdure; started."""
        programs = self.machines.programs
        self.machines.run([
            programs / "initdb", "-D", self.data, "-U", "admin", "-A", "trust", "-E", "UTF8", "--no-locale",
            "--no-sync",
        ])  # fmt: skip
        self.configure(SETTINGS + settings)
        with (self.data / "pg_hba.conf").open("w") as file:
            file.write(ACCESS)
        self.machines.run(
            [programs / "postgres", "--single", "-D", self.data, "postgres"],
            "CREATE ROLE perdure LOGIN\nGRANT CREATE ON DATABASE postgres TO perdure\n",
        )
        self.start()
        return self

    def configure(self, settings: str) -> None:
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(settings)

    def follow(self, port: int, name: str) -> Node:
        """A copy of the server on a port, which goes on receiving from there; started."""
        self.machines.run([
            self.machines.programs / "pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast", "--no-sync",
            "-d", f"host=127.0.0.1 port={port} user=admin application_name={name}",
        ])  # fmt: skip
        self.start()
        return self

    # -- what becomes of it ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Return when it takes connections."""
        command = [self.machines.programs / "postgres", "-D", self.data, "-p", str(self.port)]
        self.pid = self.machines.start(self.name, command)
        m.wait_for(self._is_ready, f"{self.name} to start: {self.machines.said(self.name)[-2000:]}")

    def _is_ready(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            self.execute("SELECT 1")
            return True
        return False

    def lose(self) -> None:
        """The machine loses its power."""
        m.end([self.pid])
        self.machines.wait(self.pid)

    def restart(self) -> None:
        """As after a crash: nothing was written in order."""
        self.lose()
        self.start()

    def promote(self) -> float:
        """Make it take changes; how long that took."""
        began = time.monotonic()
        # Without waiting in a transaction: what is replayed until then may have to wait for the end of that.
        self.execute("SELECT pg_promote(false)")
        m.wait_for(lambda: not self.execute("SELECT pg_is_in_recovery()")[0][0], f"{self.name} to be promoted")
        return time.monotonic() - began

    def execute(self, sql: str, parameters: Any = None) -> list[Any]:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def set(self, name: str, value: str) -> None:
        """A setting of the server, from now on."""
        self.execute(f"ALTER SYSTEM SET {name} = {value}")
        self.execute("SELECT pg_reload_conf()")

    def has_received_all_of(self, other: Node) -> bool:
        sql = "SELECT coalesce(pg_last_wal_receive_lsn(), '0/0') >= %s::pg_lsn"
        ((position,),) = other.execute("SELECT pg_current_wal_flush_lsn()::text")
        return bool(self.execute(sql, (position,))[0][0])


def url(*ports: int, options: str = "") -> str:
    """As users write it: all servers, and the one is used that takes changes."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://perdure@{hosts}/postgres?sslmode=disable{options}"
