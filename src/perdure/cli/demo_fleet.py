"""The run of the demo: a shop that takes orders, and two workers, the first of which does not live to the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from perdure.admin.views import HistoryEntry, RunView
from perdure.cli.demo_evidence import Evidence, Snapshot, count_states, executions_of, read_traces, snapshot, state_of
from perdure.cli.demo_orders import LOG_VARIABLE, Approved, expected_result, fulfil
from perdure.engine.engine import Engine
from perdure.store.model import TERMINAL, Status

#: How long anything may take before the demo gives up and says so.
PATIENCE_SECONDS = 20.0
#: Between two orders, and for all of them together: many are under way at once, and more do not take longer.
ORDER_SECONDS_MAX = 0.3
ORDERS_SECONDS_MAX = 3.6
#: From the order to its approval.
APPROVAL_SECONDS = 0.6
#: One order in so many is approved only after the kill, so that some wait for their event when it comes.
LATE_EVERY = 4
#: What the kill wants to find at least; it comes at the first moment that has all of it.
MIX = {"done": 2, "in a step": 2, "asleep": 2, "waiting for Approved": 2}

Tell = Callable[..., None]


class WorkerProcess:
    """`perdure worker` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, began: float) -> None:
        self._process = process
        self._drain: asyncio.Task[bytes] | None = None
        self.began = began
        self.ready = 0.0

    @classmethod
    async def start(cls, directory: Path, number: int) -> WorkerProcess:
        began = time.time()
        with open(directory / f"worker-{number}.log", "wb") as log:  # noqa: ASYNC230  # a local file, once
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "perdure", "worker", "--json", "--app", "perdure.cli.demo_orders",
                "--store", str(directory / "orders.db"), "--name", f"worker-{number}",
                stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, LOG_VARIABLE: str(directory / "steps.log")},
            )  # fmt: skip
        return cls(process, began)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait_ready(self) -> None:
        stdout = self._process.stdout
        if stdout is None:
            raise RuntimeError("the worker has no output to read")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := await stdout.readline():
                if msgspec.json.decode(line).get("event") == "ready":
                    self.ready = time.time()
                    self._drain = asyncio.create_task(stdout.read())
                    return
        raise RuntimeError("a worker of the demo ended before it was ready; its log is beside the database")

    async def kill(self) -> float:
        """SIGKILL: no handler runs, nothing is flushed. Returns when it was sent."""
        at = time.time()
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        return at

    async def stop(self) -> int:
        """SIGTERM; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._process.wait()

    async def make_sure_it_is_gone(self) -> None:
        if self._process.returncode is None:
            await self.kill()
        if self._drain is not None:
            await self._drain


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

    async def open_for_business(self) -> None:
        """Take an order every now and then; approve most of them a moment later."""
        async with asyncio.TaskGroup() as group:
            for run in self.orders:
                await self.engine.start(fulfil(run, self._cents(run)), id=run)
                if run not in self.late:
                    group.create_task(self._approve_soon(run))
                await asyncio.sleep(min(ORDER_SECONDS_MAX, ORDERS_SECONDS_MAX / len(self.orders)))

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


async def perform(directory: Path, orders: int, tell: Tell) -> Evidence:
    """Everything that happens, from the first worker's start to the last look at the database."""
    workers: list[WorkerProcess] = []
    try:
        async with Engine(directory / "orders.db", worker=False) as engine:
            shop = Shop(engine, orders)
            facts = await _story(directory, shop, workers, tell)
            facts["histories"] = await shop.histories()
    finally:
        for worker in workers:
            await worker.make_sure_it_is_gone()
    return Evidence(
        expected=shop.expected,
        executions=executions_of(read_traces(str(directory / "steps.log"))),
        integrity=integrity_of(directory / "orders.db"),
        **facts,
    )


async def _story(directory: Path, shop: Shop, workers: list[WorkerProcess], tell: Tell) -> dict[str, Any]:
    first = await WorkerProcess.start(directory, 1)
    workers.append(first)
    await first.wait_ready()
    tell("worker 1 is up", pid=first.pid)
    business = asyncio.create_task(shop.open_for_business())
    tell("the shop is open", orders=len(shop.orders))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await _until_mixed(shop, str(directory / "steps.log"), business)

    killed = await first.kill()
    at_kill: Snapshot = snapshot(await shop.views(), await shop.histories())
    tell("kill -9 worker 1", found=count_states(at_kill.states.values()))
    early = min(shop.late)
    await shop.approve(early)
    tell("an approval is sent while no worker lives", order=early)

    second = await WorkerProcess.start(directory, 2)
    workers.append(second)
    taking_over = asyncio.create_task(shop.until_taken_over(second.pid))
    await second.wait_ready()
    async with asyncio.timeout(PATIENCE_SECONDS):
        taken_over = await taking_over
        tell("worker 2 has taken over", pid=second.pid, seconds=round(taken_over - killed, 2))
        await business
        for run in sorted(shop.late - {early}):
            await shop.approve(run)
        tell("the late approvals are sent", orders=len(shop.late) - 1)
        results = {run: await shop.engine.result(run) for run in shop.orders}
    finished = time.time()
    tell("every order has ended", orders=len(results))
    return {
        "results": results,
        "at_kill": at_kill,
        "pids": (first.pid, second.pid),
        "first_ready": first.ready,
        "killed": killed,
        "second_began": second.began,
        "second_ready": second.ready,
        "taken_over": taken_over,
        "sent_meanwhile": [run for run, at in sorted(shop.sent.items()) if killed < at < second.ready],
        "finished": finished,
        "drained_with": await second.stop(),
    }


async def _until_mixed(shop: Shop, log: str, business: asyncio.Task[None]) -> None:
    """Wait for a good moment to kill: some orders done, some in a step, some asleep, some waiting.

    If a slow machine never has all of that at once, the kill comes during some step once the last order is taken
    and half of them are done; the report says what it found.
    """
    wanted = {state: min(count, len(shop.orders) // 6 or 1) for state, count in MIX.items()}
    while True:
        mix = await shop.mix(log)
        if all(mix[state] >= count for state, count in wanted.items()):
            return
        if business.done() and (mix["done"] >= len(shop.orders) // 2) and mix["in a step"]:
            return
        await asyncio.sleep(0.01)


def integrity_of(path: Path) -> str:
    connection = apsw.Connection(str(path))
    try:
        return ", ".join(str(row[0]) for row in connection.execute("PRAGMA integrity_check"))
    finally:
        connection.close()
