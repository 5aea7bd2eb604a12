"""What can be a workflow or a step: each kind of callable is accepted and works, or refused saying why."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from perdure import PerdureError, step, workflow
from perdure.errors import BadDefinition
from support.lives import Lives, run_async


def plain(number: int) -> int:
    return number


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class CallableObject:
    async def __call__(self, number: int) -> int:
        return number + 1


class SyncCallable:
    def __call__(self, number: int) -> int:
        return number + 2


class Service:
    def __init__(self, base: int) -> None:
        self.base = base

    async def add(self, number: int) -> int:
        return self.base + number


async def clocked(_base: int) -> float:
    return time.time()


async def add_both(left: int, right: int) -> int:
    return left + right


NOT_WORKFLOWS = {
    "sync def": plain,
    "generator": generator,
    "async generator": async_generator,
    "lambda": lambda: None,
    "callable object": CallableObject(),
    "class": Service,
    "number": 5,
}


@pytest.mark.parametrize("name", NOT_WORKFLOWS)
def test_what_cannot_be_a_workflow_is_refused_saying_why(name: str) -> None:
    """While decorating, not when the first run starts. FAULTS F5."""
    with pytest.raises(BadDefinition, match=r"async def|async generator|function"):
        workflow(name="not-a-workflow")(NOT_WORKFLOWS[name])  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [generator, async_generator])
def test_a_generator_cannot_be_a_step(target: Any) -> None:
    """It is refused while decorating: its values could not be recorded as one result. FAULTS F5."""
    with pytest.raises(BadDefinition, match="generator"):
        step(target)


@pytest.mark.parametrize("target", [5, None, "text"])
def test_what_cannot_be_called_cannot_be_a_step(target: Any) -> None:
    """FAULTS F5: a value is no unit of work."""
    with pytest.raises(PerdureError):
        step(name="nonsense")(target)


STEPS = {
    "sync": (step(plain), (1,), 1),
    "lambda": (step(lambda number: number * 10), (2,), 20),
    "partial": (step(functools.partial(add_both, 5)), (1,), 6),
    "bound": (step(Service(100).add), (1,), 101),
    "callable": (step(CallableObject()), (1,), 2),
    "sync callable": (step(SyncCallable()), (1,), 3),
    "builtin": (step(name="length")(len), ([1, 2],), 2),
}


@workflow
async def calls_a_step(name: str) -> int:
    described, args, _ = STEPS[name]
    return int(await described(*args))  # type: ignore[operator]


@pytest.mark.parametrize("name", STEPS)
def test_every_kind_of_callable_works_as_a_step(lives: Lives, name: str) -> None:
    """Whatever can be called can be a step. FAULTS F5, CONFORMANCE S4."""

    async def main() -> int:
        async with lives.engine() as engine:
            return await (await engine.start(calls_a_step(name))).result()

    assert run_async(main()) == STEPS[name][2]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_called_outside_a_workflow_just_runs(name: str) -> None:
    """As its plain function would: no engine, no retry, no record."""
    described, args, expected = STEPS[name]

    async def main() -> Any:
        return await described(*args)  # type: ignore[operator]

    assert run_async(main()) == expected


def test_a_partial_or_bound_method_as_a_workflow_works_or_is_refused(lives: Lives) -> None:
    """FAULTS F5: accepted means that it runs, with the run's own clock."""
    try:
        described = workflow(name="partial-workflow")(functools.partial(clocked, 1))
    except BadDefinition:
        return

    async def main() -> bool:
        async with lives.engine() as engine:
            run = await engine.start(described(), id="run")
            result = await run.result()
            started = (await engine.admin.history("run"))[0].at.timestamp()
            return abs(result - started) < 0.0000015

    assert run_async(main()), "the partial saw the real clock"


def test_a_decorated_function_keeps_its_name_and_documentation() -> None:
    """The wrapper looks like what it wraps."""

    @step
    async def documented(number: int) -> int:
        """What it does."""
        return number

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "What it does."
    assert "documented" in repr(documented)
    assert "test_what_can_be_decorated.py" in repr(documented)
