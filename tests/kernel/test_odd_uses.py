"""Whatever code does with the objects it can reach: it gets an error or nothing happens, and the run goes on."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Engine, RunFailed, step, workflow
from perdure.authoring.step import Step
from perdure.kernel.operations.step import ask
from perdure.kernel.run import Run
from support.lives import run_async


@step
async def increment(number: int) -> int:
    return number + 1


class Uninitialised(Step[Any, Any]):
    def __init__(self) -> None:
        pass


def with_handle(change: Callable[[Any], object]) -> Callable[[Any], None]:
    def use(loop: Any) -> None:
        change(loop.call_soon(int))

    return use


def owner(loop: Any) -> Run:
    run: Run = loop.owner
    return run


#: What workflow code does in the middle of its turn, and the error it gets; None: none, it goes on.
USES: dict[str, tuple[Callable[[Any], Any], type[Exception] | None]] = {
    "call_soon without arguments": (lambda loop: loop.call_soon(), None),
    "call_soon of None": (lambda loop: loop.call_soon(None), None),
    "call_soon with an odd context": (lambda loop: loop.call_soon(int, context="x"), None),
    "call_soon with an odd keyword": (lambda loop: loop.call_soon(callback=int), TypeError),
    "a handle with an odd call": (with_handle(lambda handle: setattr(handle, "call", 5)), None),
    "a handle with an empty call": (with_handle(lambda handle: setattr(handle, "call", ())), None),
    "a handle without a call": (with_handle(lambda handle: delattr(handle, "call")), None),
    "a handle without a context": (with_handle(lambda handle: setattr(handle, "context", None)), None),
    "callbacks that go away": (lambda loop: loop.call_soon(loop._ready.clear), None),
    "a step that was not initialised": (lambda loop: Step.__new__(Step)(1), AttributeError),
    "a subclass that was not initialised": (lambda loop: Uninitialised()(1), AttributeError),
    "a copy of a step": (lambda loop: copy.copy(increment)(1).close(), None),
    "the call of a step with something else": (lambda loop: Step.__call__(object(), 1), AttributeError),  # type: ignore[arg-type]
    "the call of a step with nothing": (lambda loop: Step.__call__(), TypeError),  # type: ignore[call-arg]
    "a step without its arguments": (lambda loop: increment(), TypeError),  # type: ignore[call-arg]
    "a task that was not initialised": (
        lambda loop: hash((task := type(asyncio.current_task())).__new__(task)),
        AttributeError,
    ),
    "an operation of nothing": (lambda loop: ask(owner(loop), None, None, None, None), AttributeError),  # type: ignore[arg-type]
    "a record that is none": (lambda loop: owner(loop).deliver(None), AttributeError),  # type: ignore[arg-type]
    "no record": (lambda loop: owner(loop).deliver(), TypeError),  # type: ignore[call-arg]
    "a location of a number": (lambda loop: loop.root.locate(5), None),
    "a branch without its path": (lambda loop: setattr(loop.root, "path", None), None),
}


@workflow
async def uses(what: str) -> int:
    total = await increment(0)
    USES[what][0](asyncio.get_running_loop())
    total = await increment(total)
    return await increment(total)


@pytest.mark.parametrize("what", USES)
def test_an_odd_use_raises_or_does_nothing(what: str) -> None:
    async def main() -> None:
        error = USES[what][1]
        async with Engine(":memory:") as engine:
            run = await engine.start(uses(what))
            if error is None:
                assert await run.result(timeout=10) == 3
                return
            with pytest.raises(RunFailed) as caught:
                await run.result(timeout=10)
            assert isinstance(caught.value.__cause__, error), repr(caught.value.__cause__)

    run_async(main())
