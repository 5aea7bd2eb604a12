"""What a run waits for, matched against what a test asks, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from perdure.authoring.step import Step
from perdure.authoring.workflow import Workflow
from perdure.errors import BadArgument
from perdure.kernel.operations.base import Operation
from perdure.kernel.operations.child import ChildOperation
from perdure.kernel.operations.receive import ReceiveOperation
from perdure.kernel.operations.step import StepOperation

#: An event type, a step, a workflow, or a kind, name or location as text; None: anything but a step.
Wanted: TypeAlias = type | Step[..., Any] | Workflow[..., Any] | str | None

_SHOWN_MAX = 5


def matches(operation: Operation, wanted: Wanted) -> bool:
    match wanted:
        case None:
            return not isinstance(operation, StepOperation)
        case str():
            last = operation.location.rpartition("/")[2]
            return wanted in (operation.kind, operation.location, last, last.partition("#")[0])
        case Step():
            return isinstance(operation, StepOperation) and operation.spec.function is wanted.function
        case Workflow():
            return isinstance(operation, ChildOperation) and operation.spec.name == wanted.name
        case type():
            return isinstance(operation, ReceiveOperation) and any(
                spec.type is wanted for spec in operation.types.specs.values()
            )
        case _:
            raise BadArgument(f"waiting_for is an event type, a step, a workflow or a text, not {wanted!r}.")


def wanted_text(wanted: Wanted) -> str:
    match wanted:
        case None:
            return "anything"
        case str():
            return repr(wanted)
        case Step():
            return f"step {wanted.name!r}"
        case Workflow():
            return f"child {wanted.name!r}"
        case _:
            return f"event {getattr(wanted, '__name__', wanted)!r}"


def describe_waits(run_id: str, operations: Sequence[Operation]) -> str:
    """One sentence for people."""
    if not operations:
        return f"Run {run_id!r} is not in memory, or waits for nothing."
    shown = [f"{operation.describe()} ({operation.site})" for operation in operations[:_SHOWN_MAX]]
    more = len(operations) - len(shown)
    return f"Run {run_id!r} waits for {', '.join(shown)}{f' and {more} more' if more else ''}."
