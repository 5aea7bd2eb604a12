"""Whether a worker's process lives, as the operating system knows it: a file lock, held from start to end.

The kernel frees the lock when the process is gone, however it went (SIGKILL included), so the next sweep of
any other process can take over at once: no lease to wait for, no clock to trust. The lock file lies beside
the database: `<database>-worker-<id>.lock`. Ids are random per start, so a file name is never used twice.
"""

from __future__ import annotations

import contextlib
import os
import sys
from urllib.parse import quote

from perdure.errors import StoreUnusable

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)


class WorkerLock:
    """A lock that this process holds: its own, or that of a worker it found dead."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Close the lock and remove its file. May be called twice."""
        if self._descriptor is None:
            return
        if os.name == "posix":
            _remove(self._path)  # before closing: a file that is there and free means a dead worker
        os.close(self._descriptor)
        self._descriptor = None
        if os.name != "posix":
            _remove(self._path)

    def abandon(self) -> None:
        """In a forked child: let go of the inherited descriptor. The parent's lock stays.

        Without this a child that outlives its parent would keep a dead worker looking alive.
        """
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_path(database: str, worker_id: str) -> str:
    return f"{database}-worker-{quote(worker_id, safe='')}.lock"


def hold(database: str, worker_id: str) -> WorkerLock:
    """Take the lock of this worker. Only then may it be registered, or it would look dead."""
    path = lock_path(database, worker_id)
    try:
        descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StoreUnusable(
            f"the lock file {path} of this worker cannot be created: {error.strerror}. "
            "Worker ids must be new at every start, and the directory writable."
        ) from error
    try:
        locked = _try_lock(descriptor)
    except OSError:  # such as ENOLCK
        locked = False
    if not locked:
        os.close(descriptor)
        _remove(path)
        raise StoreUnusable(f"the file system of {path} does not lock files. Use a local disk.")
    return WorkerLock(path, descriptor)


def take_if_dead(database: str, worker_id: str) -> WorkerLock | bool:
    """The lock of a dead worker; True if it is dead and left no file; False if it lives."""
    path = lock_path(database, worker_id)
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # cannot be judged (permissions, antivirus): treat as alive, look again later
    try:
        if _try_lock(descriptor):
            return WorkerLock(path, descriptor)
    except OSError:
        pass  # the same
    os.close(descriptor)
    return False


def is_dead(database: str, worker_id: str) -> bool:
    """Only a look: the file stays for the process that reaps the worker."""
    verdict = take_if_dead(database, worker_id)
    if isinstance(verdict, WorkerLock):
        verdict.abandon()
        return True
    return verdict


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # somebody else removed it, or will
        os.unlink(path)
