"""Hooks of `on_retry`: they hear only of failures that are durable, and break nothing.

A hook that raises is only logged; what is left to be run of an async one is for the worker to run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

from perdure.authoring.options import FailedAttempt
from perdure.engine.host import is_interrupt
from perdure.engine.resident import Resident
from perdure.kernel.operations.step import failure_of
from perdure.kernel.values.faults import decode_error

logger = logging.getLogger("perdure.steps")


def call_retry_hooks(resident: Resident) -> list[Coroutine[Any, Any, None]]:
    """Tell `on_retry` hooks about attempts whose failure is now recorded. A hook that raises is only logged. Returns
    what is left to be run of those that are async."""
    failures, resident.failures = resident.failures, ()
    left: list[Coroutine[Any, Any, None]] = []
    for outcome in failures:
        operation, body = outcome.operation, outcome.body
        failure = failure_of(body)
        if failure is None or operation.spec.on_retry is None:
            continue
        error = decode_error(failure.error)
        failed = FailedAttempt(resident.id, operation.location, failure.attempt, error, failure.next_at)
        try:
            answer: object = operation.spec.on_retry(failed)
            if inspect.isawaitable(answer):  # which its class may answer by raising
                left.append(_rest_of_hook(operation.location, answer))
        except BaseException as raised:
            _report_hook(operation.location, raised)
    return left


async def _rest_of_hook(location: str, answer: Awaitable[object]) -> None:
    try:
        await answer
    except asyncio.CancelledError:  # the engine is closed, or the loop ends
        raise
    except BaseException as error:
        _report_hook(location, error)


def _report_hook(location: str, error: BaseException) -> None:
    if is_interrupt(error):
        raise error
    logger.error("the on_retry hook of step %r raised", location, exc_info=error)
