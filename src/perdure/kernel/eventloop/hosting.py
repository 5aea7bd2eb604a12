"""Where a run's loop runs: on a thread whose host loop is put aside for a turn, and can be watched from outside."""

from __future__ import annotations

import contextvars
import sys
from _thread import get_ident
from asyncio import events
from typing import TYPE_CHECKING, Any

from perdure.kernel.eventloop.generators import entry_of

if TYPE_CHECKING:
    from perdure.kernel.eventloop.loop import RunLoop

_get_running_loop, _set_running_loop = events._get_running_loop, events._set_running_loop


def is_of_run(loop: Any) -> bool:
    """Whether a loop is the loop of a run."""
    return getattr(loop, "is_of_run", False) is True


class running:  # reads as what it does: `with running(loop): ...`
    """Makes a run's loop the running one, whatever the host runs; puts everything back at the end.

    A worker enters once for all the turns of a batch: inside, another run's loop simply takes the place of the last.
    """

    __slots__ = ("_before", "_loop", "context", "hooks", "host")

    def __init__(self, loop: RunLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self.host = _get_running_loop()
        self.hooks = sys.get_asyncgen_hooks()
        self.context = contextvars.copy_context()
        thread = get_ident()
        self._before = hosts.get(thread)
        if not is_of_run(self.host):
            hosts[thread] = self
        _set_running_loop(self._loop)
        # The host's hooks would hand our async generators to the host loop.
        sys.set_asyncgen_hooks(_begin_generator, _leave_generator)

    def __exit__(self, *_: object) -> None:
        _set_running_loop(self.host)
        sys.set_asyncgen_hooks(*self.hooks)
        if self._before is None:
            del hosts[get_ident()]
        else:
            hosts[get_ident()] = self._before


#: What the host had running before runs took its place, by thread.
hosts: dict[int, running] = {}


def _begin_generator(generator: Any) -> None:
    loop: Any = _get_running_loop()
    if is_of_run(loop) and loop.owner is not None:
        loop.begin_generator(generator)


def _leave_generator(generator: Any) -> None:
    """Python hands over a generator that was left in the middle: see `kernel.eventloop.generators`."""
    entry = entry_of(generator)
    loop = entry.loop() if entry is not None else None
    if entry is None or loop is None or loop.stopped or entry.is_closing:
        return  # of a run that has ended: it is simply let go
    # In a collection the host's loop is the running one (`kernel.eventloop.collector`).
    if loop.running and _get_running_loop() is loop:
        loop.close_generator(entry, generator, loop.branch())
    else:
        entry.kept = generator


class TurnMonitor:
    """Where another thread can see whose turn it is: the loop whose code is running, while it is.

    Written by every turn, because the frames of a thread do not tell: reading the variables of a frame from outside
    destroys them while a debugger traces it.
    """

    __slots__ = ("loop",)

    def __init__(self) -> None:
        self.loop: RunLoop | None = None


#: For runs that nobody watches.
NO_MONITOR = TurnMonitor()
