"""Turns as a test wants them: seeds that can be repeated, a guard around workflow code, a replay before each of them.

The places where the engine lets workflow code run are replaced on one worker: how it makes a run, and how it takes a
turn. Nothing global is touched, so tests may run side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any

from perdure.engine.resident import Resident
from perdure.engine.worker import Worker
from perdure.errors import BadArgument
from perdure.kernel.arrivals import StepOutcome
from perdure.kernel.commands import Command
from perdure.kernel.frontier import Frontier, decode_frontier
from perdure.kernel.journal import Record
from perdure.kernel.operations.step import StepOperation
from perdure.kernel.run import Run
from perdure.store.items import decode_journal
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Store
from perdure.testing.memory import answer_of, memory_below

Guard = Callable[[], AbstractContextManager[Any]]


def rehearse(worker: Worker, store: Store, *, seed: int, always_replay: bool, guard: Guard | None) -> None:
    if guard is not None:
        worker.runs.run_class = _guarded(guard)
    memory = memory_below(store)
    if always_replay and memory is None:
        raise BadArgument("always_replay needs a store in memory.")
    worker.attempts.fast_path = None  # so that every turn is taken in the same way
    worker.turns.draw_seed = functools.partial(_seed_of, seed)
    if always_replay and memory is not None:
        worker.turns.before = functools.partial(_rebuild, worker, memory)


def _seed_of(seed: int, run_id: str, generation: int) -> int:
    """A seed that depends on the run alone. With seeds drawn one after another, a child started after a crash would
    draw other lots than one started before."""
    digest = blake2b(f"{seed}\0{run_id}\0{generation}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _rebuild(worker: Worker, memory: MemoryStore, resident: Resident) -> None:
    """Put a run in the place of the old one that was rebuilt from the journal."""
    if not resident.key or resident.arrivals.commands:
        return
    (stored,) = answer_of(memory.load([resident.key]))
    old, arrivals = resident.run, resident.arrivals
    records = decode_journal(stored)
    frontier = decode_frontier(stored.run.frontier) if stored.run.frontier is not None else None
    run = worker.runs.go_on(old.spec, old.id, old.generation)
    resident.run = run  # before the replay: if it finds a divergence, the worker closes this one with the rest
    try:
        arrivals.commands = run.replay(records, frontier)
    finally:
        old.close()
    arrivals.written = ()
    for location, attempt in resident.attempts.items():
        attempt.operation = _step(run, location, attempt.operation)
    arrivals.outcomes = [
        StepOutcome(_step(run, outcome.operation.location, outcome.operation), outcome.body, outcome.at)
        for outcome in arrivals.outcomes
    ]


def _step(run: Run, location: str, old: StepOperation) -> StepOperation:
    found = run.pending.get(location)
    return found if isinstance(found, StepOperation) else old


def _guarded(guard: Guard) -> type[Run]:
    class GuardedRun(Run):
        """All of a run's code runs inside `hand_over` or `replay`."""

        def hand_over(self, record: Record) -> None:
            with guard():
                super().hand_over(record)

        def replay(self, records: Sequence[Record], frontier: Frontier | None) -> list[Command]:
            with guard():
                return super().replay(records, frontier)

    return GuardedRun
