"""Commits that raise what no store should raise: a bug, a value that cannot be encoded, no memory left.

A run may be chosen as the culprit: then no turn of it can be stored until the end of the chaos, in whatever company it
comes, and it may be parked. Nobody else may: a commit that raises now and then, with nothing done or with all done, is
repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from perdure.store.model import RunKey
from perdure.store.turn import Turn
from sim.plan import ODD_FAULTS, Fault

ERRORS: tuple[Exception, ...] = (
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    AttributeError("'NoneType' object has no attribute 'execute'"),
    RuntimeError("dictionary changed size during iteration"),
    MemoryError(),
    ValueError("embedded null character"),
    TypeError("unhashable type: 'Odd'"),
)

#: A turn that is alone may be refused so often before its run is parked.
LONE_TRIES = 3


class OddCommits:
    """Which commits of a world raise."""

    def __init__(self, plan: Sequence[Fault]) -> None:
        self._zombies = {int(fault.at): fault.seconds for fault in plan if fault.kind == "zombie"}
        self._faults = {int(fault.at): fault for fault in plan if fault.kind in ODD_FAULTS}
        self._commits = 0
        #: Runs of which no turn can be stored now, and why.
        self._cursed: dict[RunKey, Exception] = {}
        #: How often each turn was refused when it came alone, by its run and its first record.
        self._struck: Counter[tuple[RunKey, int]] = Counter()
        self.culprits: set[RunKey] = set()

    def next_commit(self, turns: Sequence[Turn]) -> tuple[str, Exception] | None:
        """Which fault befalls this commit, and what it raises."""
        self._commits += 1
        fault = self._faults.get(self._commits)
        if fault is not None and turns:
            error = ERRORS[fault.node % len(ERRORS)]
            if fault.kind == "odd-turn":
                chosen = turns[fault.node % len(turns)].key
                self._cursed[chosen] = error
                self.culprits.add(chosen)
            else:
                if len(turns) == 1:
                    self._strike(turns[0])
                return fault.kind, error
        for turn in turns:
            if turn.key in self._cursed:
                return "odd-turn", self._cursed[turn.key]
        return None

    def _strike(self, turn: Turn) -> None:
        which = turn.key, turn.expected_seq
        self._struck[which] += 1
        if self._struck[which] >= LONE_TRIES:
            self.culprits.add(turn.key)

    @property
    def stands_still(self) -> float:
        """For how many seconds the worker does before this commit."""
        return self._zombies.get(self._commits, 0.0)

    def end(self) -> None:
        """Everything can be stored from now on."""
        self._faults.clear()
        self._zombies.clear()
        self._cursed.clear()


def again(error: Exception) -> Any:
    """A fresh one: an exception that is raised twice drags its first traceback along."""
    return type(error)(*error.args)
