"""One simulated world: several engines, clients, faults and a store, from a seed.

    chaos   workers run random programs; clients start them (twice), send, publish, cancel; the plan's faults happen
    heal    faults end, everybody is back, whoever waits for an event gets one
    rest    every run has ended; the model and the ledger are asked whether that is right

`simulate(seed)` returns a `Report`; the same seed and plan always give the same trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any, NamedTuple

from kernel import programs as wild
from perdure.authoring.step import step_context
from perdure.engine import settings as engine_settings
from perdure.engine.clock import HostTime
from perdure.engine.engine import Engine
from perdure.errors import ActionRefused, EngineNotOpen, PerdureError, RunFinished, RunNotFound, StoreError
from perdure.kernel import journal
from perdure.kernel.journal import from_row
from perdure.store.base import Status, WorkerInfo
from perdure.store.memory import MemoryStore
from sim import plan as plans
from sim import programs
from sim.ledger import Ledger, Violation
from sim.loop import LIFE, SimLoop, Stuck, call_in
from sim.plan import CALL_FAULTS, Fault
from sim.store import NodeStore

#: When the clocks of the world begin, in microseconds.
_EPOCH = 1_900_000_000_000_000
#: Seconds in which things go wrong, then seconds in which everything must come to its end.
CHAOS_SECONDS = 12.0
HEAL_SECONDS = 900.0
CALLBACKS_MAX = 150_000
_TAIL = 60


class Report(NamedTuple):
    """What came of one seed. `problem` is empty if all was well."""

    seed: int
    problem: str
    digest: str
    plan: tuple[Fault, ...]
    tail: tuple[str, ...]
    runs: int
    records: int
    seconds: float
    happened: Counter[str]


class _Clock(HostTime):
    """A node's clock: off by `skew` seconds, and going wrong by `drift`."""

    def __init__(self, loop: SimLoop, skew: float, drift: float) -> None:
        self._loop = loop
        self._skew = skew
        self._drift = drift

    def now(self) -> int:
        return _EPOCH + round((self._loop.time() * (1.0 + self._drift) + self._skew) * 1_000_000)


class Node:
    """A process that comes and goes. Each life has an engine of its own."""

    def __init__(self, name: str, index: int, clock: _Clock, worker: bool, options: dict[str, Any]) -> None:
        self.name = name
        self.index = index
        self.clock = clock
        self.worker = worker
        self.options = options
        self.life = 0
        self.context: Context | None = None
        #: Ready to be used; and all that this life has made.
        self.engine: Engine | None = None
        self.engines: list[Engine] = []
        self.worker_id = ""
        self.info: WorkerInfo | None = None
        self.main: asyncio.Task[None] | None = None
        #: Hints do not reach it.
        self.deaf = False
        self.is_down = True


class World:
    """See the module docstring."""

    def __init__(self, seed: int, plan: Sequence[Fault] | None) -> None:
        self.seed = seed
        rng = random.Random(f"world {seed}")
        workers = rng.choice([1, 2, 2, 3, 4])
        self.plan = (
            tuple(plan) if plan is not None else plans.draw(random.Random(f"plan {seed}"), workers, CHAOS_SECONDS)
        )
        self._rng = random.Random(f"schedule {seed}")
        self.loop = SimLoop(random.Random(f"order {seed}"), CALLBACKS_MAX)
        self._own = copy_context()
        self.memory = MemoryStore()
        self.memory._hint = self._hint  # type: ignore[method-assign]
        self.ledger = Ledger(self.memory, self._fail)
        self.latency = rng.choice([0.0, 0.0, 0.002, 0.05])
        self.disk_is_full = False
        self.healed = False
        self.problem = ""
        self.happened: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._calls = 0
        self._call_faults = {int(fault.at): fault for fault in self.plan if fault.kind in CALL_FAULTS}
        self._watchers: dict[int, tuple[Node, Callable[[], None]]] = {}
        self._hinted: set[int] = set()
        self._lives = 0
        options = {
            "residents_max": rng.choice([1, 1, 2, 100]),
            "sweep_interval": rng.choice([0.2, 1.0, 3.0]),
            "steps_max": rng.choice([1, 2, 100]),
            "cancel_grace": rng.choice([0.5, 5.0]),
            "timer_resolution": rng.choice([0.0, 0.01]),
        }
        skew = rng.choice([0.0, 0.0, 1.0, 3.0])
        drift = rng.choice([0.0, 0.01])

        def clock() -> _Clock:
            return _Clock(self.loop, rng.uniform(-skew, skew), rng.uniform(-drift, drift))

        self.workers = [Node(f"w{n}", n, clock(), True, options) for n in range(workers)]
        self.clients = [Node(f"c{n}", n, clock(), False, options) for n in range(rng.choice([1, 1, 2]))]
        self._roots = [f"r{n}" for n in range(rng.randint(1, 3))]
        garden = programs.Garden(rng, self._roots)
        self.programs = {root: garden.program() for root in self._roots}
        #: Roots that somebody asked to cancel.
        self._cancelled: set[str] = set()
        self._told: dict[str, Any] = {}
        self._numbers = 0

    # -- for the parts -------------------------------------------------------------------------------------------

    def note(self, node: Node | None, text: str) -> None:
        line = f"{self.loop.time():.6f} {node.name if node else '--'} {text}"
        self._digest.update(line.encode())
        self._tail.append(line)

    def next_call(self) -> Fault | None:
        self._calls += 1
        fault = None if self.healed else self._call_faults.get(self._calls)
        if fault is not None:
            self.happened[fault.kind] += 1
        return fault

    def draw_latency(self) -> float:
        return self._rng.random() * self.latency

    def watch(self, node: Node, callback: Callable[[], None]) -> Callable[[], None]:
        self._watchers[node.life] = (node, callback)
        life = node.life
        return lambda: self._watchers.pop(life, None) and None

    def _hint(self) -> None:
        for life, (node, callback) in list(self._watchers.items()):
            if life not in self._hinted and not node.deaf and node.context is not None:
                self._hinted.add(life)
                call_in(self.loop, node.context, self.draw_latency(), self._tell, life, callback)

    def _tell(self, life: int, callback: Callable[[], None]) -> None:
        self._hinted.discard(life)
        if life in self._watchers:
            callback()

    def renewed(self, node: Node) -> None:
        """A worker that was taken for dead shows that it lives: from now on its claims count again."""
        if node.worker_id in self.memory._dead and node.info is not None:
            self.memory._dead.discard(node.worker_id)
            self.memory._workers.setdefault(node.worker_id, node.info)

    async def perform(self, uid: str, fails: int, seconds: float) -> None:
        """What steps do."""
        attempt = step_context.get()
        node = self._node_of(LIFE.get())
        self.note(node, f"begins {attempt.resident.id} {attempt.operation.location} {attempt.number}")
        self.ledger.begins(attempt)
        self.happened["attempts"] += 1
        if seconds:
            await asyncio.sleep(seconds)
        if attempt.number <= fails:
            raise programs.Refused(uid)

    async def perform_wild(self, name: str, fails: bool) -> str:
        await self.perform(name, 99 if fails else 0, 0.01 if name == "c" else 0.0)
        return name

    def _node_of(self, life: int) -> Node | None:
        return next((node for node in (*self.workers, *self.clients) if node.life == life), None)

    # -- the lives of nodes --------------------------------------------------------------------------------------

    def _start(self, node: Node) -> None:
        if not node.is_down:
            return
        self._lives += 1
        node.life, node.is_down, node.engine = self._lives, False, None
        node.context = self.loop.born(node.life)
        self.note(node, "up")
        coroutine = self._live(node)
        node.main = self.loop.create_task(coroutine, context=node.context)

    async def _live(self, node: Node) -> None:
        life = node.life
        for attempt in range(1000):
            store: Any = NodeStore(self, node, self.memory)
            engine = Engine(store, worker=node.worker, name=node.name, clock=node.clock, **node.options)
            engine._rng = random.Random(f"engine {self.seed} {life} {attempt}")
            node.engines.append(engine)
            try:
                await engine.open()
            except StoreError:
                await asyncio.sleep(0.1)
                continue
            break
        worker = engine._worker
        if worker is not None:
            node.worker_id = worker.id
            node.info = self.memory._workers.get(worker.id)
            start = worker._steps.start

            def checked(resident: Any, operation: Any) -> None:
                self.ledger.asked(resident, operation)
                start(resident, operation)

            worker._steps.start = checked  # type: ignore[method-assign]
        node.engine = engine

    def _crash(self, node: Node) -> None:
        if node.is_down:
            return
        self.note(node, "crash")
        self.loop.die(node.life)
        self._watchers.pop(node.life, None)
        self._hinted.discard(node.life)
        self._forget(node)
        node.is_down = True
        if node.worker_id:
            self.memory.kill_worker(node.worker_id)
            node.worker_id = ""

    def _forget(self, node: Node) -> None:
        """What was in memory is gone, without a word to anybody."""
        for engine in node.engines:
            worker = engine._worker
            if worker is not None:
                worker._steps._queue.clear()
            with contextlib.suppress(StopIteration):
                engine.abandon().send(None)
            if worker is not None:
                worker.abandon()  # also one that was being closed
        node.engines.clear()
        node.engine = None

    def _pause(self, node: Node, seconds: float, expires: bool) -> None:
        """As SIGSTOP does. `expires`: for so long that the others take it for dead."""
        if node.is_down or node.life in self.loop.paused:
            return
        life = node.life
        self.note(node, "pause" + (" past its lease" if expires else ""))
        self.loop.paused.add(life)
        if expires and node.worker_id:
            self.memory.kill_worker(node.worker_id)
        self.loop.call_later(seconds, self._resume, node, life)

    def _resume(self, node: Node, life: int) -> None:
        if life in self.loop.paused:
            self.note(node, "resume")
            self.loop.paused.discard(life)

    async def _leave(self, node: Node, seconds: float) -> None:
        """Close in order, and come back later."""
        engine, life = node.engine, node.life
        if engine is None:
            return
        with contextlib.suppress(StoreError):  # it goes all the same
            await engine.close(grace=0.2)
        self.note(node, "left")
        self.loop.call_soon(self._left, node, life, seconds, context=self._own)

    def _left(self, node: Node, life: int, seconds: float) -> None:
        if node.life == life:
            self._crash(node)
            self.loop.call_later(seconds, self._start, node)

    # -- faults ----------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        if self.healed:
            return
        node = self.workers[fault.node % len(self.workers)]
        self.happened[fault.kind] += 1
        match fault.kind:
            case "crash":
                self._crash(node)
                self.loop.call_later(fault.seconds, self._start, node)
            case "pause":
                self._pause(node, fault.seconds, expires=False)
            case "expire":
                self._pause(node, fault.seconds, expires=True)
            case "leave":
                if not node.is_down and node.context is not None:
                    self.loop.create_task(self._leave(node, fault.seconds), context=node.context)
            case "deaf":
                node.deaf = True
                self.loop.call_later(fault.seconds, setattr, node, "deaf", False)
            case "full":
                self.disk_is_full = True
                self.loop.call_later(fault.seconds, setattr, self, "disk_is_full", False)
            case other:
                raise AssertionError(other)

    # -- clients ---------------------------------------------------------------------------------------------------

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def _insist(self, node: Node, call: Callable[[Engine], Any]) -> Any:
        """Repeat until the store answers, as a careful client does."""
        while True:
            engine, life = node.engine, node.life
            if engine is not None and node.context is not None:
                # In the node's own life: if that ends, nobody hears the answer.
                asking = self.loop.create_task(call(engine), context=node.context)
                while not asking.done() and node.life == life and not node.is_down:
                    await asyncio.wait({asking}, timeout=2.0)
                if asking.done():
                    try:
                        return asking.result()
                    except (StoreError, EngineNotOpen):
                        pass
            await asyncio.sleep(0.2)

    async def _client(self, node: Node, rng: random.Random) -> None:
        for root in self._roots:
            if rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(0, 1.0))
            starter = rng.choice([node, node, *self.workers])
            trees = self.programs[root]
            self.loop.create_task(
                self._insist(starter, lambda engine, r=root, t=trees: engine.start(programs.sim_program(t, []), id=r))
            )
        busy = rng.choice([2.0, 0.3])
        for _ in range(rng.randint(0, 10)):
            await asyncio.sleep(rng.uniform(0, busy))
            root = rng.choice(self._roots)
            match rng.choice(["send", "send", "send", "publish", "publish", "cancel", "pause", "terminate", "look"]):
                case "pause":
                    self.loop.create_task(self._hold(node, root, rng.uniform(0, 3.0)))
                case "terminate" if rng.random() < 0.2:
                    self._cancelled.add(root)
                    self.loop.create_task(self._terminate(node, root))
                case "send":
                    self.loop.create_task(self._send(node, root))
                case "publish":
                    self.loop.create_task(self._publish(node, rng.random() < 0.5))
                case "cancel" if rng.random() < 0.4:
                    self._cancelled.add(root)
                    self.loop.create_task(self._cancel(node, root))
                case _:
                    self.loop.create_task(self._result(node, root))

    async def _send(self, node: Node, run_id: str) -> None:
        number = self._number()
        try:
            await self._insist(node, lambda engine: engine.send(run_id, wild.Nudge(number), key=f"k{number}"))
        except (RunNotFound, RunFinished):
            return
        self.ledger.accepted.add((run_id, number))

    async def _publish(self, node: Node, single: bool) -> None:
        number = self._number()
        what = programs.Bell(number) if single else programs.Chime(number)
        await self._insist(node, lambda engine: engine.publish(what, key=f"p{number}"))

    async def _cancel(self, node: Node, run_id: str) -> None:
        with contextlib.suppress(RunNotFound):
            await self._insist(node, lambda engine: engine.cancel(run_id, "enough"))

    async def _terminate(self, node: Node, run_id: str) -> None:
        with contextlib.suppress(RunNotFound):
            await self._insist(node, lambda engine: engine.terminate(run_id, "at once"))

    async def _hold(self, node: Node, run_id: str, seconds: float) -> None:
        """Pause a run for a while, as a person does."""
        with contextlib.suppress(RunNotFound, ActionRefused):
            await self._insist(node, lambda engine: engine.pause(run_id))
        await asyncio.sleep(seconds)
        with contextlib.suppress(RunNotFound, ActionRefused):
            await self._insist(node, lambda engine: engine.unpause(run_id))

    async def _result(self, node: Node, run_id: str) -> None:
        """Wait for a result; whoever hears one, all must hear the same."""

        async def ask(engine: Engine) -> Any:
            return await engine.result(run_id, timeout=30)

        try:
            heard: Any = ("completed", await self._insist(node, ask))
        except (RunNotFound, TimeoutError):
            return
        except PerdureError as error:
            heard = (type(error).__name__, str(error))
        self.note(node, f"hears {run_id} {heard[0]}")
        first = self._told.setdefault(run_id, heard)
        self.ledger.require(first == heard, f"I6: {run_id} was {first} to one and {heard} to another")

    # -- the course of a world ---------------------------------------------------------------------------------------

    def run(self) -> Report:
        loop = self.loop
        loop.set_exception_handler(self._broken)
        try:
            programs.perform, wild.perform = self.perform, self.perform_wild
            with programs.use_definitions():
                loop.call_soon(self._begin)
                try:
                    loop.run_forever()
                except Stuck as error:
                    self._fail(f"{error}: {self._open_runs()}")
                asyncio.events._set_running_loop(loop)
                try:
                    for node in (*self.workers, *self.clients):
                        self._forget(node)
                    loop.bury()
                finally:
                    asyncio.events._set_running_loop(None)
        finally:
            programs.perform = wild.perform = None
            loop.close()
        return Report(
            seed=self.seed,
            problem=self.problem,
            digest=self._digest.hexdigest(),
            plan=self.plan,
            tail=tuple(self._tail),
            runs=len(self.memory._runs),
            records=self.ledger.records,
            seconds=loop.time(),
            happened=self.happened,
        )

    def _fail(self, problem: str) -> None:
        if not self.problem:
            self.problem = problem
            self.note(None, f"VIOLATION {problem}")
        self.loop.stop()

    def _broken(self, loop: Any, context: dict[str, Any]) -> None:
        """An exception that nobody caught."""
        error = context.get("exception")
        if isinstance(error, Violation):
            self._fail(str(error))
        elif context.get("handle") is not None:
            self._fail(f"an exception in a callback: {error!r}")

    def _begin(self) -> None:
        for node in (*self.workers, *self.clients):
            self._start(node)
        for fault in self.plan:
            if fault.kind not in CALL_FAULTS:
                self.loop.call_at(fault.at, self._strike, fault)
        for node in self.clients:
            rng = random.Random(f"client {self.seed} {node.name}")
            self.loop.create_task(self._watched(self._client(node, rng)))
        self.loop.call_at(CHAOS_SECONDS, self._heal)

    async def _watched(self, work: Any) -> None:
        try:
            await work
        except Violation as error:
            self._fail(str(error))

    def _heal(self) -> None:
        self.note(None, "heal")
        self.healed, self.disk_is_full = True, False
        self.loop.paused.clear()
        for node in self.workers:
            node.deaf = False
            self._start(node)
        self.loop.create_task(self._watched(self._converge()))

    async def _converge(self) -> None:
        """Give everybody what they wait for until every run has ended."""
        end = self.loop.time() + HEAL_SECONDS
        client = self.clients[0]
        wait, records = 0.5, 0
        while self.loop.time() < end:
            await asyncio.sleep(wait)
            # Look less and less often while nothing moves; a long program that moves is given its events at once.
            wait = min(wait * 1.3, 10.0) if records == self.ledger.records else 0.5
            records = self.ledger.records
            dead = [
                node.name
                for node in self.workers
                if node.engine and node.engine._sweeper and node.engine._sweeper.done()
            ]
            self.ledger.require(not dead or self._leaving(dead), f"the sweep of {dead} ended")
            runs = list(self.memory._runs.values())
            parked = [f"{run.id}: {run.reason}" for run in runs if run.status is Status.PARKED]
            self.ledger.require(not parked, f"parked: {parked}")
            left = [run for run in runs if not run.status.terminal]
            if not left and len(self._roots) <= len(runs) and all(r in self.memory._by_id for r in self._roots):
                await self._rest(client)
                return
            # Only what is waited for and not there: anything more would wake runs that were forgotten.
            for run in left:
                if _lacks(run, "Nudge"):
                    self.loop.create_task(self._send(client, run.id))
            for kind in ("Bell", "Chime"):
                if any(_lacks(run, kind) for run in left):
                    self.loop.create_task(self._publish(client, single=kind == "Bell"))
        self._fail(f"not at rest after {HEAL_SECONDS:g} s without faults: {self._open_runs()}")

    def _leaving(self, names: list[str]) -> bool:
        return all(node.engine is not None and node.engine._closing for node in self.workers if node.name in names)

    def _open_runs(self) -> str:
        now = _EPOCH + round(self.loop.time() * 1_000_000)
        return ", ".join(
            f"{run.id} {run.status} owner {(run.owner or '-')[:4]} wake {run.wake_at and (run.wake_at - now) / 1e6} "
            f"ready {run.ready_at if run.owner is None else '-'} last {run.journal[run.generation][-1].kind} "
            f"inbox {[item.type for item in run.inbox.values()]}"
            for run in self.memory._runs.values()
            if not run.status.terminal
        )

    async def _rest(self, client: Node) -> None:
        """All runs have ended: is it what the model allows, and do all readers agree?"""
        for root in self._roots:
            await self._result(client, root)
            await self._result(self.workers[0], root)
        self.ledger.look()
        self.ledger.close()
        for run in self.memory._runs.values():
            self._check_outcome(run)
        self.note(None, f"rest {len(self.memory._runs)} runs, {self.ledger.records} records")
        self.loop.stop()

    def _check_outcome(self, run: Any) -> None:
        first, last = from_row(run.journal[1][0]).body, from_row(run.journal[run.generation][-1]).body
        family = run.id.partition("/")[0]
        if family in self._cancelled or not isinstance(first, journal.Started):
            return
        trees = _trees_of(first)
        match last:
            case journal.Completed(value):
                found = programs.sim_program.spec.result.decode(value, "a result")
                self.ledger.require(
                    programs.fits_program(trees, found), f"model: {run.id} returned {found!r} for {trees!r}"
                )
                if run.id in self._told:
                    self.ledger.require(self._told[run.id] == ("completed", found), f"model: {run.id} was told wrong")
            case journal.Failed(error):
                name = error.type.rpartition(":")[2].rpartition(".")[2]
                allowed = programs.errors_of(trees)
                self.ledger.require(
                    name in allowed or programs.ANY in allowed, f"model: {run.id} failed with {name}: {error.message}"
                )
            case journal.Cancelled():
                self.ledger.require("/" in run.id, f"model: {run.id} was cancelled, and nobody had asked")
            case _:
                self.ledger.require(False, f"model: {run.id} ended with a record {last.kind}")


def _lacks(run: Any, kind: str) -> bool:
    """Whether a run waits for such an event and has none."""
    wait = run.waits.get(kind)
    return wait is not None and wait.wanted > 0 and not run.unread[kind]


def _trees_of(started: journal.Started) -> list[programs.Node]:
    args, kwargs = programs.sim_program.spec.arguments.decode(started.input)
    return list(args[0] if args else kwargs["trees"])


def simulate(seed: int, plan: Sequence[Fault] | None = None) -> Report:
    """Live through the world of a seed, with its own faults or those given."""
    logger = logging.getLogger("perdure")
    level, limit = logger.level, sys.getrecursionlimit()
    logger.setLevel(logging.CRITICAL + 1)
    read = engine_settings._from_pyproject
    engine_settings._from_pyproject = lambda path: {}  # the same everywhere, and no file is read for every engine
    try:
        return World(seed, plan).run()
    finally:
        engine_settings._from_pyproject = read
        logger.setLevel(level)
        sys.setrecursionlimit(limit)
