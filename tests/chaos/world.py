"""A fleet under fire: worker processes, clients, and a server of their own, with a proxy in between for each of them.

`simulate`'s cousin in the real world: `live(plan)` carries a plan of faults out while users start and feed runs, heals
everything, waits until all runs have ended, and lets the oracle judge.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg

from chaos.clients import Clients, draw_flows
from chaos.oracle import Oracle, Verdict, deadlocks_in, judge_logs
from chaos.plan import WORKERS, Fault, Plan
from chaos.server import OwnServer
from perdure import Engine
from perdure.store.postgres import PostgresStore
from support.processes import TESTS
from support.proxy import Proxy

_SCHEMA = "chaos"
#: Engines without workers, that the clients use.
_CLIENTS = 2
#: How long a fleet that is left alone may need until everything has ended.
_REST_SECONDS = 120.0


class WorkerProcess:
    """A worker that is started again whenever it was killed."""

    def __init__(self, number: int, url: str, folder: Path, lease: float) -> None:
        self.name = f"worker-{number}"
        self._arguments = [url, self.name, str(folder), str(lease)]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._lives = 0

    def start(self) -> None:
        """Unless it lives: it may have been killed twice, and is to be started twice."""
        if self.is_alive:
            return
        self._lives += 1
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
        with self.log(self._lives).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "support.child", "chaos.worker:serve", *self._arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=TESTS,
            )  # fmt: skip

    def log(self, life: int) -> Path:
        return self._folder / f"log-{self.name}-{life}.txt"

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None


class World:
    """Everything of one seed. Use it in `async with`."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._rng = random.Random(plan.seed)
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-chaos-", dir="/dev/shm" if _has_room() else None))
        self._stack = contextlib.ExitStack()
        self._server = OwnServer()
        self._proxies: list[Proxy] = []
        self._workers: list[WorkerProcess] = []
        self._engines: list[Engine] = []
        self._ends: list[asyncio.Task[None]] = []
        self._begun: Counter[str] = Counter()

    async def __aenter__(self) -> World:
        self._stack.enter_context(self._server)
        for _ in range(WORKERS + 1):
            self._proxies.append(self._stack.enter_context(Proxy(("127.0.0.1", self._server.port))))
        for _ in range(_CLIENTS):
            engine = Engine(PostgresStore(self._url(WORKERS) + "&application_name=client"), worker=False)
            await engine.open()
            self._engines.append(engine)
        for number in range(WORKERS):
            worker = WorkerProcess(number, self._url(number), self._folder, self._plan.lease)
            self._stack.callback(worker.kill)
            self._workers.append(worker)
            worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._ends:
            task.cancel()
        for engine in self._engines:
            with contextlib.suppress(Exception):
                await engine.close()
        self._stack.close()

    def _url(self, number: int) -> str:
        return self._server.url(self._proxies[number].port, _SCHEMA)

    # -- life ----------------------------------------------------------------------------------------------------

    async def live(self) -> Verdict:
        """Raises nothing for what the fleet does wrong: it is in the verdict."""
        clients = Clients(self._engines, self._rng)
        flows = [
            asyncio.create_task(self._later(self._moment(), flow, clients, name))
            for flow, name in draw_flows(self._rng, self._plan.runs)
        ]
        await self._carry_out_plan()
        await self._heal()
        healed = time.monotonic()
        done, waiting = await asyncio.wait(flows, timeout=_REST_SECONDS)
        rested = time.monotonic() - healed
        verdict = Verdict()
        for task in done:
            if (error := task.exception()) is not None:
                verdict.require(False, f"a client failed: {type(error).__name__}: {error}")
        if waiting:
            await self._explain(verdict, len(waiting))
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
        else:
            verdict = await self._judge(clients, verdict)
        verdict.wrong += clients.told.wrong
        self._count(verdict, clients, rested)
        return verdict

    def _moment(self) -> float:
        """When a client begins: half of them about when something goes wrong, so that it hits them early."""
        last = 0.85 * self._plan.seconds
        if self._rng.random() < 0.5:
            at = self._rng.choice(self._plan.faults).at + self._rng.uniform(-1.0, 0.3)
            return min(max(0.0, at), last)
        return self._rng.uniform(0, last)

    async def _later(self, seconds: float, flow: Callable[[Clients, str], Any], clients: Clients, name: str) -> None:
        await asyncio.sleep(seconds)
        await flow(clients, name)

    async def _judge(self, clients: Clients, verdict: Verdict) -> Verdict:
        oracle: Oracle | None = None
        # Once more if something is left: the fleet may be about to tidy it up.
        for _ in range(20):
            with self._server.admin() as connection:
                oracle = Oracle(connection, _SCHEMA, clients.told, self._folder)
                oracle.verdict.wrong += verdict.wrong
                found = oracle.judge()
            if not found.wrong:
                break
            await asyncio.sleep(1.0)
        assert oracle is not None
        logs = [(path.stem, path.read_text(errors="replace")) for path in sorted(self._folder.glob("log-*.txt"))]
        judge_logs(oracle.verdict, logs, len(self._plan.faults))
        return oracle.verdict

    def _count(self, verdict: Verdict, clients: Clients, rested: float) -> None:
        verdict.figures["deadlocks that the server ended"] = deadlocks_in(self._server.log())
        verdict.figures["errors that clients saw"] = clients.told.errors.total()
        verdict.figures["ms until all had ended, after the faults"] = round(rested * 1_000)
        for proxy in self._proxies:
            for what, count in proxy.done.items():
                verdict.figures[f"connections {what}"] += count
        for what, count in clients.told.errors.most_common(12):
            self._say(f"    {count} x {what}")

    async def _explain(self, verdict: Verdict, count: int) -> None:
        """Why it does not come to rest."""
        verdict.require(False, f"oracle 1: {count} clients still wait {_REST_SECONDS:g} s after the last fault")
        with contextlib.suppress(Exception), self._server.admin() as connection:
            rows = connection.execute(
                f"SELECT id, status, owner, ready_at, recoveries, reason FROM {_SCHEMA}.runs WHERE outcome IS NULL "
                "ORDER BY key LIMIT 10"
            ).fetchall()
            for row in rows:
                verdict.wrong.append(f"    {row}")
        with contextlib.suppress(Exception):
            for row in rows[:3]:
                reason = await asyncio.wait_for(self._engines[0].admin.why(row[0]), 10)
                verdict.wrong.append(f"    {row[0]}: {reason.text}")

    # -- faults --------------------------------------------------------------------------------------------------

    async def _carry_out_plan(self) -> None:
        began = time.monotonic()
        for fault in self._plan.faults:
            await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
            self._ends = [task for task in self._ends if not task.done()]
            await self._begin(fault)
        await asyncio.sleep(max(0.0, began + self._plan.seconds - time.monotonic()))

    def _hit(self, fault: Fault) -> list[Proxy]:
        return self._proxies if fault.whom < 0 else [self._proxies[fault.whom]]

    async def _begin(self, fault: Fault) -> None:
        self._begun[fault.kind] += 1
        proxies = self._hit(fault)
        match fault.kind:
            case "kill":
                self._workers[fault.whom].kill()
                self._afterwards(fault.seconds, self._workers[fault.whom].start)
            case "stop":
                worker = self._workers[fault.whom]
                worker.signal(signal.SIGSTOP)
                self._afterwards(fault.seconds, lambda: worker.signal(signal.SIGCONT))
            case "restart":
                await asyncio.to_thread(self._server.restart, "immediate")
                for proxy in self._proxies:
                    proxy.target = ("127.0.0.1", self._server.port)
            case "terminate":
                name = "%" if fault.whom < 0 else "client%" if fault.whom == WORKERS else f"worker-{fault.whom}%"
                await self._outside(lambda: self._server.end_sessions(name))
            case "cancel":
                await self._outside(self._server.cancel_statements)
            case "cut":
                for proxy in proxies:
                    proxy.cut_all()
            case "cut before commits":
                for proxy in proxies:
                    proxy.cut_before_commits(fault.count)
            case "cut after commits":
                for proxy in proxies:
                    proxy.cut_after_commits(fault.count)
            case "mute":
                for proxy in proxies:
                    proxy.mute_all()
            case "stop a backend" | "lock":
                await self._outside(lambda: self._hold_up(fault))
            case _:
                self._harm_for_a_while(fault, proxies)

    def _harm_for_a_while(self, fault: Fault, proxies: list[Proxy]) -> None:
        for proxy in proxies:
            match fault.kind:
                case "silence":
                    proxy.silence()
                case "trickle":
                    proxy.be_slow(0.0, 7)
                case "slow":
                    proxy.be_slow(0.05)
                case "refuse":
                    proxy.refuse()
                case other:
                    raise ValueError(f"there is no fault {other!r}")
            self._afterwards(fault.seconds, proxy.heal)

    def _hold_up(self, fault: Fault) -> None:
        """On a thread: a process of the server stands still, or somebody locks all workers and some runs."""
        if fault.kind == "stop a backend":
            pids = self._server.backends("worker%")
            if pids:
                with self._server.stopped(self._rng.choice(pids)):
                    time.sleep(fault.seconds)
            return
        with psycopg.connect(self._server.admin_url) as connection:
            connection.execute(f"SELECT key FROM {_SCHEMA}.runs WHERE key % 10 = 0 FOR UPDATE")
            time.sleep(fault.seconds)

    async def _outside(self, what: Callable[[], object]) -> None:
        """The server may be gone just now: then this fault does nothing. What lasts goes on beside the next faults."""

        def carry_out() -> None:
            with contextlib.suppress(psycopg.Error):
                what()

        self._ends.append(asyncio.create_task(asyncio.to_thread(carry_out)))  # type: ignore[arg-type]
        await asyncio.sleep(0)

    def _afterwards(self, seconds: float, what: Callable[[], object]) -> None:
        async def end() -> None:
            await asyncio.sleep(seconds)
            what()

        self._ends.append(asyncio.create_task(end()))

    async def _heal(self) -> None:
        """All faults end, all workers live."""
        await asyncio.wait(self._ends, timeout=30) if self._ends else None
        for proxy in self._proxies:
            proxy.heal()
        for worker in self._workers:
            worker.signal(signal.SIGCONT)
            worker.start()

    def tail(self) -> str:
        """Where to look."""
        return f"logs and effects: {self._folder}"

    def tidy(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _has_room() -> bool:
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")
        return space.f_bavail * space.f_frsize > 200 << 20
    return False


@contextlib.asynccontextmanager
async def _world(plan: Plan, say: Callable[[str], None]) -> AsyncIterator[World]:
    async with World(plan, say) as world:
        yield world


async def live(plan: Plan, say: Callable[[str], None] = print) -> Verdict:
    """Carry a plan out; what was wrong, and figures."""
    async with _world(plan, say) as world:
        verdict = await world.live()
        if verdict.wrong:
            say(world.tail())
    if not verdict.wrong:
        world.tidy()
    return verdict
