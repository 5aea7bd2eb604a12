"""The run's own time: `sleep`, `sleep_until`, `now`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from perdure import limits
from perdure.errors import BadArgument
from perdure.given import an_instance, shown
from perdure.kernel.eventloop.loop import MICROSECONDS
from perdure.kernel.eventloop.tasks import RunFuture, single_operation_codes
from perdure.kernel.operations import timer
from perdure.kernel.run import Run
from perdure.kernel.verbs.checks import check_operation_name
from perdure.kernel.verbs.current import current_run
from perdure.kernel.verbs.durations import Duration, positive_seconds_of


async def sleep(duration: Duration, *, name: str = "sleep") -> None:
    """Wait, over any number of restarts. Zero returns at once; negative is refused.

    >>> await sleep("30 days")
    """
    run = current_run("sleep")
    seconds = positive_seconds_of(duration, "the duration of a sleep")
    await _sleep_to(run, run.now + round(seconds * MICROSECONDS), check_operation_name(name))


async def sleep_until(when: datetime, *, name: str = "sleep") -> None:
    """Wait for a moment, given with a time zone. A moment in the past returns at once."""
    run = current_run("sleep_until")
    moment = _moment_of(when)
    if moment is None:
        raise BadArgument(
            f"sleep_until needs a datetime with a time zone, not {shown(when)}: without one it means another moment on "
            "another machine. Write for example datetime(2030, 1, 1, tzinfo=timezone.utc)."
        )
    await _sleep_to(run, min(moment, limits.NEVER), check_operation_name(name))


async def _sleep_to(run: Run, at: int, name: str) -> None:
    if at <= run.now:
        return
    future = RunFuture(loop=run.loop)

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    future.operation = timer.ask(run, name, at, wake, 3)
    await future


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment_of(when: Any) -> int | None:
    """Microseconds since 1970 of a datetime; None without a zone, also with one that does not know its offset."""
    try:
        offset = datetime.utcoffset(when) if an_instance(when, datetime) else None
        if offset is None:
            return None
        naive: datetime = datetime.replace(when, tzinfo=None)
        return (naive - _EPOCH.replace(tzinfo=None) - offset) // timedelta(microseconds=1)
    except Exception:  # the zone is code of the user
        return None


def now() -> datetime:
    """The run's own time, in UTC: the same on every replay. It moves when something is recorded."""
    return _EPOCH + timedelta(microseconds=current_run("now").now)


single_operation_codes |= {function.__code__ for function in (sleep, sleep_until)}
