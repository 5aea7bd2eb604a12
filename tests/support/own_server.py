"""A PostgreSQL server for one test module alone, with its own settings: to fill it, to stop it, to make it a standby.

Most tests share a server (`support.postgres`), which is quick; here are those that no neighbour would survive.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from support import postgres

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
"""


class OwnServer:
    """Use in a `with`: stopped and deleted in the end. No passwords: it listens on this machine only."""

    def __init__(self, settings: str = "", version: int = 18) -> None:
        self._settings = settings
        self._version = version
        self._owner = postgres._owner()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> OwnServer:
        self._home = Path(tempfile.mkdtemp(prefix="perdure-own-pg-", dir=postgres._temporary()))
        programs = postgres.find_programs(self._version)
        if self._owner is not None:
            self._home.chmod(0o755)
            if not str(programs).startswith("/usr/"):
                programs = postgres._copy_programs(programs, self._home, self._owner)
            os.chown(self._home, self._owner.pw_uid, self._owner.pw_gid)
        self._programs, self.data = programs, self._home / "data"
        run = functools.partial(postgres._run, owner=self._owner, cwd=self._home)
        run([str(programs / "initdb"), "-D", str(self.data), "-U", "admin", "-A", "trust", "-E", "UTF8", "--no-locale",
             "--no-sync"])  # fmt: skip
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(_SETTINGS + self._settings)
        self.start()
        return self

    def start(self) -> None:
        self._process, self._port = postgres._serve(self._programs, self.data, self._home / "server.log", self._owner)

    def stop(self) -> None:
        """In order, with everything on the disk."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)  # "fast": ends sessions
        self._process.wait(30)
        self._process = None

    def become_standby(self) -> None:
        """Of a primary that never comes: reads go on, changes are refused."""
        self.stop()
        mark = self.data / "standby.signal"
        mark.touch()
        if self._owner is not None:
            os.chown(mark, self._owner.pw_uid, self._owner.pw_gid)
        self.start()

    def url(self, user: str = "admin", database: str = "postgres", **options: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@127.0.0.1:{self._port}/{database}?sslmode=disable&gssencmode=disable{more}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def connect(self, **options: Any) -> Any:
        """psycopg's connection, as the admin."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self._port, user="admin", dbname="postgres", sslmode="disable", **options
        )

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Any:
        with self.connect(autocommit=True) as connection:
            return connection.execute(sql, parameters)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once: the data is thrown away
            self._process.wait(30)
        shutil.rmtree(self._home, ignore_errors=True)
