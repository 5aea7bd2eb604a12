"""The workflows and steps that carry hostile values. What a run shall do is in `ACTIONS`, by a number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fuzz.hostile import Model, Parcel
from perdure import event, receive, reply, step, workflow

#: What the code of a run does, by the number that it was started with.
ACTIONS: dict[int, Callable[[], Awaitable[Any]]] = {}
#: What a step returns or raises, by the same number.
MADE: dict[int, Any] = {}


@event
@dataclass
class Letter:
    body: Any


@event(name="fuzz-question", delivery="all", consume=False)
@dataclass
class Question:
    body: Any
    count: int = 0


@workflow
async def acts(number: int) -> Any:
    """Does what its action says, and returns what that returns."""
    return await ACTIONS[number]()


@step
async def adds(number: int) -> int:
    return number + 1


@workflow
async def ordinary(number: int) -> int:
    """What must always work."""
    return await adds(await adds(number))


@workflow
async def waits() -> Any:
    return (await receive(Letter)).body


@workflow
async def answers() -> str:
    question = await receive(Question)
    await reply(question, question.body)
    return "answered"


@step
async def echo(value: Any) -> Any:
    return value


@workflow
async def forks() -> Any:
    return await echo(1)


@workflow
async def fails() -> None:
    raise ValueError("as it should")


@step(max_attempts=2, initial_delay=0)
async def returns(number: int) -> Any:
    return MADE[number]


@step(max_attempts=2, initial_delay=0)
def returns_in_thread(number: int) -> Any:
    return MADE[number]


@step(max_attempts=2, initial_delay=0)
async def raises(number: int) -> Any:
    raise MADE[number]


@step(max_attempts=2, initial_delay=0)
def raises_in_thread(number: int) -> Any:
    raise MADE[number]


def _typed(annotation: Any, name: str) -> tuple[Any, Any, Any]:
    """A workflow that returns its argument, a step that does so, and a step that returns what was made."""

    async def same(value: Any) -> Any:
        return value

    async def made(number: int) -> Any:
        return MADE[number]

    same.__annotations__ = {"value": annotation, "return": annotation}
    made.__annotations__ = {"number": int, "return": annotation}
    return (
        workflow(name=f"same-{name}")(same),
        step(name=f"echo-{name}")(same),
        step(name=f"made-{name}", max_attempts=2, initial_delay=0)(made),
    )


TYPED = {
    name: _typed(annotation, name)
    for name, annotation in {
        "any": Any,
        "int": int,
        "str": str,
        "float-or-none": float | None,
        "bool": bool,
        "bytes": bytes,
        "list-of-int": list[int],
        "dict": dict[str, Any],
        "dict-of-float": dict[str, float | None],
        "parcel": Parcel,
        "model": Model,
        "tuple": tuple[int, str],
        "set": set[str],
        "union": int | str | list[int],
        "object": object,
    }.items()
}
