"""Turns that come too late, by every route: what a worker stored before, about a run as it is now, but for one thing.

Workers that stand still send such turns by themselves, but rarely: between two of them most of a fence could be gone
and nobody would notice (`docs/reference/mutations.md`). So a world remembers turns of each shape as workers send them,
and sends one again for another run, in which exactly one of the things that a store compares does not fit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.store.memory import MemoryStore
from perdure.store.model import CLAIMABLE
from perdure.store.turn import Entry, Turn, goes_from_step_to_step
from sim.plan import Fault

#: What a store compares. Each is wrong in some late turn.
CONDITIONS = ("epoch", "generation", "seq", "status")
#: Which statement of a store a turn goes by.
SHAPES = ("step to step", "open", "end", "continue")


class Late(NamedTuple):
    """`what` is wrong with these turns. They come in a call of their own, or in that of the next commit."""

    what: str
    turns: list[Turn]
    is_alone: bool


class LateTurns:
    """Which commits of a world are preceded by turns that must be refused."""

    def __init__(self, seed: int, plan: Sequence[Fault], memory: MemoryStore) -> None:
        self._rng = random.Random(f"late {seed}")
        self._memory = memory
        self._numbers = {int(fault.at) for fault in plan if fault.kind == "late"}
        self._commits = 0
        self._samples: dict[str, Turn] = {}

    def next_commit(self, turns: Sequence[Turn]) -> Late | None:
        """What comes before or with this commit; none if the plan has nothing, or nothing suits."""
        if not self._numbers:
            return None
        for turn in turns:
            if all(entry.effect is None for entry in turn.entries):
                self._samples[_shape(turn)] = turn
        self._commits += 1
        if self._commits not in self._numbers or not self._samples:
            return None
        shape = self._rng.choice(sorted(self._samples))
        condition = self._rng.choice(CONDITIONS)
        own = {turn.key for turn in turns}
        found = [turn for turn in self._forged(condition, self._samples[shape]) if turn.key not in own]
        self._rng.shuffle(found)
        # One alone, two, or one in a group whose others are in time: a store has statements for each.
        count, is_alone = self._rng.choice([(1, True), (2, True), (1, False)])
        return Late(f"{condition}, {shape}", found[:count], is_alone) if found else None

    def end(self) -> None:
        self._numbers.clear()

    def _forged(self, condition: str, sample: Turn) -> Iterator[Turn]:
        """The sample for every run of which it can be wrong in this way."""
        for run in self._memory.tables.runs.values():
            epoch, generation, seq = run.epoch, run.generation, run.next_seq
            if (run.status in CLAIMABLE) is (condition == "status"):
                continue
            match condition:
                case "epoch":
                    epoch -= 1
                case "generation":
                    generation += -1 if generation > 1 else 1
                case "seq":
                    seq += self._rng.choice([-1, 1])
                case _:
                    pass
            if goes_from_step_to_step(sample) and generation != 1:
                continue  # there are none of another generation
            yield _for_run(sample, run.key, epoch, generation, seq)


def _shape(turn: Turn) -> str:
    if goes_from_step_to_step(turn):
        return "step to step"
    if turn.continued is not None:
        return "continue"
    return "end" if turn.status.terminal else "open"


def _for_run(sample: Turn, key: int, epoch: int, generation: int, seq: int) -> Turn:
    entries = [Entry(entry.row._replace(seq=seq + place)) for place, entry in enumerate(sample.entries)]
    changes: dict[str, Any] = {
        "key": key, "epoch": epoch, "generation": generation, "expected_seq": seq, "entries": entries,
        "consumed": (), "notice": None, "pruned": (), "waits": None, "returned": (), "dead": (),
    }  # fmt: skip
    return msgspec.structs.replace(sample, **changes)
