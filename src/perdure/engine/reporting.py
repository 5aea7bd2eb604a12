"""What a worker logs about runs: one line for each failed attempt, failed run, parked run and cancelled run.

Called only after the commit that made it durable, for what that commit added: a replay writes nothing, so it repeats no
line. Payloads are never logged. The text of an exception is: one line of it, bounded (`limits.ERROR_LINE_CHARS_MAX`);
what must not be in a log must not be in an exception's text either. The logger is `perdure.worker`; every record has
`run_id`. Failures are INFO, because callers hear of them by `result()`, and a program without a log of its own would
show anything above on stderr; a parked run is a WARNING: somebody has to act. See docs/how-to/run-workers.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from perdure.engine.resident import Outcome, Resident
from perdure.errors import one_line
from perdure.kernel import journal
from perdure.kernel.faults import PLACE
from perdure.kernel.journal import Fault, Record

logger = logging.getLogger("perdure.worker")


def log_failed_attempts(resident: Resident, outcomes: Sequence[Outcome]) -> None:
    """Attempts whose failure has just been recorded."""
    if not logger.isEnabledFor(logging.INFO):
        return
    for outcome in outcomes:
        body = outcome.body
        if isinstance(body, (journal.StepRetry, journal.StepFailed)):
            spec = outcome.operation.spec
            of = "" if spec.policy.max_attempts is None else f" of {spec.policy.max_attempts}"
            following = (
                f"next at {_moment(body.next_at)}" if isinstance(body, journal.StepRetry) else "no more attempts"
            )
            logger.info(
                "run %r: attempt %d%s of step %r failed: %s; %s",
                resident.id, body.attempt, of, outcome.operation.location, error_line(body.error), following,
                extra={"run_id": resident.id},
            )  # fmt: skip


def log_end(run_id: str, last: Record) -> None:
    """A run whose end has just been recorded."""
    match last.body:
        case journal.Failed(error):
            logger.info("run %r failed: %s", run_id, error_line(error), extra={"run_id": run_id})
        case journal.Cancelled(reason):
            logger.debug("run %r was cancelled: %s", run_id, one_line(reason), extra={"run_id": run_id})
        case _:
            pass


def log_parked(run_id: str, reason: str) -> None:
    """A run that has just been parked. Its whole reason is in the store."""
    logger.warning(
        "run %r is parked: %s (`perdure why %s` says more)", run_id, one_line(reason), run_id, extra={"run_id": run_id}
    )


def error_line(fault: Fault) -> str:
    """A recorded error in one line, with the place that raised it: `ValueError: no such card (orders.py:41)`."""
    name = fault.type.partition(":")[2]
    text = one_line(f"{name}: {fault.message}" if fault.message else name)
    places = PLACE.findall(fault.traceback)
    return f"{text} ({places[-1][0]}:{places[-1][1]})" if places else text


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
