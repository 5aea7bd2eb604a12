"""What goes wrong in one simulation, drawn from its seed before it begins.

A plan is plain data: a failing one can be made smaller by leaving faults out, and written into a command line.
Each seed first draws which kinds of faults exist at all: few kinds, often, find more than all kinds, rarely.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import NamedTuple

#: Of store calls, by their number: fails before it does anything, fails after it is done, answers late or never.
CALL_FAULTS = ("before", "after", "hang-before", "hang-after", "slow")
#: Of nodes and of the world, by time.
TIMED_FAULTS = ("crash", "pause", "expire", "leave", "deaf", "full")

#: What else may go wrong, in worlds that are asked for it: see `Setting`. They are drawn from a generator of their
#: own, so that the plan of a seed is the same with and without them.
#: Of hosts, by time: every task is cancelled, and the loop ends a little later, without `close`, after it, or goes on.
HOST_FAULTS = ("cancel-all", "cancel-close", "cancel-on")
#: Of commits, by their number: one raises what is no error of a store, with nothing done, with all done, or because of
#: one of its runs, of which no turn can be stored from then on.
ODD_FAULTS = ("odd-before", "odd-after", "odd-turn")
#: Of commits, by their number: the worker stands still just before it, for so long that it is taken for dead; or turns
#: that fit but for one thing come before it.
ZOMBIE_FAULTS = ("zombie", "late")
#: By the number of a moment in the code of a workflow or a step: the garbage collector runs.
LITTER_FAULTS = ("collect",)
#: After all the others: workers die again and again, killed from outside or by a run. `seconds`: how long they live.
PLAGUE_FAULTS = ("kills", "poison")
MORE_FAULTS = {
    "hosts": HOST_FAULTS,
    "odd": ODD_FAULTS,
    "zombies": ZOMBIE_FAULTS,
    "litter": LITTER_FAULTS,
    "plague": PLAGUE_FAULTS,
}
#: Those whose `at` is a number and not a moment.
NUMBERED = frozenset({*CALL_FAULTS, *ODD_FAULTS, *ZOMBIE_FAULTS, *LITTER_FAULTS, *PLAGUE_FAULTS})


class Setting(NamedTuple):
    """What kind of world a seed is lived through in. `more`: keys of `MORE_FAULTS`; `store`: "memory" or "sqlite"."""

    more: frozenset[str] = frozenset()
    store: str = "memory"

    def __str__(self) -> str:
        """What to add to the command that repeats a seed: nothing for the usual worlds."""
        store = f" STORE={self.store}" if self.store != "memory" else ""
        return store + (f" MORE={','.join(sorted(self.more))}" if self.more else "")


#: The usual worlds.
USUAL = Setting()


def setting_of(more: str, store: str) -> Setting:
    """From the command line: `more` is a list with commas, or "all"; nothing, or "none", are the usual worlds."""
    kinds = set(MORE_FAULTS) if more == "all" else set(more.split(",")) - {"none", ""}
    if unknown := kinds - set(MORE_FAULTS):
        raise SystemExit(f"MORE is any of {', '.join(MORE_FAULTS)}, not {', '.join(sorted(unknown))}")
    if store not in ("", "memory", "sqlite"):
        raise SystemExit(f"STORE is memory or sqlite, not {store}")
    return Setting(frozenset(kinds), store or "memory")


class Fault(NamedTuple):
    """`at`: the number of a store call, or a moment in seconds. `node`: which worker. `seconds`: how long."""

    kind: str
    at: float
    node: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.kind in NUMBERED:
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


def draw_more(seed: int, workers: int, chaos_seconds: float, more: Collection[str]) -> tuple[Fault, ...]:
    """The faults of `MORE_FAULTS` that were asked for; each kind the same whichever others there are."""
    faults: list[Fault] = []
    for kind in (kind for name, kinds in MORE_FAULTS.items() if name in more for kind in kinds):
        rng = random.Random(f"more {kind} {seed}")
        match kind:
            case "cancel-all" | "cancel-close" | "cancel-on":
                for _ in range(rng.randint(0, 2)):
                    at = round(rng.uniform(0, chaos_seconds) ** rng.choice([1.0, 0.5]) * rng.choice([1.0, 0.1]), 6)
                    faults.append(Fault(kind, at, rng.randrange(workers), rng.choice([0.0, 0.001, 0.05, 0.5])))
            case "kills":
                faults += [Fault(kind, 1, 0, rng.choice([1.0, 2.0, 7.0]))] if rng.random() < 0.6 else []
            case "poison":
                faults += [Fault(kind, 1, 0, rng.choice([0.0, 0.3, 2.0]))] if rng.random() < 0.6 else []
            case "collect":
                rate = rng.choice([0.05, 0.3, 1.0])
                faults += [Fault(kind, n) for n in range(1, 300) if rng.random() < rate]
            case "late":
                rate = rng.choice([0.1, 0.3, 1.0])
                faults += [Fault(kind, n) for n in range(1, 200) if rng.random() < rate]
            case "zombie":
                rate = rng.choice([0.02, 0.1, 0.3])
                calls = [n for n in range(1, 200) if rng.random() < rate][:12]
                faults += [
                    Fault(kind, n, 0, round(rng.choice([0.01, 0.5, 3.0]) * rng.uniform(0.5, 1.5), 3)) for n in calls
                ]
            case _:
                rate = rng.choice([0.0, 0.01, 0.05])
                faults += [Fault(kind, n, rng.randrange(100)) for n in range(1, 100) if rng.random() < rate]
    return tuple(faults)
