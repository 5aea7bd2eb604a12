"""When the writer's thread needs the interpreter: a guess, made on the other thread.

A thread that comes back from SQLite waits until the interpreter is given to it, and nothing says so: whoever wants to
know would have to be told by a thread that cannot speak. But how long SQLite takes for a change is much the same from
one group to the next, so a group that should be done by now probably is.
"""

from __future__ import annotations

import time
from typing import Final

#: How much of each new measurement counts. A few groups are enough to follow a machine that gets faster or slower.
_WEIGHT: Final = 0.25
#: By how much the time of a sync is forgotten with every group: it is the least that was seen lately.
_FORGETTING: Final = 1.05


class Pace:
    """`began`, `ended` on the writer's thread, `needs_interpreter` on the loop's; each change is one assignment."""

    __slots__ = ("_change_seconds", "_changes", "_cpu", "_since", "_sync_seconds", "_was_asked")

    def __init__(self) -> None:
        self._change_seconds = 3e-6
        self._sync_seconds = 500e-6
        #: Since when SQLite works on a group, and how many changes it is; 0.0: it does not.
        self._since = 0.0
        self._changes = 0
        self._cpu = 0.0
        #: Whether somebody has stood aside for the group after this one. Once is enough: a guess may be wrong.
        self._was_asked = False

    def began(self, changes: int) -> None:
        """From now on the group, which is so many changes, is SQLite's."""
        self._changes = changes
        self._cpu = time.thread_time()
        self._was_asked = False
        self._since = time.monotonic()

    def ended(self) -> int:
        """The interpreter was given back. Returns how many changes it were."""
        since, self._since = self._since, 0.0
        if not self._changes:
            return 0
        # What the thread itself has worked, which is not what it has waited, for the disk or for the interpreter.
        cpu = time.thread_time() - self._cpu
        self._change_seconds += _WEIGHT * (cpu / self._changes - self._change_seconds)
        self._sync_seconds = min(self._sync_seconds * _FORGETTING, time.monotonic() - since - cpu)
        return self._changes

    def needs_interpreter(self) -> bool:
        """Whether a writer that has something to do cannot go on with it without the interpreter. Once for a group."""
        if self._was_asked:
            return False
        since = self._since
        if since and time.monotonic() < since + self._changes * self._change_seconds + self._sync_seconds:
            return False
        self._was_asked = True
        return True
