"""Who waits for the end of which run, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.kernel.journal import Record


class Signals:
    """Futures of callers that wait for a run to end, park, or leave this process. One that is woken with None looks at
    the store again."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[Record | None]]] = {}

    def wait(self, run_id: str) -> asyncio.Future[Record | None]:
        """Resolves with the run's last record if it ended here, with None if somebody should look at the store."""
        future: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(run_id, set()).add(future)
        return future

    def count(self, run_id: str | None = None) -> int:
        """How many callers wait: for a run, or for any."""
        return sum(len(futures) for waited_for, futures in self._waiters.items() if run_id in (None, waited_for))

    def forget(self, run_id: str, future: asyncio.Future[Record | None]) -> None:
        """The caller no longer waits."""
        waiters = self._waiters.get(run_id)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._waiters[run_id]

    def ended(self, run_id: str, record: Record | None) -> None:
        for future in list(self._waiters.get(run_id, ())):
            if not future.done():
                future.set_result(record)

    def refuse_all(self, error_of: Callable[[str], Exception]) -> bool:
        """Tell every caller that what it waits for will never come. False if nobody waits."""
        waiting = [(run_id, one) for run_id, futures in self._waiters.items() for one in futures if not one.done()]
        for run_id, future in waiting:
            future.set_exception(error_of(run_id))
        return bool(waiting)

    def look_again(self) -> None:
        for run_id in list(self._waiters):
            self.ended(run_id, None)
