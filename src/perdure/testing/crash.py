"""`crash_everywhere`: kill and resume a workflow after every record in turn, and compare.

    def test_orders_survive_crashes():
        crash_everywhere(fulfil("o-1", 1999), send=[Approved(by="ann")])

First the workflow runs undisturbed, twice. Then, for each commit it makes, it runs again on an empty store and dies
there: just before the commit, so that what the steps did is lost, and just after it, so that nobody heard the answer. A
second engine finishes each of them. Result, journals and effects must be what they were without a crash.

Everything happens in this process, in memory and in virtual time. What a process would lose with its memory is put
back (see `perdure.testing.module_state`); what depends on the process itself, such as the order of sets, is tried by
replaying the journals in other processes (see `perdure.testing.other_process`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from perdure.authoring.workflow import Invocation
from perdure.engine.attempts import Attempt
from perdure.engine.engine import RunHandle
from perdure.engine.loading import refuse_while_loading
from perdure.errors import Deadlocked, NeverWaits, NotCrashProof, PerdureError, RunFinished
from perdure.store.memory import MemoryStore
from perdure.testing.effects import Recorder, Tally
from perdure.testing.engine import VirtualEngine
from perdure.testing.fresh_thread import in_fresh_thread
from perdure.testing.impurity_watch import ImpurityWatch
from perdure.testing.mocks import Mocks
from perdure.testing.module_state import ModuleState
from perdure.testing.other_process import differences_in_other_processes
from perdure.testing.report import CrashReport, Finding, Key, Lived, Point, compare, explain, journals_of
from perdure.testing.time import virtual_time
from perdure.testing.wrappers import CrashingStore

R = TypeVar("R")

#: What clients do with the run while it lives. Called in each life, so it must be safe to repeat.
Drive = Callable[[VirtualEngine, RunHandle[Any]], Awaitable[object]]
Setup = Callable[[VirtualEngine], object]

#: Here workflow code is judged by what a crash changes: a value that goes nowhere does no harm.
_LENIENT: dict[str, Any] = {"strict": False, "io_check": "off"}


def crash_everywhere(
    invocation: Invocation[R],
    *,
    setup: Setup | None = None,
    send: Sequence[Any] = (),
    drive: Drive | None = None,
    effects: Recorder | None = None,
    points_max: int = 200,
    hash_seeds: Sequence[int] = (1, 2),
    id: str = "run",  # noqa: A002
    **settings: Any,
) -> CrashReport[R]:
    """Run a workflow with a crash at every commit, and raise `NotCrashProof` if any of them changes what it does.

    - `setup(engine)`: what to prepare on each engine, such as mocks. The mocks outlive a crash: they are the outside.
    - `send`: events sent when the run has started. `drive(engine, run)`: anything else that clients do.
    - `effects`: where the code under test notes what it does to the outside: `Effects`, a list or a Counter of labels,
      or a function that returns them. A step may repeat an effect if it died before its outcome was stored; nothing
      else may.
    - `points_max`: with more commits than this, only so many of them are tried, evenly spread.
    - `hash_seeds`: journals are also replayed in other processes with these PYTHONHASHSEEDs; () does not.

    Returns what it saw: `report.result`, `report.points`, `report.lives`. May be called from async tests too.
    """
    refuse_while_loading()
    rehearsal = _Rehearsal(invocation, setup, send, drive, Tally(effects), id, settings)
    findings, points, calm = in_fresh_thread(lambda: rehearsal.all_lives(points_max))
    for text in differences_in_other_processes(invocation.spec, rehearsal.stored, hash_seeds) if not findings else ():
        findings.append(Finding(None, text))
    findings += rehearsal.wrong_by_themselves()
    if findings:
        raise NotCrashProof(explain(invocation.spec.name, findings, points, rehearsal.memory_changed, rehearsal.watch))
    return CrashReport(calm.value, len(points), rehearsal.lives, rehearsal.records)


class _Rehearsal(Generic[R]):
    """All lives of one workflow."""

    def __init__(
        self,
        invocation: Invocation[R],
        setup: Setup | None,
        send: Sequence[Any],
        drive: Drive | None,
        tally: Tally,
        run_id: str,
        settings: dict[str, Any],
    ) -> None:
        self._invocation = invocation
        self._setup = setup
        self._send = send
        self._drive = drive
        self._tally = tally
        self._id = run_id
        self._settings = settings
        self._memory = ModuleState(invocation.spec.function, keep=[] if tally.recorder is None else [tally.recorder])
        self.memory_changed: list[str] = []
        self.watch = ImpurityWatch()
        self.outside: dict[str, str] = {}
        self.lives = 0
        self.records = 0
        self.stored = MemoryStore()

    def all_lives(self, points_max: int) -> tuple[list[Finding], list[Point], Lived]:
        calm = self._point(None)
        self.memory_changed = self._memory.changed()
        self.records = calm.records
        if calm.outcome[0] in ("RunParked", "stuck"):
            return [Finding(None, f"it does not come to an end: {calm.value}")], [], calm
        again = self._point(None)
        findings = [Finding(None, text) for text in compare(calm, again)]
        every = [Point(number, before) for number in range(1, calm.commits + 1) for before in (True, False)]
        stride = max(1, -(-len(every) // points_max))
        tried: list[Point] = []
        for point in every[::stride]:
            crashed = self._point(point)
            if not crashed.died:  # an earlier commit than in the calm run was the last one
                continue
            tried.append(point)
            findings += [Finding(point, text) for text in compare(calm, crashed)]
        return findings, tried, calm

    def wrong_by_themselves(self) -> list[Finding]:
        return [
            Finding(None, f"the effect {label!r} is done outside a step, at {site}: every replay repeats it")
            for label, site in self.outside.items()
        ] + [
            Finding(None, f"workflow code called {call} at {', '.join(sorted(places))}: every replay repeats it")
            for call, places in self.watch.effects.items()
            if call != "print()"
        ]

    # -- one point ---------------------------------------------------------------------------------------------------

    def _point(self, point: Point | None) -> Lived:
        self._memory.restore()
        self._tally.begin()
        return asyncio.run(self._both_lives(point))

    async def _both_lives(self, point: Point | None) -> Lived:
        async with virtual_time():
            memory, mocks = MemoryStore(), Mocks()
            if point is None:
                self.stored = memory
            first: list[Key] = []
            second: list[Key] = []
            commit = None if point is None else point.commit
            before = point is not None and point.before
            store = CrashingStore(memory, commit, before=before, unit="commits")
            outcome = await self._live(store, memory, mocks, first)
            died = store.dead.is_set()
            kept: set[Key] = set()
            if died and point is not None:
                point.kind, point.location = store.last
                kept = _recorded(memory)
                self._memory.restore()
                calm = CrashingStore(memory, None)
                outcome = await self._live(calm, memory, mocks, second)
            self.outside |= self._tally.outside()
            return Lived(
                outcome=outcome or ("nothing", None),
                journals=journals_of(memory),
                effects=self._tally.counts(),
                attempts=len(first) + len(second),
                repeated=sorted(set(second) & kept),
                died=died,
                commits=store.commits,
                records=store.records,
            )

    async def _live(
        self, store: CrashingStore, memory: MemoryStore, mocks: Mocks, attempts: list[Key]
    ) -> tuple[str, Any] | None:
        """One life. None if it ended in death."""
        self.lives += 1
        wrapped: Any = store
        engine = VirtualEngine(store=wrapped, guard=self.watch, **{**_LENIENT, **self._settings})
        engine.mocks = mocks
        engine.rng = random.Random(self.lives)  # each life is another worker, with an id of its own
        engine.on_attempt = lambda attempt: attempts.append(_key(attempt))
        if self._setup is not None and not mocks.is_set_up:
            self._setup(engine)
            mocks.is_set_up = True
        await engine.open()
        acting = asyncio.ensure_future(self._act(engine))
        dying = asyncio.ensure_future(store.dead.wait())
        await asyncio.wait({acting, dying}, return_when=asyncio.FIRST_COMPLETED)
        if store.dead.is_set():
            acting.cancel()
            worker = engine.worker
            await engine.abandon()
            store.let_go()
            await asyncio.gather(acting, return_exceptions=True)
            if worker is not None:
                memory.kill_worker(worker.id)
            await engine.time.quiet()  # what still runs in threads is over
            return None
        dying.cancel()
        try:
            return await acting
        finally:
            await engine.close(grace=0)

    async def _act(self, engine: VirtualEngine) -> tuple[str, Any]:
        try:
            handle = await engine.start(self._invocation, id=self._id)
            driving = asyncio.ensure_future(self._talk(engine, handle))
            try:
                value = await handle.result()
            finally:
                if not driving.done():
                    driving.cancel()
                with suppress(asyncio.CancelledError):
                    await driving
            return "result", value
        except Deadlocked as error:
            return "stuck", error.message
        except PerdureError as error:
            return type(error).__name__, error.message

    async def _talk(self, engine: VirtualEngine, handle: RunHandle[Any]) -> None:
        with suppress(RunFinished, NeverWaits):  # after a crash it may be past what a client would wait for
            for number, event in enumerate(self._send):
                await handle.send(event, key=f"crash-everywhere-{number}")
            if self._drive is not None:
                await self._drive(engine, handle)


def _key(attempt: Attempt) -> Key:
    return Key(attempt.context.run_id, attempt.resident.run.generation, attempt.context.location, attempt.number)


def _recorded(memory: MemoryStore) -> set[Key]:
    """Attempts whose outcome is stored."""
    return {
        Key(run_id, entry.generation, entry.location, entry.attempt)
        for run_id, journal in journals_of(memory).items()
        for entry in journal.entries
        if entry.kind.startswith("step_")
    }
