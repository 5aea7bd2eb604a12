"""Making a failing plan smaller: leave faults out, as long as the world still goes wrong (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sim.plan import Fault

#: Worlds lived through at most.
TRIES_MAX = 300


def shrink(plan: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> tuple[Fault, ...]:
    """The smallest plan found that still fails. Without any faults, if the bug needs none."""
    tries = 0

    def still(candidate: Sequence[Fault]) -> bool:
        nonlocal tries
        tries += 1
        return tries <= TRIES_MAX and fails(candidate)

    left = tuple(plan)
    if not left or still(()):
        return ()
    size = max(1, len(left) // 2)
    while True:
        for start in range(0, len(left), size):
            candidate = left[:start] + left[start + size :]
            if candidate and still(candidate):
                left = candidate
                break
        else:
            if size == 1:
                return left
            size = max(1, size // 2)
        size = min(size, max(1, len(left) // 2))
