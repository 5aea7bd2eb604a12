"""Timers: sleeps and timeouts. Setting one writes nothing, since its deadline follows from the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure import limits
from perdure.kernel.journal import Body, Record
from perdure.kernel.operations.base import Operation, never, settle
from perdure.kernel.sites import caller_site

if TYPE_CHECKING:
    from perdure.kernel.run import Run


class TimerFired(Body, frozen=True, gc=False):
    """A sleep or timeout came due."""

    kind = "timer_fired"
    about = "timer"
    settles = True

    site: str = ""

    def apply(self, run: Run, record: Record) -> None:
        settle(run, record, TimerOperation).fire()


class TimerOperation(Operation, eq=False):
    """A sleep or a timeout."""

    kind = "timer"
    rank = 5

    at: int
    fire: Callable[[], None]

    def deadline(self) -> int | None:
        return self.at

    def fired(self) -> Body:
        """Its record, when it has come due."""
        return TimerFired(self.site)


def ask(run: Run, name: str, at: int, fire: Callable[[], None], site_depth: int = 2) -> TimerOperation:
    if run.outcome is not None or run.closed:
        # Without raising: asyncio sets timers where it does not expect to be cancelled.
        return never(TimerOperation(name, 0, 0, "", limits.NEVER, fire))
    location = run.locate(name)
    # The deadline a replay derives can only differ if the code's duration changed; the first one stands.
    at = run.first_deadlines.get(location, at)
    site = caller_site(site_depth) or run.loop.branch().site
    timer = TimerOperation(location, run.count(), run.now, site, at, fire)
    run.pending.add(timer)
    if (scope := run.scope()) is not None:
        scope.watch(timer)
    return timer
