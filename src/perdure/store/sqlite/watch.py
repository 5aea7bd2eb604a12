"""Noticing what other processes did to the file: a look at one integer, some twenty times a second."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import apsw

from perdure.errors import PerdureError, StoreError
from perdure.limits import POLL_SECONDS_DEFAULT
from perdure.store.sqlite.presence import Presence
from perdure.store.sqlite.queries import SQL
from perdure.store.sqlite.session import Session

_DATA_VERSION = SQL["data_version"]


class Watch:
    """Calls back when another connection than our writer has committed. Only a hint, never missed for long.

    A connection of its own sees every commit, our writer's too. When the writer was busy since the last look,
    the writer's own connection is asked as well: there the number changes only for commits of others.
    """

    def __init__(
        self,
        connect: Callable[[], Session],
        callback: Callable[[], None],
        presence: Presence,
        own_commits: Callable[[], int],
        ask_writer: Callable[[], Awaitable[int]],
    ) -> None:
        self._connect = connect
        self.session: Session | None = None
        self._stopped = False
        #: Held by the thread that uses the connection just now.
        self.using = threading.Lock()
        self._callback = callback
        self._presence = presence
        self._own_commits = own_commits
        self._ask_writer = ask_writer
        self._loop = asyncio.get_running_loop()
        self._seen = self._look()
        self._seen_by_writer: int | None = None
        self._commits = own_commits()
        self._asking: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(POLL_SECONDS_DEFAULT, self._tick)

    def stop(self) -> None:
        """May be called twice, also after the loop is closed."""
        self._timer.cancel()
        if self._asking is not None and not self._loop.is_closed():  # a loop that is closed has no more turns to end it
            self._asking.cancel()
        self._asking = None
        self._stopped = True
        with self.using:
            self.drop()

    def drop(self) -> None:
        """Close the connection; the next look opens another."""
        session, self.session = self.session, None
        if session is not None:
            with self._presence.closing():
                session.close()

    def _look(self) -> int | None:
        # Without waiting: the holder of the connection is about to replace it.
        if not self.using.acquire(blocking=False):
            return None
        try:
            self._presence.check()  # so that those who wait for something else hear of it soon
            if self.session is None:
                self.session = self._connect()
                self._presence.opened()
            version: int | None = self.session.value(_DATA_VERSION)
            return version
        except (apsw.Error, StoreError):
            return None  # unreadable just now: counts as a change, and the real calls will say what is wrong
        finally:
            self.using.release()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = self._loop.call_later(POLL_SECONDS_DEFAULT, self._tick)
        version, commits = self._look(), self._own_commits()
        if version == self._seen and version is not None:
            return
        busy, self._seen, self._commits = commits != self._commits, version, commits
        if not busy:
            self._callback()
        elif self._asking is None or self._asking.done():  # done: cancelled by a stranger before it began
            self._asking = self._loop.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            version = await self._ask_writer()
        except PerdureError:
            return
        finally:
            self._asking = None
        if version != self._seen_by_writer and not self._stopped:
            self._seen_by_writer = version
            self._callback()
