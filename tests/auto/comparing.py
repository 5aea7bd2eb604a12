"""A function as plain Python and as an auto workflow: what each gives, raises and does must be the same."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure import RunFailed
from perdure.testing import Effects, VirtualEngine, crash_everywhere
from perdure.types import Workflow


class Outcome(NamedTuple):
    """`raised` is empty if it came to its end."""

    value: Any
    raised: str
    effects: list[str]


def _text(error: BaseException) -> str:
    inner = [_text(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return f"{type(error).__name__}: {error} {inner or ''} {_text(error.__cause__) if error.__cause__ else ''}".strip()


def _labels(done: Effects) -> list[str]:
    return [effect.label for effect in done.all]


def plainly(function: Callable[..., Any], args: tuple[Any, ...], done: Effects) -> Outcome:
    done.clear()
    value, raised = None, ""
    try:
        value = function(*args)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except Exception as error:
        value, raised = None, _text(error)
    return Outcome(value, raised, _labels(done))


def durably(flow: Workflow[..., Any], args: tuple[Any, ...], done: Effects, **settings: Any) -> Outcome:
    async def live() -> Any:
        async with VirtualEngine(**settings) as engine:
            return await (await engine.start(flow(*args), id="run")).result()

    done.clear()
    value, raised = None, ""
    try:
        value = asyncio.run(live())
    except RunFailed as error:
        raised = _text(error.__cause__ or error)
    return Outcome(value, raised, _labels(done))


def compare(
    function: Callable[..., Any], flow: Workflow[..., Any], args: tuple[Any, ...], done: Effects, points_max: int = 200
) -> Outcome:
    """Live, with a replay before every turn, and with a crash at every commit. Returns what plain Python gives."""
    expected = plainly(function, args, done)
    for settings in ({}, {"always_replay": True}):
        found = durably(flow, args, done, **settings)
        assert found == expected, f"with {settings}:\n  plain Python: {expected}\n  auto mode:    {found}"
    done.clear()
    report = crash_everywhere(
        flow(*args), effects=done, hash_seeds=(), points_max=points_max
    )  # raises if a crash changes anything
    if not expected.raised:
        assert report.result == expected.value
    return expected
