"""Telling event loops that something has changed. Only a hint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Watchers:
    """The callbacks of a store, each called on its own loop."""

    def __init__(self) -> None:
        self._watchers: dict[int, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}
        self._last = 0
        self._hinted: set[int] = set()

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Returns the function that stops it."""
        self._last += 1
        number = self._last
        self._watchers[number] = (asyncio.get_running_loop(), callback)

        def stop() -> None:
            self._watchers.pop(number, None)

        return stop

    def hint(self) -> None:
        """Schedule every watcher once, however many changes come before its loop gets to it."""
        for number, (loop, _) in list(self._watchers.items()):
            if number in self._hinted:
                continue
            self._hinted.add(number)
            try:
                loop.call_soon_threadsafe(self._call, number)
            except RuntimeError:  # its loop is closed: nobody is left to be told
                self._watchers.pop(number, None)

    def _call(self, number: int) -> None:
        self._hinted.discard(number)
        watcher = self._watchers.get(number)
        if watcher is not None:
            watcher[1]()
