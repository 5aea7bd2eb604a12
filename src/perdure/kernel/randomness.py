"""Seeded draws: random numbers that are the same on every replay and need no record.

Each run has a seed in its `Started` record. A draw is a hash of the seed and a counter, so it costs about a
microsecond and no state beyond the counter.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

from perdure.kernel.values.digests import blake

if TYPE_CHECKING:
    from perdure.kernel.run import Run


class SeededRandom(random.Random):
    """A `random.Random` whose bits come from a seed and a counter; every method of `Random` works on it."""

    def __init__(self, seed: int, salt: str = "") -> None:
        self._key = f"{seed}/{salt}".encode()[:64]
        self._counter = 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        if k == 0:
            return 0
        size = (k + 7) // 8
        data = b""
        while len(data) < size:
            self._counter += 1
            data += blake(self._counter.to_bytes(8, "big"), key=self._key)
        return int.from_bytes(data[:size], "big") >> (size * 8 - k)

    def random(self) -> float:
        return self.getrandbits(53) * 2.0**-53

    def randbytes(self, n: int) -> bytes:
        return self.getrandbits(n * 8).to_bytes(n, "big")

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """Reseeding would be global in the module `random`; here the run's own seed stands."""

    def getstate(self) -> tuple[Any, ...]:
        return ("perdure", self._counter)

    def setstate(self, state: tuple[Any, ...]) -> None:
        _, self._counter = state

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self.getrandbits(128), version=4)


def randomness_of(run: Run) -> SeededRandom:
    """A run's source of randomness, or that of the iteration it is in. Made on first use: its state is large, and most
    runs never draw."""
    if run.loops is not None and (scope := run.loop.branch().scope) is not None:
        return scope.randomness
    if run.random is None:
        run.random = SeededRandom(run.seed)
    return run.random
