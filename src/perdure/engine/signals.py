"""Who waits for the end of which run, in this process."""

from __future__ import annotations

import asyncio

from perdure.kernel.journal import Record


class Signals:
    """Futures of callers that wait for a run to end or park. Only hints: whoever is woken looks again."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[Record | None]]] = {}

    def wait(self, run_id: str) -> asyncio.Future[Record | None]:
        """Resolves with the run's last record if it ended here, with None if somebody should look at the store."""
        future: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(run_id, set())
        waiters.add(future)
        future.add_done_callback(lambda done: self._discard(run_id, done))
        return future

    def _discard(self, run_id: str, future: asyncio.Future[Record | None]) -> None:
        waiters = self._waiters.get(run_id)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._waiters[run_id]

    def ended(self, run_id: str, record: Record | None) -> None:
        for future in list(self._waiters.get(run_id, ())):
            if not future.done():
                future.set_result(record)

    def look_again(self) -> None:
        """Something changed in the store: everybody looks."""
        for run_id in list(self._waiters):
            self.ended(run_id, None)
