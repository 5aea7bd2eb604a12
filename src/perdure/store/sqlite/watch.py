"""Noticing what other processes did to the file: a look at one integer, some twenty times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import apsw

from perdure.errors import PerdureError
from perdure.limits import POLL_SECONDS_DEFAULT
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
        session: Session,
        callback: Callable[[], None],
        own_commits: Callable[[], int],
        ask_writer: Callable[[], Awaitable[int]],
    ) -> None:
        self.session: Session | None = session
        self._callback = callback
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
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if self.session is not None:
            self.session.close()
            self.session = None

    def _look(self) -> int | None:
        try:
            return None if self.session is None else self.session.value(_DATA_VERSION)
        except apsw.Error:
            return None  # unreadable just now: counts as a change, and the real calls will say what is wrong

    def _tick(self) -> None:
        if self.session is None:
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
        if version != self._seen_by_writer and self.session is not None:
            self._seen_by_writer = version
            self._callback()
