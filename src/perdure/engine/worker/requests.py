"""What a worker asks of its sweep (`engine.sweep`) besides the usual round."""

from __future__ import annotations

import asyncio

from perdure.store.model import RunKey


class SweepRequests:
    """Requests of a worker to its sweep, which alone reads runs from the store: loading and reading news in turns is
    what makes sure that no item falls between the two."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        #: Items up to this id were told by the store's news. Moved by the sweep.
        self.cursor = 0
        #: Whether a published event may not have reached everybody yet.
        self.spread = False
        #: Runs stored as this worker's that may not be in its memory. In the order in which they were named, so a
        #: dictionary: a set of texts has another order in every process, and a simulated world could not be repeated.
        self.adopt: dict[str, None] = {}
        #: Runs that were told of an item while one before it is missing.
        self.reread: set[RunKey] = set()
        #: Where news have to be read from once more: what was told since then may be for runs that were not in memory.
        self.missed_since: int | None = None

    def claim(self) -> None:
        self.wake.set()

    def spread_published(self) -> None:
        self.spread = True
        self.wake.set()

    def adopt_run(self, run_id: str) -> None:
        self.adopt[run_id] = None
        self.wake.set()

    def reread_news(self, since: int) -> None:
        self.missed_since = since if self.missed_since is None else min(since, self.missed_since)
        self.wake.set()

    def reread_inbox(self, key: RunKey) -> None:
        self.reread.add(key)
        self.wake.set()
