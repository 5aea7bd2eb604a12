"""A PostgreSQL server that belongs to one test: it is restarted, killed and disturbed at will."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from support import postgres

#: On top of what all test servers have: what is acknowledged must survive a crash of the server, and is vacuumed.
_SETTINGS = """
fsync = on
synchronous_commit = on
full_page_writes = on
autovacuum = on
autovacuum_naptime = 5s
checkpoint_timeout = 30s
log_lock_waits = on
"""


class OwnServer:
    """Use it in `with`. Its port changes when it is restarted; a proxy hides that."""

    def __init__(self, version: int = 18) -> None:
        self._version = version
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-chaos-", dir=postgres._temporary()))
        self._owner = postgres._owner()
        self._programs = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._url = self._admin_url = ""
        self.port = 0

    def __enter__(self) -> OwnServer:
        self._folder.chmod(0o755)
        programs = postgres.find_programs(self._version)
        processes: list[subprocess.Popen[bytes]] = []
        started = postgres._start(self._folder, programs, postgres.Kind(self._version), processes)
        (self._process,) = processes
        self._url, self._admin_url = str(started["url"]), str(started["admin_url"])
        self._programs = Path(str(started["programs"]))
        with (self._folder / "home" / "data" / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS)
        self.restart("fast")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, port: int, schema: str) -> str:
        """For a store, through a port at which something passes on to the server."""
        place = self._url.rpartition(":")[0]
        return f"{place}:{port}/postgres?schema={schema}&sslmode=disable&gssencmode=disable"

    @property
    def admin_url(self) -> str:
        return f"{self._admin_url.rpartition(':')[0]}:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def restart(self, how: str) -> float:
        """`immediate`: as `pg_ctl -m immediate`, without a checkpoint; the server recovers from its log. `fast`: in
        order. How long it was away."""
        began = time.monotonic()
        self._end(signal.SIGQUIT if how == "immediate" else signal.SIGINT)
        log = self._folder / "server.log"
        data = self._folder / "home" / "data"
        with contextlib.suppress(FileNotFoundError), (self._folder / "all.log").open("ab") as earlier:
            earlier.write(log.read_bytes())
        self._process, self.port = postgres._serve(self._programs, data, log, self._owner)
        return time.monotonic() - began

    def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:  # a backend is stopped, or the disk is slow
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(FileNotFoundError):
            (self._folder / "home" / "data" / "postmaster.pid").unlink()

    def log(self) -> str:
        """Everything that it has said."""
        texts = [path.read_text(errors="replace") for path in (self._folder / "all.log", self._folder / "server.log")
                 if path.exists()]  # fmt: skip
        return "".join(texts)

    def admin(self) -> psycopg.Connection[Any]:
        """A connection of a superuser that goes past every proxy."""
        return psycopg.connect(self.admin_url, autocommit=True, connect_timeout=5)

    def end_sessions(self, pattern: str = "%", share: float = 1.0) -> int:
        """`pg_terminate_backend` for a share of the sessions with such names; how many."""
        with self.admin() as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s AND pid <> "
                "pg_backend_pid() AND backend_type = 'client backend' AND random() < %s",
                (pattern, share),
            ).fetchall()
        return len(found)

    def cancel_statements(self) -> int:
        """`pg_cancel_backend` for every session that does something."""
        with self.admin() as connection:
            found = connection.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state <> 'idle' "
                "AND backend_type = 'client backend'"
            ).fetchall()
        return len(found)

    def backends(self, pattern: str = "%") -> list[int]:
        with self.admin() as connection:
            return [pid for (pid,) in connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND pid <> pg_backend_pid() AND "
                "backend_type = 'client backend'", (pattern,)
            ).fetchall()]  # fmt: skip

    @contextlib.contextmanager
    def stopped(self, pid: int) -> Any:
        """One process of the server stands still."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
