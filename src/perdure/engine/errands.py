"""What a worker asks of its sweep (`engine.recovery`) besides the usual round."""

from __future__ import annotations

import asyncio

from perdure.store.base import RunKey


class Errands:
    """Requests of a worker to its sweep, which alone reads runs from the store: loading and reading news in turns is
    what makes sure that no item falls between the two."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        #: Whether a published event may not have reached everybody yet.
        self.spread = False
        #: Runs stored as this worker's that may not be in its memory.
        self.adopt: set[str] = set()
        #: Runs whose inbox may have been told of before they were in memory.
        self.reread: set[RunKey] = set()

    def claim(self) -> None:
        self.wake.set()

    def spread_published(self) -> None:
        self.spread = True
        self.wake.set()

    def adopt_run(self, run_id: str) -> None:
        self.adopt.add(run_id)
        self.wake.set()

    def reread_inbox(self, key: RunKey) -> None:
        self.reread.add(key)
        self.wake.set()
