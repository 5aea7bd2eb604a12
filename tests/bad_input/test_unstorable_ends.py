"""A workflow whose result, status or state cannot be stored: an error that is seen, not a run that hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Engine, RunFailed, RunNotFound, event, send, state, status, step, workflow
from perdure.errors import BadArgument, NotStorable
from support.lives import Lives, run_async


@event
@dataclass
class SomeNote:
    pass


@step
async def prepares() -> int:
    return 1


@workflow
async def ends_badly(how: str, after_a_step: bool) -> Any:
    if after_a_step:
        await prepares()
    match how:
        case "result":
            return {"rows": [object()]}
        case "status":
            status({"rows": [object()]})
        case "state":
            state["rows"] = [object()]
        case "argument":
            await takes(object())
        case _:
            raise AssertionError(how)
    return "fine"


@step
async def takes(value: Any) -> None: ...


@pytest.mark.parametrize("after_a_step", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("how", ["result", "status", "state", "argument"])
def test_run_fails_with_the_path(lives: Lives, how: str, after_a_step: bool) -> None:
    """The issue's bad input, FAULTS E1: the run ends as failed, with what cannot be stored and where."""

    async def main() -> BaseException | None:
        async with lives.engine() as engine:
            handle = await engine.start(ends_badly(how, after_a_step), id="run")
            with pytest.raises(RunFailed) as caught:
                await handle.result(timeout=5)
            assert (await handle.status()).status == "failed"
            return caught.value.__cause__

    error = run_async(main())
    assert isinstance(error, NotStorable)
    assert {"result": "$.rows[0]", "status": "$.rows[0]", "state": "$", "argument": "$"}[how] in str(error)


@workflow
async def sends_badly(kind: str) -> str:
    try:
        match kind:
            case "unknown":
                await send("nobody", SomeNote())
            case "empty id":
                await send("", SomeNote())
            case "not an event":
                await send("nobody", "text")
    except (RunNotFound, BadArgument) as error:
        return type(error).__name__
    return "sent"


@pytest.mark.parametrize(
    ("kind", "error"),
    [("unknown", "RunNotFound"), ("empty id", "BadArgument"), ("not an event", "BadArgument")],
)
def test_bad_sends_are_errors_in_workflow_code(lives: Lives, kind: str, error: str) -> None:
    """The issue's bad input: the same types as outside, catchable where they happen."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(sends_badly(kind))).result(timeout=5)

    assert run_async(main()) == error


def test_engine_takes_new_work_after_bad_input(lives: Lives) -> None:
    """Park, never lose: one bad run does not stand in the way of the next."""

    async def main() -> None:
        async with lives.engine() as engine:
            for how in ("result", "status", "state", "argument"):
                await engine.start(ends_badly(how, True), id=how)
            assert await good(engine) == "RunNotFound"

    async def good(engine: Engine) -> str:
        return await (await engine.start(sends_badly("unknown"))).result(timeout=5)

    run_async(main())
