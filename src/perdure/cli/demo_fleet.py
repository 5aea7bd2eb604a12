"""The run of `perdure demo --fleet`: three workers on PostgreSQL. One is killed, one stands still for too long.

orders 1    all three work; the one that is in the middle of most gets SIGKILL; the others take over
orders 2    of the two that are left, one gets SIGSTOP and keeps its connections; after its lease the last one has
            its runs; then it gets SIGCONT, in the middle of steps that another one has finished meanwhile
orders 3    it serves again, under another id
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from perdure.admin.views import HistoryEntry
from perdure.cli.demo_evidence import Execution, count_states, executions_of, read_traces, recorded_steps, state_of
from perdure.cli.demo_fleet_evidence import TERMS, Fall, FleetEvidence
from perdure.cli.demo_owners import Owners
from perdure.cli.demo_processes import PATIENCE_SECONDS, WorkerProcess, traces_of
from perdure.cli.demo_shop import Shop, Tell
from perdure.engine.engine import Engine
from perdure.errors import BadArgument
from perdure.store import open_store
from perdure.store.model import RunRow, Status

T = TypeVar("T")

WORKERS = 3
#: Between two orders.
ORDER_SECONDS = 0.2
#: Parts of all orders that are taken before the kill and before the stop; the rest comes at the end.
BEFORE_KILL, BEFORE_STOP = 0.5, 0.35
#: A signal comes in the middle: in so many steps, each begun no longer ago than that (they take 0.25 to 0.5 s).
STEPS_UNDER_WAY, FRESH_SECONDS = 2, 0.15
#: After so long of waiting for that moment, one such step will do.
CHOOSY_SECONDS = 2.0
#: From the first of some orders to the signal, at least: so that the picture shows who has them before.
QUIET_SECONDS = 1.0
#: Workers are told by the environment, like all settings.
SETTINGS = {"PERDURE_LEASE": str(TERMS.lease), "PERDURE_HEARTBEAT": str(TERMS.heartbeat)}


def with_own_schema(url: str) -> str:
    """The URL with a schema that nothing else is in. Raises `BadArgument`."""
    open_store(url)  # says what is wrong with it, or that psycopg is missing; opens nothing
    from perdure.store.postgres.url import parse

    if re.search(r"[?&]schema=", url):
        raise BadArgument("the demo makes a schema of its own and drops it: leave schema= out of the URL.")
    name = f"perdure_demo_{secrets.token_hex(4)}"
    full = f"{url}{'&' if '?' in url else '?'}schema={name}"
    if parse(full).schema != name:
        raise BadArgument("no schema can be added to this URL: percent-encode each ? in its password as %3F.")
    return full


async def perform(directory: Path, url: str, orders: int, tell: Tell) -> FleetEvidence:
    """Everything that happens, from the first worker's start to the last look at the journals."""
    workers: list[WorkerProcess] = []
    try:
        async with Engine(open_store(url), worker=False) as engine:
            story = Story(directory, Shop(engine, orders), tell)
            try:
                return await story.tell_all(url, workers)
            finally:
                await story.end()
    finally:
        for worker in workers:
            await worker.make_sure_it_is_gone()


def _has(run: str, rows: Mapping[str, RunRow]) -> bool:
    return run in rows


class Story:
    """See the module docstring."""

    def __init__(self, directory: Path, shop: Shop, tell: Tell) -> None:
        self._directory = directory
        self._shop = shop
        self._tell = tell
        self._pids: dict[int, int] = {}
        self._owners = Owners(shop.engine.store, self._pids)
        self._looking: asyncio.Task[None] | None = None

    async def end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def tell_all(self, url: str, workers: list[WorkerProcess]) -> FleetEvidence:
        shop, total = self._shop, len(self._shop.orders)
        first, second = round(total * BEFORE_KILL), round(total * (BEFORE_KILL + BEFORE_STOP))
        await self._start(url, workers)
        alive = list(workers)

        killed, sent = await self._with_orders(shop.orders[:first], self._kill(alive))
        stopped, victim = await self._with_orders(shop.orders[first:second], self._stop(alive))
        before = await self._histories_of(stopped.runs)
        continued, back, new_ids = await self._go_on(victim, stopped)
        await self._with_orders(shop.orders[second:], self._approve_the_late())
        async with asyncio.timeout(PATIENCE_SECONDS):
            results = {run: await shop.engine.result(run) for run in shop.orders}
        finished = time.time()
        self._tell("every order has ended", orders=len(results))
        await self._owners.look()
        drained = {worker.number: await worker.stop() for worker in alive}
        return FleetEvidence(
            expected=shop.expected,
            results=results,
            histories=await shop.histories(),
            executions=executions_of(read_traces(traces_of(self._directory))),
            holdings=self._owners.holdings(),
            numbers=dict(self._owners.numbers),
            ready={worker.number: worker.ready for worker in workers},
            killed=killed,
            stopped=stopped,
            continued=continued,
            before=before,
            back=back,
            new_ids=new_ids,
            said=next((line for line in reversed(victim.said) if "new id" in line), "nothing"),
            sent_to_the_dead=sent,
            finished=finished,
            drained_with=drained,
        )

    # -- what happens ------------------------------------------------------------------------------------------

    async def _start(self, url: str, workers: list[WorkerProcess]) -> None:
        for number in range(1, WORKERS + 1):
            workers.append(await WorkerProcess.start(self._directory, number, url, SETTINGS))
        for worker in workers:
            await worker.wait_ready()
            self._pids[worker.pid] = worker.number
        self._looking = asyncio.create_task(self._owners.keep_looking())
        self._tell("three workers are up", pids=[worker.pid for worker in workers])

    async def _with_orders(self, orders: Sequence[str], act: Coroutine[None, None, T]) -> T:
        """Take these orders, and let something happen meanwhile."""
        self._tell(f"orders {orders[0].removeprefix('order-')} to {orders[-1].removeprefix('order-')} come in")
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(self._shop.open_for_business(orders, ORDER_SECONDS))
            acting = group.create_task(act)
        return acting.result()

    async def _kill(self, alive: list[WorkerProcess]) -> tuple[Fall, str | None]:
        worker = await self._in_the_middle(alive)
        alive.remove(worker)
        fall = await self._fall(worker, "SIGKILL", await worker.kill())
        self._tell(f"kill -9 worker {worker.number}", runs=len(fall.runs), found=count_states(fall.states.values()))
        waiting = [
            run for run, state in fall.states.items() if state == "waiting for Approved" and run in self._shop.late
        ]
        for run in waiting[:1]:
            await self._shop.approve(run)
            self._tell("an approval is sent to a run of the dead worker", order=run)
        await self._until_taken_over(fall)
        return fall, waiting[0] if waiting else None

    async def _stop(self, alive: list[WorkerProcess]) -> tuple[Fall, WorkerProcess]:
        worker = await self._in_the_middle(alive)
        fall = await self._fall(worker, "SIGSTOP", await worker.suspend())
        self._tell(f"kill -STOP worker {worker.number}", runs=len(fall.runs), found=count_states(fall.states.values()))
        await self._until_taken_over(fall)
        wanted = {one.place for one in fall.cut_off(self._executions())}
        while True:
            if wanted <= set(recorded_steps(await self._histories_of(fall.runs))):
                self._tell("what it was doing was done by another one", steps=len(wanted))
                return fall, worker
            await asyncio.sleep(0.02)

    async def _go_on(self, worker: WorkerProcess, fall: Fall) -> tuple[float, float, frozenset[str]]:
        continued = worker.go_on()
        self._tell(f"kill -CONT worker {worker.number}")
        async with asyncio.timeout(PATIENCE_SECONDS):
            back = await self._owners.until(lambda _: bool(self._owners.ids_of(worker.number) - fall.ids))
        self._tell("it has noticed, and has a new id", seconds=round(back - continued, 2))
        return continued, back, self._owners.ids_of(worker.number) - fall.ids

    async def _approve_the_late(self) -> None:
        late = sorted(self._shop.late - set(self._shop.sent))
        for run in late:
            await self._owners.until(partial(_has, run))  # its order may still have to come in
            await self._shop.approve(run)
        self._tell("the late approvals are sent", orders=len(late))

    # -- looking -----------------------------------------------------------------------------------------------

    async def _in_the_middle(self, alive: Sequence[WorkerProcess]) -> WorkerProcess:
        """The worker that is in the middle of most, at a moment when that is enough."""
        await asyncio.sleep(QUIET_SECONDS)
        began = time.time()
        while True:
            now = time.time()
            fresh = Counter(
                one.pid for one in self._executions() if one.end is None and now - one.begin < FRESH_SECONDS
            )
            busiest = max(alive, key=lambda worker: fresh[worker.pid])
            if fresh[busiest.pid] >= (STEPS_UNDER_WAY if now - began < CHOOSY_SECONDS else 1):
                return busiest
            await asyncio.sleep(0.01)

    async def _fall(self, worker: WorkerProcess, signal: Literal["SIGKILL", "SIGSTOP"], at: float) -> Fall:
        rows = await self._owners.look()
        seen = time.time()
        ids = self._owners.ids_of(worker.number)
        held = {run: row for run, row in rows.items() if row.owner in ids and not row.status.terminal}
        by_id = {view.id: view for view in await self._shop.views()}
        return Fall(
            number=worker.number,
            pid=worker.pid,
            signal=signal,
            at=at,
            seen=seen,
            ids=ids,
            runs=frozenset(held),
            busy=frozenset(run for run, row in held.items() if row.status is not Status.WAITING),
            states={run: state_of(by_id[run], by_id) for run in sorted(held) if "/" not in run},
            recorded=frozenset(recorded_steps(await self._histories_of(held))),
        )

    async def _until_taken_over(self, fall: Fall) -> None:
        def is_over(rows: Mapping[str, RunRow]) -> bool:
            is_free = all(rows[run].owner not in fall.ids for run in fall.runs)
            return is_free and fall.busy <= set(fall.taken(self._owners.holdings()))

        await self._owners.until(is_over)
        holdings = self._owners.holdings()
        whose = Counter(self._owners.numbers[owner] for _, owner in fall.taken(holdings).values() if owner is not None)
        shares = ", ".join(f"{count} by worker {number}" for number, count in sorted(whose.items()))
        latest = max(fall.freed(holdings).values(), default=0.0)
        self._tell("its runs were taken over", after=f"{latest:.2f} s", runs=shares)

    def _executions(self) -> list[Execution]:
        return executions_of(read_traces(traces_of(self._directory)))

    async def _histories_of(self, runs: Iterable[str]) -> dict[str, Sequence[HistoryEntry]]:
        return {run: await self._shop.engine.admin.history(run) for run in runs}
