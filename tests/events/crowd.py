"""Processes that publish to many waiting runs, and die on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

from events.published_kinds import Job, News
from perdure import Engine
from perdure.store.base import Turn
from perdure.store.sqlite import SQLiteStore


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive after SIGKILL")


class DyingStore(SQLiteStore):
    """Dies before or after the chosen call of `publish`, `spread`, or commit of a record that receives an event."""

    def __init__(self, path: str, point: str, number: int, before: bool) -> None:
        super().__init__(path)
        self._dying = (point, before)
        self._left = number

    def _reached(self, point: str, before: bool, by: int = 1) -> None:
        if self._dying == (point, before):
            self._left -= by
            if self._left <= 0:
                die()

    async def publish(self, *args: Any) -> Any:
        self._reached("publish", True)
        result = await super().publish(*args)
        self._reached("publish", False)
        return result

    async def spread(self, *args: Any) -> Any:
        self._reached("spread", True)
        result = await super().spread(*args)
        self._reached("spread", False, by=bool(result.deliveries))
        return result

    def commit(self, turns: Sequence[Turn]) -> Any:
        received = sum(entry.row.kind == "event_received" for turn in turns for entry in turn.entries)
        if received:
            self._reached("receive", True, received)
        done = super().commit(turns)
        if received:
            done.add_done_callback(lambda _: self._reached("receive", False, received))
        return done


async def publish_and_die(database: str, kind: str, point: str, number: str, before: str) -> None:
    store = DyingStore(database, point, int(number), before == "True")
    async with Engine(store, sweep_interval=0.02) as engine:
        await engine.publish(News(1) if kind == "news" else Job(1), key="first")
        print("published", flush=True)
        await engine.result("never")
