"""The client of the demo: takes orders, approves them, and looks at what becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

from perdure.admin.views import HistoryEntry, RunView
from perdure.cli.demo_evidence import executions_of, read_traces, state_of
from perdure.cli.demo_orders import Approved, expected_result, fulfil
from perdure.engine.engine import Engine
from perdure.store.model import TERMINAL, Status

#: Between two orders, and for all of them together: many are under way at once, and more do not take longer.
ORDER_SECONDS_MAX = 0.3
ORDERS_SECONDS_MAX = 3.6
#: From the order to its approval.
APPROVAL_SECONDS = 0.6
#: One order in so many is approved only after a kill, so that some wait for their event when it comes.
LATE_EVERY = 4

Tell = Callable[..., None]


class Shop:
    """The client: starts orders and approves them. Has no worker, and does not notice when one dies."""

    def __init__(self, engine: Engine, orders: int) -> None:
        self.engine = engine
        self.orders = [f"order-{number:02}" for number in range(1, orders + 1)]
        self.expected = {run: expected_result(run, self._cents(run), "ann") for run in self.orders}
        #: When each approval was durable.
        self.sent: dict[str, float] = {}
        self.late = set(self.orders[LATE_EVERY - 1 :: LATE_EVERY])

    def _cents(self, run: str) -> int:
        return 1_000 + int(run.rpartition("-")[2])

    async def open_for_business(self, orders: Sequence[str] | None = None, seconds: float | None = None) -> None:
        """Take an order every now and then (every so many seconds); approve most of them a moment later."""
        if seconds is None:
            seconds = min(ORDER_SECONDS_MAX, ORDERS_SECONDS_MAX / len(self.orders))
        async with asyncio.TaskGroup() as group:
            for run in self.orders if orders is None else orders:
                await self.engine.start(fulfil(run, self._cents(run)), id=run)
                if run not in self.late:
                    group.create_task(self._approve_soon(run))
                await asyncio.sleep(seconds)

    async def _approve_soon(self, run: str) -> None:
        await asyncio.sleep(APPROVAL_SECONDS)
        await self.approve(run)

    async def approve(self, run: str) -> None:
        await self.engine.send(run, Approved(by="ann"))
        self.sent[run] = time.time()

    # -- looking -----------------------------------------------------------------------------------------------

    async def views(self) -> list[RunView]:
        return await self.engine.list(limit=1_000)

    async def histories(self) -> dict[str, Sequence[HistoryEntry]]:
        return {view.id: await self.engine.admin.history(view.id) for view in await self.views()}

    async def mix(self, log: str) -> Counter[str]:
        """How many orders are in which state. A step counts only while its body is really running."""
        by_id = {view.id: view for view in await self.views()}
        counts: Counter[str] = Counter(state_of(view, by_id) for run, view in by_id.items() if "/" not in run)
        running = sum(one.end is None for one in executions_of(read_traces(log)))
        counts["in a step"] = min(counts["in a step"], running)
        return counts

    async def until_taken_over(self, pid: int) -> float:
        """When the worker with this pid had every run that has work to do.

        Those that only wait (for time, for an event) belong to nobody until there is something to do for them.
        """
        store = self.engine.store
        while True:
            owners = {one.id for one in await store.workers() if one.pid == pid}
            rows = [await self.engine.admin.row(view.id) for view in await self.views() if not view.status.terminal]
            idle = (Status.WAITING, *TERMINAL)
            if owners and all(row.owner in owners or (row.owner is None and row.status in idle) for row in rows):
                return time.time()
            await asyncio.sleep(0.005)
