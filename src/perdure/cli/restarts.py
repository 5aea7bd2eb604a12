"""Whether a child that ended is started again, and when."""

from __future__ import annotations

import random
import signal
from typing import Final

from perdure import limits
from perdure.cli.exits import ExitCode

#: How a worker ends that a restart does not help: the same command line, code and store would end it again.
INCURABLE: Final = frozenset({ExitCode.USAGE, ExitCode.STORE_LOST, ExitCode.NEEDS_MIGRATION})


class Backoff:
    """Pauses between the restarts of one child: each twice as long as the one before, until one has lived for a while.
    Drawn anew each time, so that children that died together do not come back together."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._deaths = 0

    def died(self, lived_seconds: float) -> float:
        """Seconds until the next start."""
        if lived_seconds >= limits.CHILD_SETTLED_SECONDS:
            self._deaths = 0
        pause = min(limits.CHILD_RESTART_SECONDS_MIN * 2.0**self._deaths, limits.CHILD_RESTART_SECONDS_MAX)
        self._deaths += 1
        return pause * self._rng.uniform(1 - limits.CHILD_RESTART_JITTER, 1 + limits.CHILD_RESTART_JITTER)


def is_incurable(code: int, *, was_ready: bool, refused: bool) -> bool:
    """`refused`: the child said itself that it cannot work with what it was given."""
    if was_ready:
        return code == ExitCode.STORE_LOST  # whatever else ends a worker that worked may not do so again
    return refused or code in INCURABLE


def manner(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def exit_code_of(code: int) -> int:
    """What this process ends with in the place of a child: a signal becomes 128 + its number, as shells have it."""
    return code if code >= 0 else 128 - code
