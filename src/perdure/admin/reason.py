"""What `why` answers, and how it writes times."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from perdure.admin.views import moment


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a run is not moving. `kind` is for programs, `text` for people; the rest is what the text is made of."""

    run_id: str
    #: completed, failed, cancelled, parked-..., paused, moved, arriving, no-worker, worker-died, worker-silent,
    #: worker-draining, unknown-workflow, suspect, due, cancelling, step-running, step-waiting, step-due,
    #: step-backoff, event, child, run, sleep, send, publish, reply, nothing
    kind: str
    text: str
    since: datetime | None = None
    until: datetime | None = None
    location: str = ""
    site: str = ""
    worker: str = ""
    #: Of the child, or the other run, that it waits for.
    child: Reason | None = None
    #: What else it waits for, and what else is worth knowing.
    also: tuple[str, ...] = ()


def clock(at: int) -> str:
    """A stored time."""
    return text_of(moment(at))


def text_of(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%SZ") if when is not None else "never"


def lasting(microseconds: int) -> str:
    return str(timedelta(seconds=max(0, microseconds // 1_000_000)))
