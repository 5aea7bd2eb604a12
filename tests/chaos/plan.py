"""What goes wrong when, drawn from a seed: so that a failure can be lived through again (`make chaos SEED=7`).

The faults are the same each time; what they hit is not, since processes and servers have a pace of their own.
"""

from __future__ import annotations

import random
from typing import NamedTuple

#: Workers in the fleet.
WORKERS = 4
#: How often each kind is drawn, beside the others. A seed has not all of them: a fault that comes alone finds other
#: things than one among many.
_WEIGHTS = {
    "kill": 3,
    "stop": 3,
    "restart": 2,
    "terminate": 3,
    "cancel": 2,
    "cut": 3,
    "cut before commits": 5,
    "cut after commits": 5,
    "mute": 2,
    "silence": 2,
    "trickle": 1,
    "slow": 2,
    "refuse": 1,
    "stop a backend": 2,
    "lock": 2,
}
#: Something of each kind that must be in every plan.
_ALWAYS = ("kill", "stop", "restart", "terminate", "cut before commits", "cut after commits", "silence")
_EVERYBODY = -1


class Fault(NamedTuple):
    """`at`, `seconds`: since the beginning, and how long it lasts. `whom`: a worker; WORKERS: the clients; -1: all."""

    at: float
    kind: str
    whom: int
    seconds: float
    count: int

    def __str__(self) -> str:
        whom = {_EVERYBODY: "all", WORKERS: "the clients"}.get(self.whom, f"worker {self.whom}")
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:6.1f} s  {self.kind} {f'({self.count}) ' if self.count else ''}: {whom}{lasts}"


class Plan(NamedTuple):
    seed: int
    seconds: float
    runs: int
    #: What the workers are registered with.
    lease: float
    faults: list[Fault]

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.runs} runs, {self.seconds:g} s, lease {self.lease:g} s"
        return "\n".join([head, *map(str, self.faults)])


def draw(seed: int, seconds: float, runs: int) -> Plan:
    rng = random.Random(seed)
    lease = rng.choice([3.0, 5.0, 10.0]) if seconds >= 60 else 2.0
    chosen = {kind: weight for kind, weight in _WEIGHTS.items() if kind in _ALWAYS or rng.random() < 0.6}
    pause = rng.choice([1.0, 2.0, 4.0]) if seconds >= 60 else 1.0
    kinds = list(_ALWAYS)
    rng.shuffle(kinds)
    faults: list[Fault] = []
    at = rng.uniform(0.5, 2.0)
    while at < seconds:
        kind = kinds.pop() if kinds else rng.choices(list(chosen), list(chosen.values()))[0]
        faults.append(_fault(rng, at, kind, seconds, lease))
        at += rng.expovariate(1 / pause)
    return Plan(seed, seconds, runs, lease, faults)


def _fault(rng: random.Random, at: float, kind: str, seconds: float, lease: float) -> Fault:
    whom = rng.choice([_EVERYBODY, *range(WORKERS), WORKERS])
    worker = rng.randrange(WORKERS)
    short = min(1.0, seconds / 60)
    match kind:
        case "kill":
            return Fault(at, kind, worker, rng.uniform(0.0, 6.0) * short, 0)
        case "stop":
            return Fault(at, kind, worker, rng.choice([0.5, 0.9 * lease, 1.5 * lease]), 0)
        case "restart":
            return Fault(at, kind, _EVERYBODY, 0.0, 0)
        case "cut before commits" | "cut after commits":
            return Fault(at, kind, whom, 0.0, rng.choice([1, 3, 10, 30]))
        case "silence":
            return Fault(at, kind, whom, 15.0 * short, 0)
        case "trickle" | "slow":
            return Fault(at, kind, whom, rng.uniform(2.0, 10.0) * short, 0)
        case "refuse":
            return Fault(at, kind, whom, rng.uniform(1.0, 5.0) * short, 0)
        case "stop a backend" | "lock":
            return Fault(at, kind, _EVERYBODY, rng.uniform(1.0, 8.0) * short, 0)
        case _:
            return Fault(at, kind, whom, 0.0, 0)
