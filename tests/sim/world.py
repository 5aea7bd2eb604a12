"""One simulated world: several engines, clients, faults and a store, from a seed.

    chaos   workers run random programs; clients start them (twice), send, publish, cancel; the plan's faults happen
    heal    faults end, everybody is back, every run that waits for an event gets one
    rest    every run has ended; the model and the ledger are asked whether that is right

`simulate(seed)` returns a `Report`; the same seed and plan always give the same trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple

from kernel import programs as wild
from kernel.kernel_kit import without_places
from perdure import limits
from perdure.authoring.step import step_context
from perdure.engine import settings as engine_settings
from perdure.engine.engine import Engine
from perdure.errors import StoreError
from perdure.kernel import journal
from perdure.kernel.journal import from_row
from perdure.kernel.verbs.current import current_run
from perdure.store.memory import MemoryStore
from perdure.store.model import Status
from sim import plan as plans
from sim import programs
from sim.callers import Callers
from sim.late import LateTurns
from sim.ledger import Ledger, Violation
from sim.litter import collected_on_request, leave_coroutine, leave_generator
from sim.loop import LIFE, SimLoop, Stuck, call_in
from sim.nodes import EPOCH, Clock, Node
from sim.odd import OddCommits
from sim.plague import Plague
from sim.plan import CALL_FAULTS, NUMBERED, USUAL, Fault, Setting
from sim.sqlite import Difference, Pair, new_file
from sim.store import NodeStore

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
    setting: Setting = USUAL


class World:
    """See the module docstring."""

    def __init__(self, seed: int, plan: Sequence[Fault] | None, setting: Setting = USUAL, path: str = "") -> None:
        self.seed = seed
        self.setting = setting
        rng = random.Random(f"world {seed}")
        workers = rng.choice([1, 2, 2, 3, 4])
        self.plan = (
            tuple(plan) if plan is not None else plans.draw(random.Random(f"plan {seed}"), workers, CHAOS_SECONDS)
        )
        if plan is None and setting.more:
            self.plan += plans.draw_more(seed, workers, CHAOS_SECONDS, setting.more)
        self._rng = random.Random(f"schedule {seed}")
        self.loop = SimLoop(random.Random(f"order {seed}"), CALLBACKS_MAX)
        self._own = copy_context()
        self.memory = MemoryStore()
        self.memory.tables.hint = self._hint  # type: ignore[method-assign]
        self.ledger = Ledger(self.memory, self._fail)
        self.happened: Counter[str] = Counter()
        #: What nodes call: on SQLite the memory store goes along, as its oracle.
        self.pair = Pair(self.memory, path, self.happened, self._fail) if path else None
        self.store: Any = self.pair or self.memory
        self.latency = rng.choice([0.0, 0.0, 0.002, 0.05])
        self.disk_is_full = False
        self.healed = False
        self.problem = ""
        self._digest = hashlib.sha256()
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._calls = 0
        self.odd = OddCommits(self.plan)
        self.late = LateTurns(seed, self.plan, self.memory)
        self.plague = Plague(self, self.plan)
        self._litters = "litter" in setting.more
        self._moments = 0
        self._collections = {int(fault.at) for fault in self.plan if fault.kind == "collect"}
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

        def clock() -> Clock:
            return Clock(self.loop, rng.uniform(-skew, skew), rng.uniform(-drift, drift))

        self.workers = [Node(f"w{n}", n, clock(), True, options) for n in range(workers)]
        self.clients = [Node(f"c{n}", n, clock(), False, options) for n in range(rng.choice([1, 1, 2]))]
        self.roots = [f"r{n}" for n in range(rng.randint(1, 3))]
        garden = programs.Garden(rng, self.roots)
        self.programs = {root: garden.program() for root in self.roots}
        self._add_programs(random.Random(f"more programs {seed}"))
        self.callers = Callers(self)

    def _add_programs(self, rng: random.Random) -> None:
        """Those that the faults of some worlds are about. They come after the usual ones, whose randomness is their
        own."""
        if "zombies" in self.setting.more:
            for number in range(rng.randint(1, 3)):
                # The second generation is the longer one, so that its turns could be taken for those of the first.
                lengths = sorted(rng.randint(2, 20) for _ in range(rng.choice([1, 2, 2])))
                self.programs[f"s{number}"] = [["chain", f"s{number}", length] for length in lengths]
                if rng.random() < 0.5:
                    self.programs[f"w{number}"] = [["watch", f"s{number}"]]
        self.roots += [root for root in self.programs if root not in self.roots]

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
        if node.worker_id in self.memory.tables.dead_workers and node.info is not None:
            self.memory.tables.dead_workers.discard(node.worker_id)
            self.memory.tables.workers.setdefault(node.worker_id, node.info)
            if self.pair is not None:
                self.pair.add_worker(node.info)

    async def perform(self, uid: str, fails: int, seconds: float) -> None:
        """What steps do."""
        attempt = step_context.get()
        node = self._node_of(LIFE.get())
        self.note(node, f"begins {attempt.resident.id} {attempt.operation.location} {attempt.number}")
        self.ledger.begins(attempt)
        self.happened["attempts"] += 1
        if self.plague.attempt_begins(attempt.resident.id, attempt.operation.location, uid, node):
            await self.loop.create_future()
        if self._litters:
            leave_coroutine()
            self._collect()
        if seconds:
            await asyncio.sleep(seconds)
        if attempt.number <= fails:
            raise programs.Refused(uid)

    async def moment(self) -> None:
        """In workflow code. It leaves something behind, the same at every replay; and the collector may come."""
        await leave_generator(current_run("moment").id)
        self._collect()

    def _collect(self) -> None:
        self._moments += 1
        if self._moments in self._collections and not self.healed:
            self.happened["collect"] += 1
            gc.collect()

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
        node.life, node.is_down, node.engine, node.is_ending = self._lives, False, None, False
        node.context = self.loop.born(node.life)
        self.note(node, "up")
        coroutine = self._live(node)
        node.main = self.loop.create_task(coroutine, context=node.context)

    async def _live(self, node: Node) -> None:
        life = node.life
        for attempt in range(1000):
            store: Any = NodeStore(self, node, self.store)
            engine = Engine(store, worker=node.worker, name=node.name, clock=node.clock, **node.options)
            engine.rng = random.Random(f"engine {self.seed} {life} {attempt}")
            node.engines.append(engine)
            try:
                await engine.open()
            except StoreError:
                await asyncio.sleep(0.1)
                continue
            break
        worker = engine.worker
        if worker is not None:
            node.worker_id = worker.id
            node.info = self.memory.tables.workers.get(worker.id)
            start = worker.attempts.start

            def checked(resident: Any, operation: Any) -> None:
                self.ledger.asked(resident, operation)
                start(resident, operation)

            worker.attempts.start = checked  # type: ignore[method-assign]
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

    def crash(self, node: Node, seconds: float, life: int = 0) -> None:
        """Now, or not if it is another life already; and back after some seconds."""
        if not life or node.life == life:
            self._crash(node)
            self.loop.call_later(seconds, self._start, node)

    def _forget(self, node: Node) -> None:
        """What was in memory is gone, without a word to anybody."""
        for engine in node.engines:
            worker = engine.worker
            if worker is not None:
                worker.attempts.serving.queue.clear()
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

    def stand_still(self, node: Node, seconds: float) -> None:
        """In the middle of a commit, past its lease: what it was about to store comes late."""
        self.happened["zombie"] += 1
        self._own.run(self._pause, node, seconds, True)

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

    def _cancel_host(self, node: Node, fault: Fault) -> None:
        """Somebody cancels every task of the process and ends its loop a little later: without closing the engine (the
        end of `asyncio.run`), after closing it (a framework that shuts down), or not at all."""
        count = self.loop.cancel_all(node.life)
        self.note(node, f"{fault.kind} {count}")
        if fault.kind == "cancel-on" and node.engine is not None and not node.engine.is_closed:
            return
        node.is_ending = True
        if fault.kind == "cancel-close" and node.context is not None:
            call_in(self.loop, node.context, fault.seconds, self._close_host, node, node.life)
        else:
            self.loop.call_later(fault.seconds, self._left, node, node.life, 0.1)

    def _close_host(self, node: Node, life: int) -> None:
        if node.life == life and not node.is_down:
            self.loop.create_task(self._leave(node, 0.1))
            self.loop.call_later(20.0, self._left, node, life, 0.1, context=self._own)  # close is bounded

    # -- faults ----------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        if self.healed:
            return
        node = self.workers[fault.node % len(self.workers)]
        self.happened[fault.kind] += 1
        match fault.kind:
            case "crash":
                self.crash(node, fault.seconds)
            case "pause":
                self._pause(node, fault.seconds, expires=False)
            case "expire":
                self._pause(node, fault.seconds, expires=True)
            case "leave":
                if not node.is_down and node.context is not None:
                    self.loop.create_task(self._leave(node, fault.seconds), context=node.context)
            case "cancel-all" | "cancel-close" | "cancel-on":
                if not node.is_down and node.context is not None:
                    self._cancel_host(node, fault)
            case "deaf":
                node.deaf = True
                self.loop.call_later(fault.seconds, setattr, node, "deaf", False)
            case "full":
                self.disk_is_full = True
                self.loop.call_later(fault.seconds, setattr, self, "disk_is_full", False)
            case other:
                raise AssertionError(other)

    # -- the course of a world ---------------------------------------------------------------------------------------

    def run(self) -> Report:
        loop = self.loop
        loop.set_exception_handler(self._broken)
        try:
            programs.perform, wild.perform = self.perform, self.perform_wild
            programs.moment = self.moment if self._litters else None
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
                    loop.close_the_dead()
                finally:
                    asyncio.events._set_running_loop(None)
        finally:
            programs.perform = wild.perform = programs.moment = None
            loop.close()
            if self.pair is not None:
                self.pair.sqlite.end()
        self._digest_journals()
        return Report(
            seed=self.seed,
            problem=self.problem,
            digest=self._digest.hexdigest(),
            plan=self.plan,
            tail=tuple(self._tail),
            runs=len(self.memory.tables.runs),
            records=self.ledger.records,
            seconds=loop.time(),
            happened=self.happened,
            setting=self.setting,
        )

    def _digest_journals(self) -> None:
        """The digest is of the journals, too: a trace only says how many records were written."""
        for key, run in sorted(self.memory.tables.runs.items()):
            for generation, rows in sorted(run.journal.items()):
                for row in rows:
                    self._digest.update(repr((key, run.id, generation, *without_places(row))).encode())

    def _fail(self, problem: str) -> None:
        if not self.problem:
            self.problem = problem
            self.note(None, f"VIOLATION {problem}")
        self.loop.stop()

    def _broken(self, loop: Any, context: dict[str, Any]) -> None:
        """An exception that nobody caught."""
        error = context.get("exception")
        if isinstance(error, (Violation, Difference)):
            self._fail(str(error))
        elif context.get("handle") is not None:
            self._fail(f"an exception in a callback: {error!r}")

    def _begin(self) -> None:
        for node in (*self.workers, *self.clients):
            self._start(node)
        for fault in self.plan:
            if fault.kind not in NUMBERED:
                self.loop.call_at(fault.at, self._strike, fault)
        for node in self.clients:
            rng = random.Random(f"client {self.seed} {node.name}")
            self.loop.create_task(self._watched(self.callers.run(node, rng)))
        self.loop.call_at(CHAOS_SECONDS, self._heal)

    async def _watched(self, work: Any) -> None:
        try:
            await work
        except (Violation, Difference) as error:
            self._fail(str(error))

    def _heal(self) -> None:
        self.note(None, "heal")
        self.healed, self.disk_is_full = True, False
        self.odd.end()
        self.late.end()
        self.loop.paused.clear()
        for node in self.workers:
            node.deaf = False
            self._start(node)
        self.loop.create_task(self._watched(self._converge()))

    def own_call(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        """Call later, on behalf of the world and not of the node that asks."""
        call_in(self.loop, self._own, seconds, function, *args)

    async def _converge(self) -> None:
        """Give everybody what they wait for until every run has ended."""
        await self.plague.run()
        end = self.loop.time() + HEAL_SECONDS
        client = self.clients[0]
        wait, records = 0.5, 0
        while self.loop.time() < end:
            await asyncio.sleep(wait)
            # Look less and less often while nothing moves; a long program that moves is given its events at once.
            wait = min(wait * 1.3, 10.0) if records == self.ledger.records else 0.5
            records = self.ledger.records
            dead = [node.name for node in self.workers if self._lacks_sweep(node)]
            self.ledger.require(not dead or self._leaving(dead), f"the sweep of {dead} ended")
            runs = list(self.memory.tables.runs.values())
            parked = [run for run in runs if run.status is Status.PARKED]
            wrong = [f"{run.id}: {run.reason}" for run in parked if not self._may_be_parked(run)]
            self.ledger.require(not wrong, f"parked: {wrong}")
            for run in parked:
                self.loop.create_task(self.callers.resume(client, run.id))
            left = [run for run in runs if not run.status.terminal]
            if not left and len(self.roots) <= len(runs) and all(r in self.memory.tables.by_id for r in self.roots):
                await self._rest(client)
                return
            # Only what is waited for and not there: anything more would wake runs that were forgotten.
            for run in left:
                if _lacks(run, "Nudge"):
                    self.loop.create_task(self.callers.send(client, run.id))
            for kind in ("Bell", "Chime"):
                if any(_lacks(run, kind) for run in left):
                    self.loop.create_task(self.callers.publish(client, single=kind == "Bell"))
        self._fail(f"not at rest after {HEAL_SECONDS:g} s without faults: {self._open_runs()}")

    def _lacks_sweep(self, node: Node) -> bool:
        sweep = node.engine.parts.sweeper if node.engine is not None and node.engine.parts is not None else None
        if sweep is None or not sweep.done() or node.is_ending:
            return False
        # One that a host has cancelled begins again before long.
        return not sweep.cancelled() or self.loop.time() > CHAOS_SECONDS + 2 * limits.CANCELLED_BY_OTHERS_SECONDS

    def _may_be_parked(self, run: Any) -> bool:
        """Only if the store would not take its turns, or if it killed its workers."""
        return run.key in self.odd.culprits or self.plague.may_be_parked(run)

    def _leaving(self, names: list[str]) -> bool:
        return all(node.engine is not None and node.engine.is_closed for node in self.workers if node.name in names)

    def _open_runs(self) -> str:
        now = EPOCH + round(self.loop.time() * 1_000_000)
        return ", ".join(
            f"{run.id} {run.status} owner {(run.owner or '-')[:4]} wake {run.wake_at and (run.wake_at - now) / 1e6} "
            f"ready {run.ready_at if run.owner is None else '-'} last {run.journal[run.generation][-1].kind} "
            f"inbox {[item.type for item in run.inbox.values()]}"
            for run in self.memory.tables.runs.values()
            if not run.status.terminal
        )

    async def _rest(self, client: Node) -> None:
        """All runs have ended: is it what the model allows, and do all readers agree?"""
        for root in self.roots:
            await self.callers.result(client, root)
            await self.callers.result(self.workers[0], root)
        self.ledger.look()
        self.ledger.close()
        if self.pair is not None:
            self.pair.compare_all()
        for run in self.memory.tables.runs.values():
            self._check_outcome(run)
        self.note(None, f"rest {len(self.memory.tables.runs)} runs, {self.ledger.records} records")
        self.loop.stop()

    def _check_outcome(self, run: Any) -> None:
        first, last = from_row(run.journal[1][0]).body, from_row(run.journal[run.generation][-1]).body
        family = run.id.partition("/")[0]
        if family in self.callers.cancelled or not isinstance(first, journal.Started):
            return
        trees = _trees_of(first)
        match last:
            case journal.Completed(value):
                found = programs.sim_program.spec.result.decode(value, "a result")
                self.ledger.require(
                    programs.fits_program(trees, found), f"model: {run.id} returned {found!r} for {trees!r}"
                )
                if run.id in self.callers.told:
                    self.ledger.require(
                        self.callers.told[run.id] == ("completed", found), f"model: {run.id} was told wrong"
                    )
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


def simulate(seed: int, plan: Sequence[Fault] | None = None, setting: Setting = USUAL) -> Report:
    """Live through the world of a seed, with its own faults or those given."""
    logger = logging.getLogger("perdure")
    level, limit = logger.level, sys.getrecursionlimit()
    logger.setLevel(logging.CRITICAL + 1)
    read = engine_settings._from_pyproject
    engine_settings._from_pyproject = lambda path: {}  # the same everywhere, and no file is read for every engine
    try:
        with contextlib.ExitStack() as stack:
            if "litter" in setting.more:
                stack.enter_context(collected_on_request())
            path = "" if setting.store == "memory" else stack.enter_context(new_file(random.Random(f"file {seed}")))
            return World(seed, plan, setting, path).run()
    finally:
        engine_settings._from_pyproject = read
        logger.setLevel(level)
        sys.setrecursionlimit(limit)
