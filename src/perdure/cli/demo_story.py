"""The run of the demo: a shop that takes orders, and two workers, the first of which does not live to the end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import apsw

from perdure.cli.demo_evidence import Evidence, Snapshot, count_states, executions_of, read_traces, snapshot
from perdure.cli.demo_processes import PATIENCE_SECONDS, WorkerProcess, traces_of
from perdure.cli.demo_shop import Shop, Tell
from perdure.engine.engine import Engine

#: What the kill wants to find at least; it comes at the first moment that has all of it.
MIX = {"done": 2, "in a step": 2, "asleep": 2, "waiting for Approved": 2}


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
        executions=executions_of(read_traces(traces_of(directory))),
        integrity=integrity_of(directory / "orders.db"),
        **facts,
    )


async def _story(directory: Path, shop: Shop, workers: list[WorkerProcess], tell: Tell) -> dict[str, Any]:
    first = await WorkerProcess.start(directory, 1, str(directory / "orders.db"))
    workers.append(first)
    await first.wait_ready()
    tell("worker 1 is up", pid=first.pid)
    business = asyncio.create_task(shop.open_for_business())
    tell("the shop is open", orders=len(shop.orders))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await _until_mixed(shop, traces_of(directory), business)

    killed = await first.kill()
    at_kill: Snapshot = snapshot(await shop.views(), await shop.histories())
    tell("kill -9 worker 1", found=count_states(at_kill.states.values()))
    early = min(shop.late)
    await shop.approve(early)
    tell("an approval is sent while no worker lives", order=early)

    second = await WorkerProcess.start(directory, 2, str(directory / "orders.db"))
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
