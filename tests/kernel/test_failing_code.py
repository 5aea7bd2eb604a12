"""Whatever workflow code raises ends its run with the reason recorded; nothing else is harmed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from kernel.kernel_kit import Drive
from perdure import RunFailed, event, receive, step, workflow
from perdure.kernel.outcomes import Fail
from support.lives import Lives, run_async


class OutOfStock(Exception):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError("no pickling")


@event
@dataclass
class NeverComes:
    pass


@step
async def fine(value: int) -> int:
    return value


@workflow
async def raises_plainly() -> None:
    await fine(1)
    error = OutOfStock("none left", 3)
    error.add_note("warehouse 7")
    raise error from KeyError("sku")


@workflow
async def raises_a_group() -> None:
    await fine(1)
    raise ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [KeyError("b"), OutOfStock("c")])])


@workflow
async def raises_cancelled() -> None:
    await fine(1)
    raise asyncio.CancelledError


@workflow
async def recurses() -> None:
    await fine(1)

    def down() -> None:
        down()

    down()


@workflow
async def raises_the_unprintable() -> None:
    await fine(1)
    raise Unprintable


@workflow
async def raises_stop_iteration() -> None:
    await fine(1)
    raise StopIteration("early")


@workflow
async def next_of_nothing() -> str:
    await fine(1)
    return next(iter([]))


@workflow
async def returns_a_lambda() -> Any:
    await fine(1)
    return {"rows": [lambda: None]}


def _failure(lives: Lives, invocation: Any) -> tuple[BaseException, dict[str, Any]]:
    async def main() -> tuple[BaseException, dict[str, Any]]:
        async with lives.engine() as engine:
            other = await engine.start(healthy(), id="other")
            run = await engine.start(invocation, id="run")
            with pytest.raises(RunFailed) as caught:
                await run.result()
            assert (await run.status()).status == "failed"
            last = (await engine.admin.history("run"))[-1]
            assert last.kind == "failed"
            assert await other.result() == 2, "the other run goes on"
            cause = caught.value.__cause__
            assert cause is not None
            return cause, last.data["error"]

    return run_async(main())


@workflow
async def healthy() -> int:
    return await fine(1) + await fine(1)


def test_an_exception_fails_the_run_with_type_message_notes_and_traceback(lives: Lives) -> None:
    """People see what was raised as Python would have shown it. FAULTS D19."""
    cause, recorded = _failure(lives, raises_plainly())
    assert type(cause) is OutOfStock
    assert cause.args == ("none left", 3)
    assert cause.__notes__ == ["warehouse 7"]
    assert type(cause.__cause__) is KeyError
    assert "raises_plainly" in recorded["traceback"]
    assert "test_failing_code.py" in recorded["traceback"]


def test_an_exception_group_keeps_all_its_leaves(lives: Lives) -> None:
    """None of several errors is lost. FAULTS D20."""
    cause, _ = _failure(lives, raises_a_group())
    assert isinstance(cause, ExceptionGroup)
    assert isinstance(cause.exceptions[0], ValueError)
    inner = cause.exceptions[1]
    assert isinstance(inner, ExceptionGroup)
    assert [type(leaf) for leaf in inner.exceptions] == [KeyError, OutOfStock]


def test_raising_cancelled_error_by_itself_is_a_failure(lives: Lives) -> None:
    """FAULTS D21: cancelled is what somebody asked for; this is not."""
    cause, _ = _failure(lives, raises_cancelled())
    assert isinstance(cause, asyncio.CancelledError)


def test_a_recursion_error_is_a_failure(lives: Lives) -> None:
    """It fails the run like any other exception, and the worker goes on. FAULTS D25."""
    cause, _ = _failure(lives, recurses())
    assert isinstance(cause, RecursionError)


def test_an_unprintable_exception_is_a_failure_with_a_safe_text(lives: Lives) -> None:
    """FAULTS D27: neither `__str__` nor `__repr__` nor pickling of the error is relied on."""
    _, recorded = _failure(lives, raises_the_unprintable())
    assert recorded["type"].endswith(":Unprintable")
    assert recorded["message"]


@pytest.mark.parametrize("described", [raises_stop_iteration, next_of_nothing], ids=lambda w: w.name)
def test_stop_iteration_is_a_failure_not_a_silent_end(lives: Lives, described: Any) -> None:
    """FAULTS D38: PEP 479 holds for workflows."""
    cause, _ = _failure(lives, described())
    assert isinstance(cause, RuntimeError)
    assert "StopIteration" in str(cause)


def test_a_result_that_cannot_be_stored_is_a_failure_with_its_path(lives: Lives) -> None:
    """CONFORMANCE S5, for workflows: the run does not hang."""
    cause, _ = _failure(lives, returns_a_lambda())
    assert "rows" in str(cause)


@workflow
async def step_that_stops() -> str:
    try:
        await stopping(1)
    except RuntimeError as error:
        return str(error)
    return "no error"


@step(max_attempts=1)
def stopping(value: int) -> int:
    raise StopIteration(value)


def test_stop_iteration_in_a_step_reaches_the_workflow_as_an_error(lives: Lives) -> None:
    """FAULTS D38, in a synchronous step: a future cannot carry it, and nothing hangs."""

    async def main() -> str:
        async with lives.engine() as engine:
            return await (await engine.start(step_that_stops())).result()

    assert "StopIteration" in run_async(main())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_leaving_the_process_does_not_fail_the_run(kind: type[BaseException]) -> None:
    """FAULTS D23: the turn is abandoned; replayed in another process the run goes on as if it had not been."""
    _leave["kind"] = kind
    with Drive(leaves_the_process()) as drive:
        with pytest.raises(kind):
            drive.finish("fine", 1)
        assert not isinstance(drive.run.outcome, Fail)
        _leave["kind"] = None
        run, _ = drive.rebuilt()
        assert type(run.outcome).__name__ == "Complete"


_leave: dict[str, Any] = {"kind": None}


@workflow
async def leaves_the_process() -> int:
    value = await fine(1)
    if _leave["kind"] is not None:
        raise _leave["kind"]
    return value


@workflow
async def waits_for_ever() -> None:
    await receive(NeverComes)
