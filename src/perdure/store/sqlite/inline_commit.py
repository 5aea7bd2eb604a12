"""When a small job is committed on the loop's own thread.

Waking the writer's thread and then the loop costs about 150 microseconds where an fsync takes 200, so a small job that
finds the writer idle and its own loop with nothing else to do is committed on the spot. The loop is unresponsive for
the length of one fsync, so this stops for a while when the disk is slow, and never waits for a lock.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

#: A commit on the loop's thread that took longer than this was too long. Ten times a good fsync.
INLINE_SECONDS_MAX: Final = 0.003
#: The loop's thread is then owed this many times as long without one, so slow commits take a twentieth of its time,
#: and is left alone once it is owed more than so many seconds: by the fifth commit of a slow disk, not by a hiccup of a
#: good one, of which there are several a second.
INLINE_PAUSE_FACTOR: Final = 20.0
INLINE_OWED_SECONDS_MAX: Final = 1.0
#: Answers in a row that may be given without letting the loop look at its sockets and timers: about a
#: millisecond.
INLINE_STREAK_MAX: Final = 4


class InlineCommit:
    """Whether the loop's thread can afford a commit, by what the last ones took."""

    __slots__ = ("_began", "_owed_until", "_streak")

    def __init__(self) -> None:
        #: Until when the loop's thread is owed time without slow commits.
        self._owed_until = 0.0
        self._streak = 0
        self._began = 0.0

    def is_welcome(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it delays nobody: neither this loop, nor because the disk is slow."""
        # What else the loop has to do. Not public; loops without it (uvloop) simply take the other way.
        waiting: Any = getattr(loop, "_ready", True)
        return not waiting and time.monotonic() >= self._owed_until - INLINE_OWED_SECONDS_MAX

    def begin(self) -> None:
        """A commit begins, on the thread that has the connection."""
        self._began = time.monotonic()

    def end(self) -> None:
        """It is over."""
        ended = time.monotonic()
        if (seconds := ended - self._began) > INLINE_SECONDS_MAX:
            self._owed_until = max(self._owed_until, ended) + seconds * INLINE_PAUSE_FACTOR

    def may_answer_at_once(self) -> bool:
        """Whether the caller may run on without the loop. A coroutine that awaits a future that is done does, so a
        chain of commits would starve everything else (tests/stores/test_sqlite_inline_commit.py)."""
        self._streak = (self._streak + 1) % INLINE_STREAK_MAX
        return self._streak > 0
