"""What goes wrong in one simulation, drawn from its seed before it begins.

A plan is plain data: a failing one can be made smaller by leaving faults out, and written into a command line.
Each seed first draws which kinds of faults exist at all: few kinds, often, find more than all kinds, rarely.
"""

from __future__ import annotations

import random
from typing import NamedTuple

#: Of store calls, by their number: fails before it does anything, fails after it is done, answers late or never.
CALL_FAULTS = ("before", "after", "hang-before", "hang-after", "slow")
#: Of nodes and of the world, by time.
TIMED_FAULTS = ("crash", "pause", "expire", "leave", "deaf", "full")


class Fault(NamedTuple):
    """`at`: the number of a store call, or a moment in seconds. `node`: which worker. `seconds`: how long."""

    kind: str
    at: float
    node: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.kind in CALL_FAULTS:
            return f"{self.kind}:{self.at:g}:{self.node}:{self.seconds:g}"
        return f"{self.kind}:{self.at:.6f}:{self.node}:{self.seconds:g}"


def parse(text: str) -> tuple[Fault, ...]:
    """The inverse of `", ".join(map(str, plan))`."""
    faults: list[Fault] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        kind, at, node, seconds = part.split(":")
        faults.append(Fault(kind, float(at), int(node), float(seconds)))
    return tuple(faults)


def draw(rng: random.Random, workers: int, chaos_seconds: float) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    kinds = [kind for kind in (*CALL_FAULTS, *TIMED_FAULTS) if rng.random() < 0.4]
    for kind in kinds:
        if kind in CALL_FAULTS:
            rate = rng.choice([0.005, 0.02, 0.1])
            calls = [n for n in range(1, 500) if rng.random() < rate]
            seconds = {"slow": 1.0, "hang-before": 20.0, "hang-after": 20.0}.get(kind, 0.0)
            limit = 4 if kind.startswith("hang") else 40
            faults += [Fault(kind, n, 0, round(rng.uniform(0.05, seconds), 3) if seconds else 0) for n in calls[:limit]]
        else:
            for _ in range(rng.randint(1, 3)):
                at = round(rng.uniform(0, chaos_seconds) ** rng.choice([1.0, 0.5]) * rng.choice([1.0, 0.1]), 6)
                seconds = round(rng.choice([0.001, 0.3, 2.0, 8.0]) * rng.uniform(0.5, 1.5), 3)
                faults.append(Fault(kind, at, rng.randrange(workers), seconds))
    return tuple(faults)
