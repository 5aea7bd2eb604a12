"""Turns as a test wants them: seeds that can be repeated, a guard around workflow code, a replay before each of them.

The places where the engine lets workflow code run are replaced on one worker: how it makes a run, and how it takes a
turn. Nothing global is touched, so tests may run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any

from perdure.engine.resident import Outcome, Resident
from perdure.engine.steps import Attempt
from perdure.engine.turns import TurnBuilder
from perdure.engine.worker import Newcomer, Prepared, Worker
from perdure.errors import BadArgument
from perdure.kernel.codec import UNREAD
from perdure.kernel.commands import Command
from perdure.kernel.journal import Record, from_row
from perdure.kernel.operation import ChildOperation, Frontier, StepOperation, decode_frontier
from perdure.kernel.run import Run
from perdure.store.base import Entry, Store, Turn
from perdure.store.memory import MemoryStore

Guard = Callable[[], AbstractContextManager[Any]]


def rehearse(worker: Worker, store: Store, *, seed: int, always_replay: bool, guard: Guard | None) -> None:
    if guard is not None:
        worker.run_class = _guarded(guard)
    memory = memory_below(store)
    if always_replay and memory is None:
        raise BadArgument("always_replay needs a store in memory.")
    builder = _Builder(worker, seed, memory if always_replay else None)
    worker._builder = builder
    prepare = worker._prepare

    def seeded(newcomer: Newcomer, now: int) -> Prepared:
        setattr(worker, "draw_seed", lambda: builder.seed_of(newcomer.id, 1))  # noqa: B010
        return prepare(newcomer, now)

    setattr(worker, "_prepare", seeded)  # noqa: B010


def memory_below(store: Any) -> MemoryStore | None:
    """The store in memory that others wrap."""
    while not isinstance(store, MemoryStore) and hasattr(store, "_store"):
        store = store._store
    return store if isinstance(store, MemoryStore) else None


def _guarded(guard: Guard) -> type[Run]:
    class GuardedRun(Run):
        """All of a run's code runs inside `deliver` or `replay`."""

        def deliver(self, record: Record, known: Any = UNREAD) -> list[Command]:
            with guard():
                return super().deliver(record, known)

        def replay(self, records: Sequence[Record], frontier: Frontier | None) -> list[Command]:
            with guard():
                return super().replay(records, frontier)

    return GuardedRun


class _Builder(TurnBuilder):
    """Gives every run a seed that depends on its id alone; with `memory`, rebuilds the run before each turn.

    With seeds drawn one after another, a child started after a crash would draw other lots than one started before.
    """

    def __init__(self, worker: Worker, seed: int, memory: MemoryStore | None) -> None:
        super().__init__(worker.id, worker._settings, self._next_seed)
        self._worker = worker
        self._seed = seed
        self._memory = memory
        self._following = 0

    def seed_of(self, run_id: str, generation: int) -> int:
        digest = blake2b(f"{self._seed}\0{run_id}\0{generation}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _next_seed(self) -> int:
        return self._following

    def _spawn(self, resident: Resident, child: ChildOperation, now: int, seq: int) -> Entry:
        self._following = self.seed_of(child.child_id, 1)
        return super()._spawn(resident, child, now, seq)

    def take_result(self, attempt: Attempt, value: Any, now: int) -> Turn | None:
        return None  # so that every turn is taken below

    def take_turn(self, resident: Resident, now: int) -> Turn | None:
        if self._memory is not None and resident.key and not resident.commands:
            self._rebuild(resident, self._memory)
        self._following = self.seed_of(resident.id, resident.run.generation + 1)
        return super().take_turn(resident, now)

    def _rebuild(self, resident: Resident, memory: MemoryStore) -> None:
        stored = memory._runs[resident.key]
        old = resident.run
        records = [from_row(row) for row in stored.journal[old.generation]]
        frontier = decode_frontier(stored.frontier) if stored.frontier is not None else None
        run = self._worker._new_run(old.spec, old.id, old.generation)
        resident.run = run  # before the replay: if it finds a divergence, the worker closes this one with the rest
        try:
            resident.commands = run.replay(records, frontier)
        finally:
            old.close()
        resident.written = ()
        for location, attempt in resident.attempts.items():
            attempt.operation = self._step(run, location, attempt.operation)
        resident.outcomes = [
            Outcome(self._step(run, outcome.operation.location, outcome.operation), outcome.body, outcome.at)
            for outcome in resident.outcomes
        ]

    def _step(self, run: Run, location: str, old: StepOperation) -> StepOperation:
        found = run.pending.get(location)
        return found if isinstance(found, StepOperation) else old
