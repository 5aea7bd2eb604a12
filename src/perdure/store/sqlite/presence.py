"""Whether the files that are open are still those at their paths: the database, its -wal and its -shm.

A file that was deleted or replaced under an open connection goes on working for that connection alone: what is
committed to it is acknowledged, and gone with the process. While a connection is open SQLite itself never deletes one
of the three, so a file that is not the same any more was deleted by somebody else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from perdure.errors import StoreLost, StoreUnavailable

#: How often to look. A look at three files costs as much as two INSERTs.
FILE_CHECK_SECONDS: Final = 0.1

#: Device and number of a file.
_Identity = tuple[int, int]
_COMPANIONS: Final = ("-wal", "-shm")


class Presence:
    """One for each open store, asked by the threads that use its connections."""

    def __init__(self, path: str, companions: Sequence[str] = _COMPANIONS) -> None:
        self._path = path
        self._names = companions
        self._database: _Identity | None = None
        #: -wal and -shm, as long as a connection of ours keeps SQLite from removing them.
        self._companions: dict[str, _Identity] = {}
        self._connections = 0
        self._look_at = 0.0
        self._lock = threading.Lock()

    def check(self) -> None:
        """Look, unless somebody has lately. Raises `StoreLost`, or `StoreUnavailable` if that cannot be told."""
        now = time.monotonic()
        if now < self._look_at:
            return
        with self._lock:
            self._look_at = 0.0  # if this raises: every time from now on
            self._look()
            self._look_at = now + FILE_CHECK_SECONDS

    def found_lost(self) -> StoreLost | None:
        """Look at once: the reason why SQLite failed just now may be that a file is gone."""
        try:
            with self._lock:
                self._look_at = 0.0
                self._look()
        except StoreLost as found:
            return found
        except StoreUnavailable:
            pass
        return None

    def opened(self) -> None:
        """One more connection is open."""
        with self._lock:
            self._connections += 1

    @contextmanager
    def closing(self) -> Generator[None]:
        """A connection is closed in this block. With the last one SQLite removes -wal and -shm, or the next process
        does: other ones are then right, unless one of these was missing before."""
        with self._lock:
            complete = all(self._is_as_before(name) for name in self._names)
        yield
        with self._lock:
            self._connections -= 1
            if self._connections == 0 and complete:
                self._companions.clear()

    def is_only_without(self, name: str) -> bool:
        """Whether this one is gone, nothing stands in its place, and the others are as they were."""
        try:
            others = [each for each in self._names if each != name]
            return (
                _identity(self._path) == self._database
                and _identity(self._path + name) is None
                and all(_identity(self._path + each) == self._companions.get(each) for each in others)
            )
        except OSError:
            return False

    def _is_as_before(self, name: str) -> bool:
        try:
            return name not in self._companions or _identity(self._path + name) == self._companions[name]
        except OSError:
            return True  # the next look says what is wrong

    def _look(self) -> None:
        try:
            found = _identity(self._path)
            companions = {name: _identity(self._path + name) for name in self._names}
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be looked at: {error.strerror}.") from error
        if self._database is None:
            self._database = found
        if found is None or found != self._database:
            raise lost(self._path)
        for name, now in companions.items():
            before = self._companions.get(name)
            if before is not None and now != before:
                raise lost(self._path + name)
            if now is not None and self._connections:
                self._companions[name] = now


def lost(path: str) -> StoreLost:
    return StoreLost(
        f"{path} was deleted or replaced while it was open. Stop this process, put the right file "
        "(a database with its -wal file) back, and start again."
    )


def _identity(path: str) -> _Identity | None:
    """Which file is at this path now; None: there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
