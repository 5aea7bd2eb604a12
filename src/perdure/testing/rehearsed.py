"""Turns as a test wants them: with a guard around workflow code, and with a replay before each of them.

The two places where the engine lets workflow code run are replaced on one worker: how it makes a run, and how it takes
a turn. Nothing global is touched, so tests may run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from perdure.engine.resident import Outcome, Resident
from perdure.engine.turns import TurnBuilder
from perdure.engine.worker import Worker
from perdure.errors import BadArgument
from perdure.kernel.commands import Command
from perdure.kernel.definitions import WorkflowSpec
from perdure.kernel.journal import Record, from_row
from perdure.kernel.operation import Frontier, StepOperation, decode_frontier
from perdure.kernel.run import Run
from perdure.store.base import Store, Turn
from perdure.store.memory import MemoryStore

Guard = Callable[[], AbstractContextManager[Any]]


def rehearse(worker: Worker, store: Store, *, always_replay: bool, guard: Guard | None) -> None:
    if guard is not None:
        worker._new_run = _guarded(worker, guard)  # type: ignore[method-assign]
    if always_replay:
        memory: Any = store
        while not isinstance(memory, MemoryStore) and hasattr(memory, "_store"):
            memory = memory._store
        if not isinstance(memory, MemoryStore):
            raise BadArgument("always_replay needs a store in memory.")
        worker._builder = _Replaying(worker, memory)


class _GuardedRun(Run):
    """All of a run's code runs inside `deliver` or `replay`."""

    guard: Guard

    def deliver(self, record: Record) -> list[Command]:
        with self.guard():
            return super().deliver(record)

    def replay(self, records: Sequence[Record], frontier: Frontier | None) -> list[Command]:
        with self.guard():
            return super().replay(records, frontier)


def _guarded(worker: Worker, guard: Guard) -> Callable[[WorkflowSpec, str, int], Run]:
    def new_run(spec: WorkflowSpec, run_id: str, generation: int) -> Run:
        run = _GuardedRun(
            spec,
            run_id,
            generation,
            latest=worker._registry.latest,
            arguments_check=worker._settings.arguments_check,
        )
        run.guard = guard
        return run

    return new_run


class _Replaying(TurnBuilder):
    """Throws the run away before each turn and rebuilds it from what is stored."""

    def __init__(self, worker: Worker, memory: MemoryStore) -> None:
        super().__init__(worker.id, worker._settings, worker.draw_seed)
        self._worker = worker
        self._memory = memory

    def take_turn(self, resident: Resident, now: int) -> Turn | None:
        if resident.key and not resident.commands:
            self._rebuild(resident)
        return super().take_turn(resident, now)

    def _rebuild(self, resident: Resident) -> None:
        stored = self._memory._runs[resident.key]
        old = resident.run
        records = [from_row(row) for row in stored.journal[old.generation]]
        frontier = decode_frontier(stored.frontier) if stored.frontier is not None else None
        run = self._worker._new_run(old.spec, old.id, old.generation)
        resident.run = run  # before the replay: if it finds a divergence, the worker closes this one with the rest
        try:
            resident.commands = run.replay(records, frontier)
        finally:
            old.close()
        resident.written.clear()
        for location, attempt in resident.attempts.items():
            attempt.operation = self._step(run, location, attempt.operation)
        resident.outcomes = [
            Outcome(self._step(run, outcome.operation.location, outcome.operation), outcome.body, outcome.at)
            for outcome in resident.outcomes
        ]

    def _step(self, run: Run, location: str, old: StepOperation) -> StepOperation:
        found = run.pending.get(location)
        return found if isinstance(found, StepOperation) else old
