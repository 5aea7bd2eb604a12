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

from perdure.admin.views import error_line
from perdure.engine.resident import Resident
from perdure.errors import describe_line, one_line
from perdure.kernel.arrivals import StepOutcome
from perdure.kernel.commands import Command, Log, Warn
from perdure.kernel.journal import Record
from perdure.kernel.operations.step import failure_of
from perdure.kernel.outcomes import EndCancelled, Fail

logger = logging.getLogger("perdure.worker")
run_logger = logging.getLogger("perdure.run")


def log_failed_attempts(resident: Resident, outcomes: Sequence[StepOutcome]) -> None:
    """Attempts whose failure has just been recorded."""
    if not logger.isEnabledFor(logging.INFO):
        return
    for outcome in outcomes:
        failure = failure_of(outcome.body)
        if failure is not None:
            spec = outcome.operation.spec
            of = "" if spec.policy.max_attempts is None else f" of {spec.policy.max_attempts}"
            following = "no more attempts" if failure.next_at is None else f"next at {_moment(failure.next_at)}"
            logger.info(
                "run %r: attempt %d%s of step %r failed: %s; %s",
                resident.id, failure.attempt, of, outcome.operation.location, error_line(failure.error), following,
                extra={"run_id": resident.id},
            )  # fmt: skip


def log_commands(run_id: str, commands: Sequence[Command]) -> None:
    """Lines that workflow code asked for, and warnings to its author; other commands are passed over."""
    for command in commands:
        if isinstance(command, Log):
            try:
                run_logger.log(command.level, command.message, *command.args, extra={"run_id": run_id})
            except Exception as error:  # of an argument's class or a filter; the run must not wait for it for ever
                run_logger.warning("a line of run %s could not be logged: %s", run_id, describe_line(error))
        elif isinstance(command, Warn):
            run_logger.warning("%s", command.message, extra={"run_id": run_id})


def log_end(run_id: str, last: Record) -> None:
    """A run whose end has just been recorded."""
    match last.body.outcome():
        case Fail(error):
            logger.info("run %r failed: %s", run_id, error_line(error), extra={"run_id": run_id})
        case EndCancelled(reason):
            logger.debug("run %r was cancelled: %s", run_id, one_line(reason), extra={"run_id": run_id})
        case _:
            pass


def log_parked(run_id: str, reason: str) -> None:
    """A run that has just been parked. Its whole reason is in the store."""
    logger.warning(
        "run %r is parked: %s (`perdure why %s` says more)", run_id, one_line(reason), run_id, extra={"run_id": run_id}
    )


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
