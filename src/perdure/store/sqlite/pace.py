"""When the loop's thread yields the GIL to the writer's thread.

A thread that comes back from SQLite waits until it gets the GIL: when the one that has it waits for something, or after
five milliseconds. By then a busy loop has often done all that it could have done meanwhile, and has to wait in turn. So
a loop that hands a large group to the writer waits until SQLite is at work on it, which needs no GIL
(docs/decisions/0100-yield-the-gil-to-an-idle-writer.md).

A writer that is busy already cannot say that it wants the GIL. But how long SQLite takes for a change is much the same
from one group to the next, so a group that should be done by now probably is.
"""

from __future__ import annotations

import threading
import time
from typing import Final

#: How much of each new measurement counts. A few groups are enough to follow a machine that gets faster or slower.
_WEIGHT: Final = 0.25
#: By how much the time of a sync is forgotten with every group: it is the least that was seen lately.
_FORGETTING: Final = 1.05


#: How long the loop's thread yields at most to a writer that is idle; 500 turns take it a third of a millisecond.
YIELD_SECONDS_MAX: Final = 0.002
#: The same for a writer that is busy and should want the GIL by now, by its pace. That may be wrong.
GUESS_SECONDS_MAX: Final = 0.0005


class Pace:
    """`began`, `ended` on the writer's thread, `probably_wants_gil` on the loop's; each change is one assignment."""

    __slots__ = ("_change_seconds", "_changes", "_cpu", "_since", "_sync_seconds", "_was_asked")

    def __init__(self) -> None:
        self._change_seconds = 3e-6
        self._sync_seconds = 500e-6
        #: Since when SQLite works on a group, and how many changes it is; 0.0: it does not.
        self._since = 0.0
        self._changes = 0
        self._cpu = 0.0
        #: Whether somebody has yielded to the group after this one. Once is enough: a guess may be wrong.
        self._was_asked = False

    def began(self, changes: int) -> None:
        """From now on the group, which is so many changes, is SQLite's."""
        self._changes = changes
        self._cpu = time.thread_time()
        self._was_asked = False
        self._since = time.monotonic()

    def ended(self) -> int:
        """The GIL was given back. Returns how many changes it were."""
        since, self._since = self._since, 0.0
        if not self._changes:
            return 0
        # What the thread itself has worked, which is not what it has waited, for the disk or for the GIL.
        cpu = time.thread_time() - self._cpu
        self._change_seconds += _WEIGHT * (cpu / self._changes - self._change_seconds)
        self._sync_seconds = min(self._sync_seconds * _FORGETTING, time.monotonic() - since - cpu)
        return self._changes

    def probably_wants_gil(self) -> bool:
        """Whether a writer that has something to do cannot go on with it without the GIL. Once for a group."""
        if self._was_asked:
            return False
        since = self._since
        if since and time.monotonic() < since + self._changes * self._change_seconds + self._sync_seconds:
            return False
        self._was_asked = True
        return True


class Yielding:
    """Lets the loop's thread wait until SQLite is at work on what it has handed over."""

    def __init__(self) -> None:
        self.pace = Pace()
        #: Held from the moment a large job is given to a writer that wants the GIL until it wants it no longer.
        self._waiting = threading.Lock()

    def is_worthwhile(self, *, is_idle: bool) -> bool:
        """Whether the writer can begin with a large job only with the GIL."""
        return is_idle or self.pace.probably_wants_gil()

    def prepare(self) -> None:
        """On the loop's thread, before the job is handed over."""
        self._waiting.acquire(blocking=False)  # it may be free or not: nobody need have waited for the last one

    def until_begun(self, *, is_idle: bool) -> None:
        """On the loop's thread, after that."""
        self._waiting.acquire(timeout=YIELD_SECONDS_MAX if is_idle else GUESS_SECONDS_MAX)

    def has_begun(self, changes: int) -> None:
        """On the writer's thread: from now on only SQLite works, on so many changes."""
        self.pace.began(changes)
        if self._waiting.locked():
            self._waiting.release()
