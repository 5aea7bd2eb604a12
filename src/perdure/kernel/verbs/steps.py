"""Calling a step: what `await charge(order)` does in workflow code."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import FunctionType
from typing import Any

from perdure.kernel.definitions import StepSpec
from perdure.kernel.eventloop.tasks import StepName, single_operation_codes
from perdure.kernel.operations.step import ask
from perdure.kernel.run import Run
from perdure.kernel.sites import caller_site
from perdure.kernel.verbs.saga import current_saga


class StepCall:
    """Describes calls of one step. Made once for each step: `call(run, args, kwargs)` is a coroutine that asks for it
    when it is awaited. Arguments are encoded at the call, so later changes of them do not reach the step."""

    __slots__ = ("_ask", "_encode", "_spec")

    def __init__(self, spec: StepSpec, name: str) -> None:
        self._spec = spec
        self._encode = spec.arguments.encode_call
        self._ask = _named(_ask, StepName(name)) if spec.undo is None else _named(_ask_undoable, name)

    def __call__(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        data, seen = self._encode(args, kwargs)
        coroutine: Coroutine[Any, Any, Any] = self._ask(run, self._spec, seen, data, caller_site(2))
        return coroutine


def _named(function: Any, name: str) -> Any:
    """The same function under another name, which its coroutines take: of the branch if one is put into a task, and of
    the warning if it is never awaited."""
    named = FunctionType(function.__code__, function.__globals__, str(name))
    named.__qualname__ = name
    return named


async def _ask(run: Run, spec: StepSpec, args: tuple[Any, ...] | None, data: bytes, site: str) -> Any:
    step = ask(run, spec, args, data, site)
    try:
        return await step.future
    except asyncio.CancelledError:
        run.give_up(step)
        raise


async def _ask_undoable(run: Run, spec: StepSpec, args: tuple[Any, ...] | None, data: bytes, site: str) -> Any:
    """A step with an `undo` of its own: in a saga, that is remembered."""
    asked = _ask(run, spec, args, data, site)
    saga = current_saga()
    if saga is None or spec.undo is None:
        return await asked
    return await saga.carry_out(asked, spec.undo, spec.name)


single_operation_codes.update((_ask.__code__, _ask_undoable.__code__))
