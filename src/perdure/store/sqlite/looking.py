"""Looking at a file without changing it: no migration, no checkpoint, no switch to write-ahead logging, no new file.

can be written, schema of today   a connection that refuses writes, beside workers
cannot be written                 immutable if there is no -wal, else read-only, with the -shm that is there
older schema, or a -wal that      a copy in a directory of its own, migrated there; gone with the store
cannot be read in its place
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from urllib.parse import quote

import apsw

from perdure.errors import StoreUnusable
from perdure.store.sqlite.migrate import migrate, newest, recognise
from perdure.store.sqlite.session import Session, cannot_open, configure, connect_reader, connect_writer, may


class _LookingSession(Session):
    """Leaves a -wal with something in it as it was found: a worker that was killed may have left it, and closing the
    last connection would copy it into the database. An empty one goes, as always."""

    __slots__ = ()

    def close(self) -> None:
        try:
            if os.path.getsize(self.connection.filename + "-wal"):
                self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        except (OSError, apsw.Error):
            pass  # no -wal, or a connection in trouble: nothing to keep
        super().close()


class Look:
    """How one file is looked at. `prepare` first; `connect` as often as needed; `close` in the end.

    `original` connects to the file as it is, of whatever schema.
    """

    def __init__(self, path: str, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._directory: str | None = None
        self.connect: Callable[[], Session] = lambda: self._beside_workers(path)
        self.original = self.connect

    def prepare(self) -> None:
        """Find a way. Raises `StoreUnusable`, `SchemaTooNew`."""
        if not os.path.isfile(self._path):
            raise StoreUnusable(f"there is no file at {self._path} to look at. Choose another path.")
        if not may(self._path, os.R_OK):
            raise StoreUnusable(f"{self._path} cannot be read by this user. Change its permissions or its owner.")
        try:
            self._find_way()
        except BaseException as error:
            self.close()
            if isinstance(error, apsw.Error):
                raise cannot_open(self._path, error) from error
            raise

    def close(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _find_way(self) -> None:
        if not (may(self._path, os.W_OK) and may(os.path.dirname(self._path), os.W_OK)):
            self.connect = lambda: self._read_only("immutable=1" if not _wal_bytes(self._path) else "mode=ro")
        try:
            version = self._version()
        except apsw.CantOpenError:
            # A -wal without a -shm, and none can be made: nobody has the file open, so a copy is as good.
            copied = self._copy_path()
            for name in ("", "-wal"):
                shutil.copyfile(self._path + name, copied + name)
            self.connect = lambda: self._beside_workers(copied)
            version = self._version()
        self.original = self.connect
        if version < newest():
            self._look_at_migrated_copy()

    def _version(self) -> int:
        session = self.connect()
        try:
            return recognise(session, self._path)
        finally:
            session.close()

    def _look_at_migrated_copy(self) -> None:
        original, connect = self.connect(), self._beside_workers
        copied = self._copy_path() + "-migrated"
        try:
            copy = apsw.Connection(copied)
            with copy.backup("main", original.connection, "main") as backup:
                backup.step()
            copy.close()
        finally:
            original.close()
        session = connect_writer(copied, "relaxed")
        try:
            migrate(session, self._path, quietly=True)
        finally:
            session.close()
        self.connect = lambda: connect(copied)

    def _copy_path(self) -> str:
        if self._directory is None:
            self._directory = tempfile.mkdtemp(prefix="perdure-look-")
        return os.path.join(self._directory, "copy.db")

    def _beside_workers(self, path: str) -> Session:
        vfs = self._vfs if path == self._path else None
        return _LookingSession(connect_reader(path, vfs=vfs).connection)

    def _read_only(self, how: str) -> Session:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        session = configure(apsw.Connection(f"file:{quote(self._path)}?{how}", flags=flags))
        return session


def _wal_bytes(path: str) -> int:
    try:
        return os.path.getsize(path + "-wal")
    except OSError:
        return 0
