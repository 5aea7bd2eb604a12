"""A connection, and everything about the file behind it: opening, and faults in words. (`presence`: is it still there?)

Nothing else in this package opens a connection or reads an `apsw` error.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import apsw

from perdure.errors import RunMoved, StoreError, StoreUnavailable, StoreUnusable
from perdure.limits import SQLITE_BUSY_SECONDS
from perdure.store import refusals
from perdure.store.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from perdure.store.sql.rows import Values

log = logging.getLogger("perdure.store.sqlite")

T = TypeVar("T")

#: What the triggers of a file say whose runs go to another store (`refuse_changes`).
MOVED: Final = "perdure: moved"

#: Closing any descriptor of a file drops all POSIX locks the process has on it, SQLite's too. The file is
#: therefore only ever opened by us to create it, and nobody else in the process may open it meanwhile.
_creating = threading.Lock()

#: Faults of one statement (a bug or a bad value), as opposed to faults of the store.
STATEMENT_FAULTS: Final = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
)


class Session:
    """A connection with the two calls that everything else needs.

    `execute` reuses one cursor: right for statements that return nothing, and fast. `rows` and `row` read to
    the end, so a statement is never left open across another one. SQLite has one writer at a time, so that nothing need
    be locked: see `store.sql.session`.
    """

    #: The statements, by name.
    sql: ClassVar = SQL
    #: To SQLite any bytes come after any text.
    after_all_text: ClassVar[bytes | None] = b""

    __slots__ = ("changes", "connection", "execute", "executemany", "total_changes")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        cursor = connection.cursor()
        self.execute = cursor.execute
        self.executemany = cursor.executemany
        self.changes = connection.changes
        self.total_changes = connection.total_changes

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        self.execute(sql, parameters)
        return self.changes()

    def change_many(self, sql: str, parameters: Iterable[Sequence[Any]]) -> int:
        before = self.total_changes()
        self.executemany(sql, parameters)
        return self.total_changes() - before

    def add_all(self, sql: str, rows: Sequence[Values]) -> None:
        self.executemany(sql, rows)

    def insert(self, sql: str, parameters: Sequence[Any]) -> int | None:
        self.execute(sql, parameters)
        return self.connection.last_insert_rowid() if self.changes() else None

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Values]:
        return self.connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Values | None:
        found = self.connection.execute(sql, parameters).fetchall()
        return found[0] if found else None

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        found = self.row(sql, parameters)
        return None if found is None else found[0]

    def snapshot(self, read: Callable[[], T]) -> T:
        """Several reads of one state."""
        self.execute(SQL["begin_read"])
        try:
            return read()
        finally:
            self.execute(SQL["commit"])

    def lock_type(self, kind: str) -> None: ...

    def lock_type_to_wait(self, kind: str) -> None: ...

    def lock_runs(self, keys: Sequence[int]) -> None: ...

    def close(self) -> None:
        """Close for good. Never raises: it is called when the connection is already in trouble, too."""
        path = ""
        try:
            path = self.connection.filename  # a closed connection does not tell it any more
            self.connection.close(True)
        except apsw.ConnectionClosedError:
            pass
        except apsw.Error as error:
            log.warning("closing %s: %s", path, error)


def connect(path: str, busy_seconds: float = SQLITE_BUSY_SECONDS, vfs: str | None = None) -> Session:
    """Open an existing file, through SQLite's own VFS or one that was registered under a name."""
    return configure(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs), busy_seconds)


def configure(connection: apsw.Connection, busy_seconds: float = SQLITE_BUSY_SECONDS) -> Session:
    """What every connection is told, however it was opened."""
    connection.set_busy_timeout(int(busy_seconds * 1000))
    # One plan for a statement, whatever its parameters are: SQLite would plan those with ORDER BY or LIMIT anew for
    # each, which costs more than most of them do (docs/decisions/0095-one-plan-for-a-statement.md).
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return Session(connection)


def connect_reader(path: str, busy_seconds: float = SQLITE_BUSY_SECONDS, vfs: str | None = None) -> Session:
    """Open an existing file for reading. Not SQLITE_OPEN_READONLY: WAL readers write to the -shm file."""
    session = connect(path, busy_seconds, vfs)
    session.execute(SQL["refuse_writes"])
    return session


def connect_writer(path: str, durability: str, vfs: str | None = None) -> Session:
    """Open an existing file for writing, with the promised durability."""
    session = connect(path, vfs=vfs)
    session.execute(SQL["sync_full" if durability == "full" else "sync_normal"])
    session.execute(SQL["limit_wal"])
    return session


def sync_what_others_wrote(session: Session) -> None:
    """Make durable what is in the WAL already, before anybody is told of it.

    A process that is killed between its last write and its sync leaves a change that every later reader sees, and
    that a power cut may still take away. Checkpointing syncs the WAL first (tests/io_faults/test_power_cuts.py).
    """
    session.rows(SQL["checkpoint"])


def use_wal(session: Session) -> None:
    """Turn on write-ahead logging. The busy timeout does not cover this one: it needs the file for itself."""
    deadline = time.monotonic() + SQLITE_BUSY_SECONDS
    while True:
        try:
            # Read to its end: left open after changing the mode of a file that needs no migration (a copy made by
            # VACUUM INTO), the statement would keep every other process out (tests/stores/test_sqlite_opening.py).
            session.rows(SQL["use_wal"])
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# -- the file --------------------------------------------------------------------------------------------


def prepare_file(path: str) -> None:
    """Make sure that there is a file which can be used. Raises `StoreUnusable`, with the fix."""
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise StoreUnusable(f"{path} is a directory. Name a file in it, such as {os.path.join(path, 'perdure.db')}.")
    if not os.path.isdir(folder):
        raise StoreUnusable(f"the directory {folder} of {path} does not exist. Create it, or choose another path.")
    with _creating:
        if not os.path.exists(path):
            _create(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise StoreUnusable(f"{path} is not a regular file. Name one, such as 'perdure.db'.")
    if not may(path, os.R_OK | os.W_OK):
        raise StoreUnusable(f"{path} cannot be written by this user. Change its permissions or its owner.")
    if not may(folder, os.W_OK):
        raise StoreUnusable(
            f"the directory {folder} cannot be written by this user, and SQLite keeps files beside {path}. "
            "Change its permissions, or choose another path."
        )
    _warn_if_open_to_all(path)


def may(path: str, mode: int) -> bool:
    """Whether this user may read or write something: the one that opening a file will be judged by."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _create(path: str) -> None:
    # 0600 from its first moment: payloads are nobody else's business. SQLite gives -wal and -shm the same
    # mode.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600))
    except FileExistsError:
        pass  # another process was first
    except OSError as error:
        raise StoreUnusable(
            f"{path} cannot be created: {error.strerror}. Choose a path where this user may write."
        ) from error


def _warn_if_open_to_all(path: str) -> None:
    if os.name == "posix" and os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning("%s can be read by other users of this machine; `chmod 600` it if it should not be.", path)


# -- a file that departs ---------------------------------------------------------------------------------


def as_moved(session: Session, error: Exception) -> RunMoved | StoreUnavailable | None:
    """What to tell a caller whose change was refused because everything here goes, or has gone, to another store."""
    if not isinstance(error, apsw.ConstraintError) or MOVED not in str(error):
        return None
    target, _, _, gone = session.rows(SQL["departure"])[0]
    return refusals.moved(target, gone=bool(gone))


# -- faults ----------------------------------------------------------------------------------------------


def fault(path: str, error: BaseException) -> StoreError:
    """SQLite's error in our words. After `StoreUnavailable` the caller may repeat, else it is of no use."""
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        return StoreUnusable(f"{path} is damaged or not a database ({error}). Restore it from a backup.")
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
        return StoreUnusable(
            f"{path} cannot be written ({error}). Check the permissions of the file and its directory."
        )
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(
            f"{path} has been locked by another process for {SQLITE_BUSY_SECONDS:g} s ({error}). "
            "The call may be repeated; look for another process that has it open (a backup, a shell)."
        )
    if isinstance(error, apsw.FullError) or _is_no_space(error):
        return StoreUnavailable(f"no space left for {path}: {_free_bytes(path)} bytes are free ({error}).")
    return StoreUnavailable(f"{path} did not take the change: {type(error).__name__}: {error}.")


def cannot_open(path: str, error: apsw.Error) -> StoreError:
    """Like `fault`, for a file that has never been used by us."""
    if isinstance(error, apsw.NotADBError):
        return StoreUnusable(f"{path} is not a SQLite database. Choose another path; it was left alone.")
    if isinstance(error, apsw.CantOpenError):
        return StoreUnusable(f"{path} cannot be opened ({error}). Check the path and its permissions.")
    return fault(path, error)


def _is_no_space(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _free_bytes(path: str) -> int:
    try:
        return shutil.disk_usage(os.path.dirname(path)).free
    except OSError:
        return 0


def breaks_connection(error: BaseException) -> bool:
    """After an I/O error nothing the connection remembers can be trusted (FAULTS B6)."""
    return isinstance(
        error,
        (
            apsw.IOError,
            apsw.CorruptError,
            apsw.NotADBError,
            apsw.CantOpenError,
            apsw.ConnectionClosedError,
            apsw.CursorClosedError,
        ),
    )
