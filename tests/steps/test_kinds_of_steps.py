"""What can be a step: async and sync functions, callable objects, methods, partials; and where each runs."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from dataclasses import dataclass

import pytest

from perdure import current_step, step, storable, workflow
from perdure.errors import BadDefinition, NotInStep
from support.lives import Lives, run_async


@step
async def asynchronous(number: int) -> tuple[int, bool]:
    return number + current_step().attempt, threading.current_thread() is threading.main_thread()


@step
def synchronous(number: int) -> tuple[int, bool]:
    return number + current_step().attempt, threading.current_thread() is threading.main_thread()


@storable
@dataclass
class Adder:
    more: int

    def __call__(self, number: int) -> int:
        return number + self.more

    @step
    async def add(self, number: int) -> int:
        return number + self.more

    @step
    def add_in_thread(self, number: int) -> int:
        return number + self.more


class AsyncAdder:
    async def __call__(self, number: int) -> int:
        await asyncio.sleep(0)
        return number + 100


def plain_add(number: int, more: int) -> int:
    return number + more


add_object = step(Adder(10))
add_async_object = step(AsyncAdder())
add_partial = step(functools.partial(plain_add, more=1000), name="add_partial")
add_bound = step(Adder(5).__call__, name="add_bound")


EXPECTED = {
    "async": (2, True),
    "sync": (2, False),
    "object": 11,
    "async object": 101,
    "partial": 1001,
    "bound": 6,
    "method": 4,
    "method in thread": 4,
}


def test_every_kind_of_callable_is_a_step_and_survives_a_crash_at_every_record(lives: Lives) -> None:
    """CONFORMANCE S4: async ones run on the loop's thread, sync ones in another."""

    assert run_async(lives.crash_at_every_record(kinds_of_any_step)) == EXPECTED


@workflow
async def kinds_of_any_step() -> dict:  # type: ignore[type-arg]
    adder = Adder(3)
    return {
        "async": await asynchronous(1),
        "sync": await synchronous(1),
        "object": await add_object(1),
        "async object": await add_async_object(1),
        "partial": await add_partial(1),
        "bound": await add_bound(1),
        "method": await adder.add(1),
        "method in thread": await adder.add_in_thread(1),
    }


user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


@step
def facts_in_a_thread() -> dict[str, str]:
    context = current_step()
    user.set("changed in the step")
    return {
        "run": context.run_id,
        "location": context.location,
        "name": context.name,
        "attempt": str(context.attempt),
        "cancelled": str(context.cancelled),
        "user": user.get(),
    }


@workflow
async def looks_at_facts() -> dict[str, str]:
    await facts_in_a_thread()
    return await facts_in_a_thread()


def test_current_step_is_known_in_threads_and_context_does_not_leak(lives: Lives) -> None:
    """CONFORMANCE S4: contextvars reach the thread; what a step sets stays in it."""

    async def main() -> dict[str, str]:
        async with lives.engine() as engine:
            return await (await engine.start(looks_at_facts(), id="run")).result()

    assert run_async(main()) == {
        "run": "run",
        "location": "facts_in_a_thread#2",
        "name": "facts_in_a_thread",
        "attempt": "1",
        "cancelled": "False",
        "user": "changed in the step",
    }
    assert user.get() == "nobody"


def test_current_step_outside_a_step_is_an_error() -> None:
    """There is no step to speak of. CONFORMANCE S4."""
    with pytest.raises(NotInStep, match="P-103"):
        current_step()


barrier = threading.Barrier(4, timeout=10)


@step
def meets_the_others(number: int) -> int:
    barrier.wait()
    return number


@workflow
async def threads_together() -> list[int]:
    return list(await asyncio.gather(*(meets_the_others(number) for number in range(4))))


def test_sync_steps_run_beside_each_other(lives: Lives) -> None:
    """CONFORMANCE S4: four sync steps that wait for each other all come through."""

    async def main() -> list[int]:
        async with lives.engine() as engine:
            return await (await engine.start(threads_together())).result(timeout=10)

    assert run_async(main()) == [0, 1, 2, 3]


@step(max_attempts=1)
def raises_stop_iteration() -> None:
    raise StopIteration("too early")


@workflow
async def stops_iterating() -> str:
    try:
        await raises_stop_iteration()
    except RuntimeError as error:
        return str(error)
    return "nothing"


def test_stop_iteration_from_a_thread_does_not_hang(lives: Lives) -> None:
    """FAULTS D38: a future cannot carry StopIteration; the step fails with something that can be raised."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(stops_iterating())).result(timeout=10)

    assert "StopIteration" in run_async(main())


def test_generators_are_refused_as_steps() -> None:
    """FAULTS F5: a generator cannot be recorded as one outcome."""

    def yields() -> object:
        yield 1

    async def yields_async() -> object:
        yield 1

    for function in (yields, yields_async):
        with pytest.raises(BadDefinition, match="generator"):
            step(function)  # type: ignore[call-overload]
    with pytest.raises(BadDefinition):
        step(42)  # type: ignore[call-overload]
