"""The write-ahead log (WAL) of the file: preallocated for a busy writer, copied into the database by checkpoints.

All of it is done by the writer's thread between two rounds of jobs, never within a commit. Nothing here changes what is
stored, and a failure loses nothing: the WAL stays.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

import apsw

from perdure.errors import StoreError
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session, log

#: What `PRAGMA synchronous` says when every commit is synced; EXTRA is more.
_SYNC_FULL: Final = 2
#: Pages in the WAL before they are copied into the database; SQLite's own default. Done by the writer's thread,
#: not within whichever commit happens to reach the number: copying takes tens of milliseconds.
CHECKPOINT_PAGES: Final = 1_000
#: Not at once but when no job has come for a moment (`connection_thread.IDLE_SECONDS`), or when there are so many times
#: more: in the middle of a burst the next group of turns would wait for it.
CHECKPOINT_PUT_OFF_FACTOR: Final = 8
#: Transactions after which to look how many pages there are, and how many times more if the last ones wrote so little
#: that nothing can be due before: a chain of steps, committed on the loop's thread, is interrupted by each look.
CHECKPOINT_LOOK_TRANSACTIONS: Final = 32
CHECKPOINT_LOOK_FACTOR_MAX: Final = 8
#: How many changes count as one more transaction there: a large group writes as many pages as dozens of steps.
CHECKPOINT_LOOK_CHANGES: Final = 32
#: The room that is preallocated for them (`Wal.preallocate`), in pages and in bytes of the WAL. More than the number
#: above: a few stay in the cache, and some come before anybody looks.
ROOM_EXTRA_PAGES: Final = 64
_PAGE_BYTES, _FRAME_BYTES = 4_096, 4_096 + 24


class Connected(Protocol):
    """The thread whose connection this is about."""

    session: Session | None

    def wait_for_locks(self, session: Session, seconds: float) -> None: ...

    def recover(self, error: Exception) -> StoreError: ...


class Wal:
    """One for each writer, used only by the thread that has its connection."""

    def __init__(self, path: str, thread: Connected) -> None:
        self._path = path
        self._thread = thread
        #: Transactions committed, also for tests of the group commit and for `watch`.
        self.transactions = 0
        self.until_look = CHECKPOINT_LOOK_TRANSACTIONS
        #: The transactions there had been at the last look, and the pages there were to copy.
        self._looked_at = (0, 0)
        #: Whether commits are synced and room for them may be of use.
        self._wants_room = False

    def adopted(self, session: Session) -> None:
        # No checkpoints by SQLite itself, within whichever commit happens to fill the WAL. And not by a hook at the end
        # of each commit either: that would need the GIL.
        session.connection.wal_autocheckpoint(0)
        self._wants_room = session.value(SQL["synchronous"]) >= _SYNC_FULL

    def count_transaction(self, changes: int) -> None:
        self.transactions += 1
        self.until_look -= 1 + changes // CHECKPOINT_LOOK_CHANGES

    def look(self) -> bool:
        """Copy the WAL into the database if it is far too long. Whether to do that when there is nothing else to do."""
        self.until_look = CHECKPOINT_LOOK_TRANSACTIONS
        if self._thread.session is not None and self._wants_room:
            self.preallocate(self._thread.session)
        session = self._thread.session  # that may have given the connection up (tests/stores/test_sqlite_room.py)
        if session is None:
            return False
        pages = self._pages_to_copy(session)
        self.until_look = self._next_look(pages)
        if pages >= CHECKPOINT_PAGES * CHECKPOINT_PUT_OFF_FACTOR:
            self.checkpoint(SQL["checkpoint"])
            return False
        return pages >= CHECKPOINT_PAGES

    def _next_look(self, pages: int) -> int:
        """After how many transactions to look again, by what the last ones wrote."""
        (transactions, before), self._looked_at = self._looked_at, (self.transactions, pages)
        written, usual = pages - before, CHECKPOINT_LOOK_TRANSACTIONS
        if written <= 0:  # they were copied in between, by us or by another process: it does not tell how many came
            return usual
        factor = int((CHECKPOINT_PAGES - pages) * (self.transactions - transactions) / written / usual)
        return usual * min(max(1, factor), CHECKPOINT_LOOK_FACTOR_MAX)

    def _pages_to_copy(self, session: Session) -> int:
        try:
            found = session.row(SQL["wal_pages"])
        except apsw.Error:
            return 0
        if found is None:
            return 0
        _, pages, copied = found
        return int(pages - copied)

    def preallocate(self, session: Session) -> None:
        """Let the WAL have the length that it is going to have, once this process has shown that it writes a lot.

        Syncing a file that has grown writes its new length and its blocks to the file system's own journal, which takes
        longer than the data (docs/why/performance.md). So a large row is written and taken back: SQLite puts what does
        not fit its cache into the WAL, and later commits overwrite it. Only for speed: a failure changes nothing.
        """
        try:
            if os.path.getsize(self._path + "-wal") >= CHECKPOINT_PAGES * _FRAME_BYTES:
                return
        except OSError:
            return
        try:
            self._thread.wait_for_locks(session, 0)
            session.execute(SQL["small_cache"])
            session.execute(SQL["begin"])
            session.execute(SQL["add_scratch_table"])
            session.execute(SQL["fill_scratch_table"], ((CHECKPOINT_PAGES + ROOM_EXTRA_PAGES) * _PAGE_BYTES,))
            session.execute(SQL["rollback"])
        except apsw.Error as error:
            # If another process was writing, there will be another look.
            self._wants_room = isinstance(error, apsw.BusyError)
            log.debug("the WAL of %s grows as it is used: %s", self._path, error)
            self._thread.recover(error)
        if self._thread.session is session:  # not if that had to give the connection up
            session.execute(SQL["usual_cache"])

    def checkpoint(self, statement: str) -> None:
        """Copy the WAL into the database, in one of the ways of `queries.sql`."""
        try:
            if self._thread.session is not None:
                self._thread.session.execute(statement)
        except apsw.Error as error:
            log.debug("the WAL of %s stays for now: %s", self._path, error)
